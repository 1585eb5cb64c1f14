"""``kgo demo``: the promise, shown. The digits are trained in one session, then by a chain in which a session is
killed, and the two must end bit for bit the same.

Whatever isn't as promised is named, and the exit code is 1; it is 3 where the training itself failed.
"""

import importlib.util
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kaggle_orchestrator.chain import Attempt, Fail, Finish, Half, Options, Pair, Stop
from kaggle_orchestrator.cli.chains import steered
from kaggle_orchestrator.cli.context import home
from kaggle_orchestrator.cli.display import Display, display_for
from kaggle_orchestrator.cli.failure import EXIT_FAILED
from kaggle_orchestrator.cli.options import shown
from kaggle_orchestrator.cli.pulled import pull_attempt
from kaggle_orchestrator.errors import ChainError, Damaged, UsageError
from kaggle_orchestrator.experiment import ChainConfig, Experiment, load
from kaggle_orchestrator.experiment.scaffold import Starter, scaffold
from kaggle_orchestrator.protocol import CHECKPOINTS, MANIFEST, Outcome

if TYPE_CHECKING:
    from kaggle_orchestrator.client import Kaggle

WEIGHTS = "final/model.pt"
METRICS = "final/metrics.json"
ACCURACY = 0.97
LEGS = 4
STOP_BEFORE_S = 2.0
_MARK = ".kgo-demo"


@dataclass(frozen=True, slots=True)
class Ran:
    """An experiment that reached its target.

    Attributes:
        attempts: All of them, the last one done.
        folder: Where its artifacts lie.
        verified: How many of them have the sha256 that their session recorded.
        sha256: Of the final weights.
        accuracy: On the held-out digits.
    """

    attempts: tuple[Attempt, ...]
    folder: Path
    verified: int
    sha256: str
    accuracy: float

    @property
    def legs(self) -> tuple[Attempt, ...]:
        """The attempts that gained steps."""
        return tuple(a for a in self.attempts if a.outcome in (Outcome.CONTINUE, Outcome.DONE))


@click.command("demo", short_help="Train the digits in a chain with a kill, and prove it bit for bit.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to; made anew each time. [default: demo in KGO_HOME]",
)
@click.pass_context
def command(ctx: click.Context, folder: Path | None) -> None:
    """Train the digits in one session, then by a chain in which a session is killed; compare the weights.

    No account: everything runs on a local Kaggle of its own, which is stopped at the end. Needs torch.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "The demo trains with torch, which isn't installed beside kgo.",
            hint="From a clone: `pip install '.[torch]'`, or `make demo`, which has an environment of its own.",
        )
    started = time.monotonic()
    with _stage(folder or home() / "demo") as (stage, kaggle), display_for(("demo",)) as display:
        experiment = _experiment(stage)
        display.say("demo", "1. The training, uninterrupted: one session.")
        alone = replace(experiment.kernel, slug="digits-straight", title="digits-straight")
        straight = _run(replace(experiment, kernel=alone, chain=None), kaggle, display)
        chain = _sized(straight)
        limit = chain.session_limit_s
        display.say("demo", f"2. The same as a chain: sessions of {limit:.0f} s, the second killed in mid-training.")
        _plan_a_kill(kaggle, experiment)
        chained = _run(replace(experiment, chain=chain), kaggle, display)
    faults = _faults(straight, chained)
    _print(straight, chained, time.monotonic() - started)
    for fault in faults:
        click.echo(f"kgo: not as promised: {fault}", err=True)
    ctx.exit(EXIT_FAILED if faults else 0)


@contextmanager
def _stage(folder: Path) -> Iterator[tuple[Path, "Kaggle"]]:
    """An empty folder, and a local Kaggle in it that is gone afterwards.

    Raises:
        UsageError: The folder holds something else.
    """
    from kaggle_orchestrator import client
    from kaggle_orchestrator.localkaggle import background

    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise UsageError(f"{folder} isn't empty and isn't an earlier demo's.", hint="Name another one with --dir.")
    if folder.exists():
        background.stop(folder)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    try:
        yield folder, client.connect(background.ensure(folder).url)
    finally:
        background.stop(folder)


def _experiment(stage: Path) -> Experiment:
    scaffold(stage / "digits", Starter.DIGITS)
    experiment = load(stage / "digits")
    return replace(
        experiment, pull=replace(experiment.pull, patterns=("final/**", "best/**", "kgo/**", "checkpoints/**"))
    )


def _sized(straight: Ran) -> ChainConfig:
    """Sessions that hold about a fifth of the training on this machine, beside all else that they do."""
    result = straight.attempts[-1].result
    assert result is not None
    assert result.ended_at is not None
    train_s = result.buckets.get("train", 0.0)
    other_s = result.ended_at - result.started_at - train_s
    leave_s = other_s + train_s / 5  # half of it after the kill: hardly more than the start, but always a step
    return ChainConfig(
        session_limit_s=round(leave_s + STOP_BEFORE_S), stop_before_s=STOP_BEFORE_S, max_legs=40, min_leg_s=1.0
    )


def _plan_a_kill(kaggle: "Kaggle", experiment: Experiment) -> None:
    """The chain's second session, the first of its second kernel, is killed soon after it saved a checkpoint."""
    from kaggle_orchestrator.localkaggle import admin

    victim = Pair(kaggle.owner(), experiment.kernel.slug).ref(Half.B)
    when = f"{CHECKPOINTS}/*/{MANIFEST}"
    admin.add_faults(
        kaggle.endpoint, [{"kill_session": {"kernel": str(victim), "number": 1, "when_output": when, "after_s": 0.5}}]
    )


