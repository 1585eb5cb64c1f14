"""``kgo run``: drive chains to their target, then pull what they made."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Never, assert_never

import click

from kaggle_orchestrator.chain import Chain, Fail, Finish, Options, Push, Refuse, Stop, Wait, Why
from kaggle_orchestrator.chain.summary import SCHEMA, chain_document
from kaggle_orchestrator.cli import EXIT_INTERRUPTED
from kaggle_orchestrator.cli.chains import steered, steering_options
from kaggle_orchestrator.cli.context import connect, local_endpoint, local_option, profile_option
from kaggle_orchestrator.cli.display import Display, display_for
from kaggle_orchestrator.cli.failure import EXIT_FAILED, EXIT_IN_PROGRESS, EXIT_PERSON, EXIT_USAGE, exit_code
from kaggle_orchestrator.cli.options import counted, json_option, print_json
from kaggle_orchestrator.cli.pulled import artifact_documents, print_artifacts, pull_attempt
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.experiment import Experiment, load
from kaggle_orchestrator.protocol import KgoError

if TYPE_CHECKING:
    from kaggle_orchestrator.client import Kaggle
    from kaggle_orchestrator.pull import Pulled

LOCAL_NAP_S = 20.0
"""A local Kaggle goes when nothing asks it for a minute; it's looked after more often than that."""
EXIT_TERMINATED = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM: how a CI cancels. The same goodbye as to Ctrl-C."""


@dataclass(slots=True)
class Drive:
    """One chain on its way.

    Attributes:
        due: When to look next, seconds since the epoch.
        unanswered: Kaggle couldn't be asked at the last look.
        code: Exit code, once it's over.
    """

    experiment: Experiment
    chain: Chain
    due: float = 0.0
    unanswered: bool = False
    code: int | None = None
    pulled: "Pulled | None" = None

    @property
    def slug(self) -> str:
        """Names it among others."""
        return self.experiment.kernel.slug


@click.command("run", short_help="Drive chains to their target.")
@click.argument("exps", nargs=-1, type=click.Path(path_type=Path), metavar="[EXP]...")
@click.option("--once", is_flag=True, help="One look and at most one action per chain, no waiting (cron, CI).")
@click.option("--exit-code", "tell", is_flag=True, help="With --once: exit 4 while still under way.")
@steering_options
@local_option
@profile_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    exps: tuple[Path, ...],
    once: bool,
    tell: bool,
    accept_changes: bool,
    new: bool,
    retry: bool,
    take_over: bool,
    local: bool,
    as_json: bool,
) -> None:
    """Drive chains to their target, then pull and verify what they made.

    Sessions that are under way are gone on with. Ctrl-C leaves them running.

    Exits 0 when the target is reached (with --once also while under way), 3 when a person is needed.
    """
    named = [load(path) for path in exps or (Path(),)]
    experiments = list({(e.root, e.kernel.slug): e for e in named}.values())  # one that is named twice is one chain
    options = Options(
        fresh=not once, collect=True, accept_changes=accept_changes, new=new, retry=retry, take_over=take_over
    )
    drives: list[Drive] = []
    try:
        with ExitStack() as stack:
            stack.enter_context(terminable())
            kaggle = connect(local, experiments)
            drives += [Drive(e, stack.enter_context(steered(e, kaggle, options))) for e in experiments]
            with display_for(tuple(d.slug for d in drives)) as display:
                if once:
                    _once(drives, kaggle, display, EXIT_IN_PROGRESS if tell else 0)
                else:
                    kaggle = _drive(drives, kaggle, display, local)
            _print(drives, kaggle, as_json)
    except KeyboardInterrupt as error:
        _say_interrupted(drives)
        ctx.exit(EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED)
    ctx.exit(worst(d.code or 0 for d in drives))


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises here, like SIGINT; Python lets only the main thread say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_: int, __: FrameType | None) -> Never:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def worst(codes: Iterable[int]) -> int:
    """The exit code that says most: configuration, then a person, then an error, then under way."""
    return max(codes, key=(0, EXIT_IN_PROGRESS, EXIT_FAILED, EXIT_PERSON, EXIT_USAGE).index, default=0)


def _once(drives: list[Drive], kaggle: "Kaggle", display: Display, under_way: int) -> None:
    for drive in drives:
        _look(drive, kaggle, display)
        if drive.code is None:
            drive.code = EXIT_FAILED if drive.unanswered else under_way


def _drive(drives: list[Drive], kaggle: "Kaggle", display: Display, local: bool) -> "Kaggle":
    """All chains in turn, each when its look is due; returns the connection, which a local Kaggle may have changed."""
    clock = SystemClock()
    while waiting := [d for d in drives if d.code is None]:
        nearest = min(waiting, key=lambda d: d.due)
        left = nearest.due - clock.now()
        if left <= 0:
            _look(nearest, kaggle, display)
            continue
        clock.sleep(min(left, LOCAL_NAP_S))
        if local and (nearest.unanswered or left > LOCAL_NAP_S / 2):
            kaggle = _still_there(waiting, kaggle)
    return kaggle


def _still_there(drives: list[Drive], kaggle: "Kaggle") -> "Kaggle":
    """The local Kaggle, started again if it went while every chain was waiting."""
    if local_endpoint() == kaggle.endpoint:
        return kaggle
    again = connect(True, [d.experiment for d in drives])
    for drive in drives:
        drive.chain.reconnect(again)
    return again


def _look(drive: Drive, kaggle: "Kaggle", display: Display) -> None:
    """One tick; an error ends this chain's drive, not the others'."""
    try:
        action = drive.chain.tick(lambda event: display.event(drive.slug, event))
        match action:
            case Wait():
                drive.due, drive.unanswered = action.until, action.why is Why.NETWORK
            case Push():
                drive.due = 0.0
            case Finish():
                _finish(drive, action, kaggle, display)
            case Fail():
                display.say(drive.slug, f"A person is needed: {action.message}")
                display.say(drive.slug, action.hint)
                drive.code = EXIT_PERSON
            case Stop():
                display.say(drive.slug, "Stopped. `kgo run --retry` goes on.")
                drive.code = EXIT_PERSON
            case Refuse():
                raise AssertionError("a refusal is raised")
            case _:
                assert_never(action)
    except KgoError as error:
        _failed(drive, error, display)


def _finish(drive: Drive, action: Finish, kaggle: "Kaggle", display: Display) -> None:
    attempt = action.attempt
    ref = drive.chain.book.ref(attempt)
    display.say(drive.slug, f"Target reached in leg {attempt.leg}; pulling {ref} v{attempt.version}")
    try:
        drive.pulled = pull_attempt(kaggle, drive.experiment, ref, attempt)
    except KgoError as error:
        _failed(drive, error, display)
        display.say(drive.slug, "The training is done and safe at Kaggle: `kgo pull` or `kgo run` pulls it again.")
        return
    drive.chain.pulled(attempt)
    drive.code = 0
    unverified = len(drive.pulled.unverified)
    verified = f"{counted(len(drive.pulled.artifacts) - unverified, 'file')} pulled and verified by sha256"
    display.say(drive.slug, verified + (f", {unverified} without a recorded sha256" if unverified else ""))


def _failed(drive: Drive, error: KgoError, display: Display) -> None:
    display.say(drive.slug, error.message)
    if error.hint:
        display.say(drive.slug, error.hint)
    drive.code = exit_code(error)


def _say_interrupted(drives: list[Drive]) -> None:
    display = Display(tuple(d.slug for d in drives))
    for drive in drives:
        left = drive.chain.open if drive.code is None else ()
        for attempt in left:
            where = f"{drive.chain.book.ref(attempt)} v{attempt.version}" if attempt.version else "a push in doubt"
            display.say(drive.slug, f"Interrupted; {where} goes on running. `kgo run` goes on from here.")
        if not left:
            display.say(drive.slug, "Interrupted; no session runs. `kgo run` goes on from here.")


def _print(drives: list[Drive], kaggle: "Kaggle", as_json: bool) -> None:
    if not as_json:
        for drive in drives:
            if drive.pulled:
                print_artifacts(drive.pulled)
        return
    chains = []
    for drive in drives:
        seen = drive.chain.seen
        entry = chain_document(drive.experiment, seen, kaggle.web_url, SystemClock().now()) if seen else {}
        chains.append(entry | {"artifacts": artifact_documents(drive.pulled)})
    print_json({"schema": SCHEMA, "chains": chains})
