"""An experiment's chain as commands see it: looked at, steered by the one process that may, one leg's output chosen."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kaggle_orchestrator.chain import (
    Attempt,
    Book,
    Chain,
    ChainKey,
    Journal,
    Observation,
    Options,
    Pair,
    Phase,
    policy_of,
    steering,
)
from kaggle_orchestrator.chain.edits import snapshot
from kaggle_orchestrator.cli.context import address_of
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.errors import ChainLive, JournalError, UsageError
from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.protocol import KgoError, Outcome

if TYPE_CHECKING:
    from kaggle_orchestrator.client import Kaggle

F = TypeVar("F", bound=Callable[..., Any])


def steering_options(command: F) -> F:
    """What a person may ask of a chain. Passed as ``accept_changes, new, retry, take_over: bool``."""
    for name, text in (
        ("--take-over", "Push to a kernel of that name although kgo didn't make it."),
        ("--retry", "Go on after a failure or a stop."),
        ("--new", "Start over as a new chain."),
        ("--accept-changes", "Go on with edited code or configuration."),
    ):
        command = click.option(name, is_flag=True, help=text)(command)
    return command


@dataclass(frozen=True, slots=True)
class View:
    """A chain as far as it's known; ``note`` says why it isn't fresh, if it isn't."""

    observation: Observation
    note: str = ""


def known(experiment: Experiment, kaggle: "Kaggle") -> View:
    """The chain as Kaggle and the journal have it; nothing is pushed, and no journal is made for looking.

    Raises:
        JournalError: The journal can't be used.
    """
    with ExitStack() as stack:
        if Journal.exists(experiment.root):
            journal = stack.enter_context(Journal.of(experiment.root))
        else:
            journal = stack.enter_context(Journal(Path(stack.enter_context(TemporaryDirectory())) / "journal.db"))
        address = address_of(kaggle)
        try:
            key = ChainKey(address, kaggle.owner(), experiment.kernel.slug)
            with steering(journal.path.parent, key.owner, key.slug):
                return View(Chain(experiment, kaggle, journal, SystemClock(), address=key.endpoint).observe())
        except ChainLive:
            return View(_from_journal(experiment, journal, key))  # who steers it keeps the journal fresh
        except JournalError:
            raise
        except KgoError as error:
            note = f"{error.message} Showing what the journal knows."
            keys = [k for k in journal.keys(experiment.kernel.slug) if k.endpoint == address]
            return View(_from_journal(experiment, journal, keys[0] if keys else None), note)


def offline(experiment: Experiment, local: bool) -> View:
    """The chain as the journal has it; ``local``: the local Kaggle's.

    Raises:
        JournalError: The journal can't be used.
    """
    if not Journal.exists(experiment.root):
        return View(_nothing(experiment, "?"))
    with Journal.of(experiment.root) as journal:
        return View(_from_journal(experiment, journal, _likely_key(experiment, journal, local)))


def _likely_key(experiment: Experiment, journal: Journal, local: bool) -> ChainKey | None:
    """The chain that is most likely meant, while Kaggle can't be asked who we are."""
    from kaggle_orchestrator.client.endpoint import parse_endpoint

    endpoint = parse_endpoint(os.environ.get("KGO_ENDPOINT") or None)
    local = local or endpoint.loopback
    keys = journal.keys(experiment.kernel.slug)
    return next((k for k in keys if k.endpoint == endpoint.url or (local and k.endpoint.startswith("local:"))), None)


def _from_journal(experiment: Experiment, journal: Journal, key: ChainKey | None) -> Observation:
    record = journal.chain(key) if key else None
    if record is None:
        return _nothing(experiment, key.owner if key else "?")
    book = Book(journal, record, policy_of(experiment), SystemClock())
    return book.observation(None if book.open else snapshot(experiment))


def _nothing(experiment: Experiment, owner: str) -> Observation:
    fingerprint = snapshot(experiment).fingerprint
    pair = Pair(owner, experiment.kernel.slug)
    return Observation(pair, policy_of(experiment), (), pinned=fingerprint, current=fingerprint)


@contextmanager
def steered(experiment: Experiment, kaggle: "Kaggle", options: Options) -> Iterator[Chain]:
    """The experiment's chain, for the one process that may steer it.

    Raises:
        ChainLive: Another process steers it.
        JournalError: The journal can't be used.
    """
    with (
        Journal.of(experiment.root) as journal,
        steering(journal.path.parent, kaggle.owner(), experiment.kernel.slug),
    ):
        yield Chain(experiment, kaggle, journal, SystemClock(), options=options, address=address_of(kaggle))


def choose(seen: Observation, leg: int | None) -> Attempt:
    """The attempt whose output is meant: the target's, else the newest gain, else the last that ended.

    Raises:
        UsageError: There is none yet.
    """
    ended = [a for a in seen.attempts if a.phase is Phase.ENDED and a.version is not None]
    if leg is not None:
        ended = [a for a in ended if a.leg == leg]
    best = [a for a in ended if a.outcome is Outcome.DONE] or [a for a in ended if a.gained] or ended
    if not best:
        newest = max((a.leg for a in seen.attempts), default=0)
        if leg is not None and leg > newest > 0:
            raise UsageError(f"There is no leg {leg}: the newest is leg {newest}.", hint="`kgo status` shows them.")
        what = f"Leg {leg} hasn't" if leg is not None and newest else "No attempt has"
        raise UsageError(f"{what} ended yet: there is nothing to pull.", hint="`kgo status` shows how far it is.")
    return best[-1]
