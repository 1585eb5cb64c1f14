"""``kgo init``: a new experiment."""

import shlex
from pathlib import Path

import click

from kaggle_orchestrator.experiment.scaffold import Starter, scaffold


@click.command("init", short_help="Scaffold an experiment.")
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False), metavar="[DIR]")
@click.option(
    "--starter",
    type=click.Choice([s.value for s in Starter]),
    default=Starter.SCRIPT.value,
    show_default=True,
    help="script: a small training in one file. notebook: the same as a notebook with its curves. pytorch: an image "
    "classifier from settings alone. digits: handwritten digits, data included.",
)
def command(folder: Path, starter: str) -> None:
    """Write a kgo.toml and the code it names into DIR. Nothing is overwritten."""
    for path in scaffold(folder, Starter(starter)):
        click.echo(path)
    exp = shlex.quote(str(folder))
    click.echo(f"kgo: next: kgo check {exp}; then, without an account: kgo run --local {exp}", err=True)