def _run(experiment: Experiment, kaggle: "Kaggle", display: Display) -> Ran:
    """Drive an experiment to its target and pull.

    Raises:
        ChainError: It didn't get there.
        Damaged: Its output lacks what it should have made.
    """
    with steered(experiment, kaggle, Options()) as chain:
        match chain.drive(lambda event: display.event("demo", event)):
            case Finish(attempt):
                ref = chain.book.ref(attempt)
            case Fail(message=message, hint=hint):
                raise ChainError(f"The demo's training failed: {message}", hint=hint)
            case Stop():
                raise ChainError("The demo was stopped.")
        folder = experiment.root.parent / "outputs" / experiment.kernel.slug
        pulled = pull_attempt(kaggle, experiment, ref, attempt, folder=folder)
        by_name = {a.name: a for a in pulled.artifacts}
        if missing := {WEIGHTS, METRICS} - by_name.keys():
            raise Damaged(f"The demo's output lacks {', '.join(sorted(missing))}.", files=sorted(missing))
        accuracy = json.loads(Path(by_name[METRICS].path).read_text(encoding="utf-8"))["test_accuracy"]
        return Ran(
            attempts=chain.book.attempts,
            folder=folder,
            verified=len(pulled.artifacts) - len(pulled.unverified),
            sha256=by_name[WEIGHTS].sha256,
            accuracy=accuracy,
        )


def _faults(straight: Ran, chained: Ran) -> Sequence[str]:
    outcomes = [a.outcome for a in chained.attempts]
    faults = []
    if len(chained.legs) < LEGS:
        faults.append(f"the chain had {len(chained.legs)} legs, fewer than {LEGS}")
    if outcomes.count(Outcome.KILLED) != 1 or set(outcomes) - {Outcome.KILLED, Outcome.CONTINUE, Outcome.DONE}:
        faults.append(f"the attempts ended as {', '.join(str(o) for o in outcomes)}")
    if chained.accuracy < ACCURACY:
        faults.append(f"test accuracy is {chained.accuracy:.4f}, below {ACCURACY}")
    if chained.sha256 != straight.sha256:
        faults.append("the chain's final weights differ from the uninterrupted training's")
    return faults


def _print(straight: Ran, chained: Ran, seconds: float) -> None:
    killed = sum(a.outcome is Outcome.KILLED for a in chained.attempts)
    same = "bit for bit the same" if chained.sha256 == straight.sha256 else "NOT the same"
    click.echo(f"chain:         {len(chained.attempts)} sessions, {len(chained.legs)} legs, {killed} killed")
    click.echo(f"artifacts:     {chained.verified} files, each sha256 checked, in {shown(chained.folder)}")
    click.echo(f"test accuracy: {chained.accuracy:.4f}")
    click.echo(f"{WEIGHTS}, chain:         sha256 {chained.sha256}")
    click.echo(f"{WEIGHTS}, uninterrupted: sha256 {straight.sha256}")
    click.echo(f"The final weights are {same}. ({seconds:.0f} s)")
