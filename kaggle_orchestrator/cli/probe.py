"""``kgo probe``: measure a Kaggle with short CPU sessions, and save what was found as a profile."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kaggle_orchestrator.cli.context import connect, local_option, profile_path
from kaggle_orchestrator.cli.options import json_option, print_json
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.errors import KaggleError, UsageError
from kaggle_orchestrator.profile import Profile, QueuedStatus
from kaggle_orchestrator.protocol import write_atomic

if TYPE_CHECKING:
    from kaggle_orchestrator.client import Kaggle
    from kaggle_orchestrator.probe import Finding

SCHEMA = 1


@click.command("probe", short_help="Measure how this Kaggle behaves.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The profile. [default: in KGO_HOME]"
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@local_option
@json_option
@click.pass_context
def command(ctx: click.Context, output: Path | None, yes: bool, local: bool, as_json: bool) -> None:
    """Measure with short CPU sessions what reports of Kaggle contradict each other on, and save a profile.

    About 20 minutes at Kaggle, no GPU quota. Its kernels are private, and removed afterwards.
    """
    from kaggle_orchestrator import client
    from kaggle_orchestrator.cli.run import EXIT_TERMINATED, Terminated, terminable
    from kaggle_orchestrator.probe import Pace, Probe, leftovers
    from kaggle_orchestrator.probe.findings import profile_of

    kaggle = connect(local)
    path = output or profile_path(kaggle)
    _check_writable(path)
    left = leftovers(kaggle)
    _ask(kaggle, path, len(left), yes)
    for ref in left:
        kaggle.delete(ref)
        click.echo(f"kgo: {ref}, left by an earlier probe, is removed", err=True)
    clock, pace = SystemClock(), Pace.local() if local else Pace()
    with (
        client.connect(kaggle.endpoint, profile=Profile(queued_status=QueuedStatus.OMITTED)) as lenient,
        client.connect(kaggle.endpoint, policy=client.Policy(attempts=1)) as strict,
    ):
        probe = Probe(lenient, strict, clock, pace, _tell)
        try:
            with terminable():  # however it's ended, it leaves nothing at Kaggle
                findings = probe.run()
        except Terminated:
            ctx.exit(EXIT_TERMINATED)
        finally:
            for ref, why in probe.left.items():
                click.echo(f"kgo: {ref} couldn't be removed: {why}", err=True)
    profile = profile_of(findings, kaggle.endpoint, clock.now())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, profile.dumps().encode())
    click.echo(f"kgo: {len(profile.measured())} of {len(findings)} settings measured, saved in {path}", err=True)
    if as_json:
        print_json({"schema": SCHEMA, "profile": str(path), "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in sorted(findings, key=lambda f: f.name):
            click.echo(f"{finding.name} = {_shown(finding)}")
    if probe.left:
        raise KaggleError(
            f"{len(probe.left)} of the probe's kernels couldn't be removed; all that was measured is saved.",
            hint="Remove them on kaggle.com, or let the next `kgo probe` do it.",
        )


def _ask(kaggle: "Kaggle", path: Path, left: int, yes: bool) -> None:
    from kaggle_orchestrator.probe import SESSIONS

    click.echo(
        f"kgo: at {kaggle.endpoint}, as {kaggle.owner()}: 6 private kernels named kgo-probe-…, {SESSIONS} short CPU "
        f"sessions (about 20 minutes at Kaggle, no GPU quota), all removed afterwards"
        + (f", and {left} kernels that an earlier probe left" if left else "")
        + f". The profile goes to {path}.",
        err=True,
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("Nobody is there to say yes.", hint="--yes does it without asking.")
    click.confirm("Go on?", abort=True, err=True)


def _check_writable(path: Path) -> None:
    """Before 20 minutes are spent."""
    folder = next(parent for parent in (path.parent, *path.absolute().parents) if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"The profile can't be written to {path}.", hint="-o names another file.")


def _tell(finding: "Finding") -> None:
    click.echo(f"kgo: {finding.name} = {_shown(finding)} ({finding.evidence})", err=True)


def _shown(finding: "Finding") -> str:
    return "not measured" if finding.value is None else str(finding.value)
