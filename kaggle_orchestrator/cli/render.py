"""``kgo render``: the kernel folder that the official command takes as it is."""

import shlex
from pathlib import Path

import click

from kaggle_orchestrator.cli.options import exp_argument, owner_option
from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.render import first_attempt, render, write_folder


@click.command("render", short_help="Write the kernel folder.")
@exp_argument
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.")
@owner_option
def command(exp: Path, output: Path, owner: str) -> None:
    """Write the kernel of the first leg as a folder for `kaggle kernels push -p DIR`.

    Kaggle isn't asked who you are: give --owner (or KAGGLE_USERNAME) for a folder that you mean to push there.
    """
    experiment = load(exp)
    if output.resolve() == experiment.root:
        raise UsageError("-o names the experiment's own folder.", hint="Name another one, such as -o kernel.")
    request = render(experiment, first_attempt(experiment, owner))
    for path in write_folder(request, output):
        click.echo(path)
    timeout = f" --timeout {request.session_timeout_s}" if request.session_timeout_s else ""
    push = f"kaggle kernels push -p {shlex.quote(str(output))}{timeout}"
    click.echo(f"kgo: {request.ref} rendered; push it with: {push}", err=True)
