"""``kgo pull``: verified artifacts of a leg, or the output of any kernel."""

from pathlib import Path

import click

from kaggle_orchestrator.cli.context import connect, local_option, profile_option
from kaggle_orchestrator.cli.options import counted, json_option, print_json
from kaggle_orchestrator.cli.pulled import artifact_documents, print_artifacts, pull_attempt
from kaggle_orchestrator.errors import NotAccessible, UsageError
from kaggle_orchestrator.models import KernelRef

SCHEMA = 1


@click.command("pull", short_help="Download verified artifacts.")
@click.argument("exp", default=".", metavar="[EXP]")
@click.option("--leg", type=click.IntRange(min=1), help="That leg's output; the newest by default.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Where to; default: pull.dir.")
@click.option("--pattern", "patterns", multiple=True, metavar="G", help="Which files; may be repeated.")
@local_option
@profile_option
@json_option
def command(
    exp: str, leg: int | None, output: Path | None, patterns: tuple[str, ...], local: bool, as_json: bool
) -> None:
    """Download what a leg made, and check each file's sha256 against the session's own record.

    EXP is a kgo.toml or its folder, or owner/slug for the newest version of any kernel.
    """
    from kaggle_orchestrator.pull import pull

    ref = foreign_kernel(exp)
    if ref is not None:
        kaggle = connect(local)
        found = kaggle.version(ref)
        if found is None:
            raise NotAccessible(f"{ref} isn't there, or isn't this account's.")
        version = found.current_version
        wanted = patterns
        pulled = pull(kaggle, ref, version, output or Path("outputs"), wanted)
    else:
        from kaggle_orchestrator.cli.chains import choose, known
        from kaggle_orchestrator.experiment import load

        experiment = load(Path(exp))
        kaggle = connect(local)
        seen = known(experiment, kaggle).observation
        attempt = choose(seen, leg)
        ref = seen.pair.ref(attempt.kernel)
        wanted = patterns or experiment.pull.patterns
        pulled = pull_attempt(kaggle, experiment, ref, attempt, output, wanted)
        version = attempt.version or 0
    if as_json:
        print_json({"schema": SCHEMA, "kernel": str(ref), "version": version, "artifacts": artifact_documents(pulled)})
    else:
        count, unverified = len(pulled.artifacts), len(pulled.unverified)
        note = f"; nothing in its output matches {', '.join(wanted)}" if wanted and not count else ""
        if unverified:
            note = f", {unverified} of them without a recorded sha256"
        click.echo(f"kgo: {counted(count, 'file')} of {ref} v{version}{note}", err=True)
        print_artifacts(pulled)


def foreign_kernel(exp: str) -> KernelRef | None:
    """The kernel that an argument names, if it names no path."""
    if Path(exp).exists() or exp.count("/") != 1:
        return None
    try:
        return KernelRef.parse(exp)
    except UsageError:
        return None
