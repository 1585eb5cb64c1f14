"""What a person asks for when starting to steer: a fresh one-off, a new chain, accepted edits, another try."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kaggle_orchestrator.chain.book import Book
from kaggle_orchestrator.chain.decide import decide
from kaggle_orchestrator.chain.edits import Snapshot
from kaggle_orchestrator.chain.events import Accepted, Event
from kaggle_orchestrator.chain.journal import Journal
from kaggle_orchestrator.chain.model import Fail, Finish, Stop
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import ChainLive
from kaggle_orchestrator.experiment import chain_id


@dataclass(frozen=True, slots=True)
class Options:
    """What the person who steers asks for.

    Attributes:
        fresh: A one-off is pushed anew unless it runs; otherwise only if it was edited since.
        collect: A one-off that is done, but whose output was never pulled, isn't pushed anew: its output comes first.
        accept_changes: Go on with edited code or configuration.
        new: Start over as a new chain.
        retry: Go on after a failure or a stop.
        take_over: Push to a kernel of that name that isn't kgo's.
    """

    fresh: bool = True
    collect: bool = False
    accept_changes: bool = False
    new: bool = False
    retry: bool = False
    take_over: bool = False


def grant(
    options: Options,
    book: Book,
    files: Snapshot,
    kaggle: Kaggle,
    journal: Journal,
    clock: Clock,
    tell: Callable[[Event], None],
) -> Book:
    """Do what is asked for; returns the chain to steer, which is another one after ``new``.

    Raises:
        ChainLive: A session of the chain to leave is under way.
        KaggleError: Kaggle couldn't be asked.
    """
    if options.new and book.attempts:
        book = _next_generation(book, files, kaggle, journal, clock)
    changed = book.changed(files)
    if changed and options.accept_changes:
        book.pin(files, "accepted", ", ".join(changed))
        tell(Accepted(changed))
    if book.open:
        return book
    if not book.policy.chained:
        anew = options.fresh or files.fingerprint != book.record.fingerprint
        if anew and not (options.collect and _uncollected(book, files, clock)):
            book.forgive()
    elif options.retry and isinstance(decide(book.observation(files), clock.now()), Fail | Stop):
        book.forgive()
    return book


def _uncollected(book: Book, files: Snapshot, clock: Clock) -> bool:
    """Whether these very files were trained to the end, and nobody has the output yet."""
    action = decide(book.observation(files), clock.now())
    return (
        isinstance(action, Finish)
        and action.attempt.pulled_at is None
        and action.attempt.fingerprint == files.fingerprint
    )


def _next_generation(book: Book, files: Snapshot, kaggle: Kaggle, journal: Journal, clock: Clock) -> Book:
    if book.open:
        raise ChainLive(
            f"A session of {book.ref(book.open[0])} is still under way.",
            hint="Let it end, or delete its kernel at Kaggle, then start over.",
        )
    old = book.record
    generation, now = old.generation + 1, clock.now()

    def still_there(half: Half) -> int:
        """The highest version that was looked at, if the kernel wasn't deleted since."""
        latest, seen = kaggle.version(book.pair.ref(half), None), old.seen(half)
        return seen if latest is not None and latest.current_version >= seen else 0

    record = replace(
        old,
        id=0,
        generation=generation,
        chain=chain_id(old.key.owner, old.key.slug, generation),
        fingerprint=files.fingerprint,
        files=files.files,
        settings=files.settings,
        seen_a=still_there(Half.A),
        seen_b=still_there(Half.B),
        forgiven=0,
        park=None,
        started_at=now,
    )
    return Book(journal, journal.save_chain(record, now, "begun", f"generation {generation}"), book.policy, clock)
