"""Steering a chain: observe, decide, act, until its target is reached or a person is needed.

An intent is in the journal before its push leaves and nothing is pushed while one is in doubt, so a controller may be
killed at any point: the next one finds what became of it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from kaggle_orchestrator.chain.asking import Options, grant
from kaggle_orchestrator.chain.book import Book, policy_of
from kaggle_orchestrator.chain.cadence import MAX_SLEEP_S, fault_interval
from kaggle_orchestrator.chain.decide import decide
from kaggle_orchestrator.chain.edits import Snapshot, snapshot
from kaggle_orchestrator.chain.events import Ended, Event, StatusSeen, Waiting
from kaggle_orchestrator.chain.journal import ChainKey, Journal
from kaggle_orchestrator.chain.judge import look
from kaggle_orchestrator.chain.model import (
    Action,
    Attempt,
    Fail,
    Finish,
    Observation,
    Phase,
    Push,
    Refuse,
    Stop,
    Wait,
    Why,
)
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.chain.pushing import Pusher
from kaggle_orchestrator.chain.sync import rebuild, sync
from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import BadAnswer, Edited, Throttled, Unavailable
from kaggle_orchestrator.experiment import Experiment

BAD_ANSWERS = 10
"""So many answers in a row that can't be understood are no passing fault."""


def _quiet(_: Event) -> None:
    """For who doesn't want to be told."""


class Chain:
    """One experiment's chain at one Kaggle.

    Hold ``lock.steering`` while using it. Its first look reads both kernels' newest versions; without a journal it
    reads all of them.
    """

    def __init__(
        self,
        experiment: Experiment,
        kaggle: Kaggle,
        journal: Journal,
        clock: Clock,
        *,
        options: Options | None = None,
        address: str | None = None,
    ) -> None:
        """Nothing is asked of Kaggle yet.

        Args:
            experiment: What to train.
            kaggle: Where.
            journal: The experiment's journal.
            clock: The time.
            options: What the person asks for.
            address: Names that Kaggle in the journal; its URL by default, which for a local Kaggle changes.
        """
        self.experiment = experiment
        self._kaggle = kaggle
        self._journal = journal
        self._clock = clock
        self._options = options or Options()
        self._address = address or kaggle.endpoint
        self._policy = policy_of(experiment)
        self._book: Book | None = None
        self._snapshot: Snapshot | None = None
        self._tell: Callable[[Event], None] = _quiet
        self._granted = False
        self._ended_here = False
        self._faults = 0
        self._told: Wait | None = None

    @property
    def book(self) -> Book:
        """What the journal holds of it; after the first look."""
        assert self._book is not None
        return self._book

    @property
    def open(self) -> tuple[Attempt, ...]:
        """Attempts without a verdict, as far as is known."""
        return self._book.open if self._book else ()

    @property
    def seen(self) -> Observation | None:
        """What is known; None before the first look."""
        return self._book.observation(self._snapshot) if self._book else None

    def reconnect(self, kaggle: Kaggle) -> None:
        """Go on at another address of the same Kaggle: a local one that was started again."""
        self._kaggle = kaggle

    def pulled(self, attempt: Attempt) -> None:
        """Its output is here, verified: a one-off may be pushed anew."""
        self.book.put(replace(attempt, pulled_at=self._clock.now()), "pulled")

    def drive(self, on_event: Callable[[Event], None] = _quiet) -> Finish | Fail | Stop:
        """Go on until the target is reached, a person is needed, or somebody stopped it.

        Raises:
            KgoError: Something that waiting doesn't mend. A session under way goes on.
        """
        while True:
            action = self.tick(on_event)
            match action:
                case Finish() | Fail() | Stop():
                    return action
                case Wait():
                    self._clock.sleep(min(action.until - self._clock.now(), MAX_SLEEP_S))
                case Push():
                    pass
                case Refuse():
                    raise AssertionError("a refusal is raised")
                case _:
                    assert_never(action)

    def tick(self, on_event: Callable[[Event], None] = _quiet) -> Action:
        """Look once, and do at most one thing; returns what was done, or what is waited for.

        A fault of the network is something to wait for: it costs no budget.

        Raises:
            Edited: Code or configuration changed in mid-chain.
            KgoError: Something that waiting doesn't mend.
        """
        self._tell = on_event
        try:
            action = self._act(self._decide())
            self._faults = 0
        except (Unavailable, Throttled, BadAnswer) as error:
            action = self._fault(error)
        if isinstance(action, Wait):
            if self._told is None or (self._told.why, self._told.message) != (action.why, action.message):
                self._tell(Waiting(action))
            self._told = action
        else:
            self._told = None
        return action

    def observe(self) -> Observation:
        """Look at everything that is open, and write down what became of it; nothing is pushed.

        Raises:
            KgoError: Kaggle can't be asked, or the chain can't be steered from here.
        """
        if self._book is None:
            self._book = self._open()
        self._look(self._book)
        self._snapshot = None if self._book.open else snapshot(self.experiment)
        return self._book.observation(self._snapshot)

    def _open(self) -> Book:
        key = ChainKey(self._address, self._kaggle.owner(), self.experiment.kernel.slug)
        record, take_over = self._journal.chain(key), self._options.take_over
        if record is None:
            files = snapshot(self.experiment)
            return rebuild(
                self._kaggle, self._journal, key, files, self._policy, self._clock, self._tell, take_over=take_over
            )
        book = Book(self._journal, record, self._policy, self._clock)
        if not self._options.new:  # a chain that starts over doesn't care what became of its versions
            for half in Half:
                sync(self._kaggle, book, half, self._clock.now(), self._tell, take_over=take_over)
        return book

    def _look(self, book: Book) -> None:
        now = self._clock.now()
        newest = book.attempts[-1].number if book.attempts else 0
        for attempt in book.open:
            if attempt.phase is Phase.INTENDED:
                sync(self._kaggle, book, attempt.kernel, now, self._tell)
                still = book.get(attempt.number)
                if still is not None and still.phase is Phase.INTENDED and still.absent_since is None:
                    book.put(replace(still, absent_since=now), "absent", f"{book.ref(still)} doesn't hold it yet")
        for attempt in book.open:
            if attempt.phase is Phase.LIVE:
                seen = look(self._kaggle, book.ref(attempt), attempt, now, past=attempt.number < newest)
                if seen != attempt:
                    self._note(book, attempt, seen)

    def _note(self, book: Book, before: Attempt, after: Attempt) -> None:
        ref = book.ref(after)
        if after.phase is Phase.ENDED:
            book.put(after, f"ended {after.outcome}", after.message or after.reason)
            book.park(None)
        else:
            book.put(after, f"status {after.status}")
        if after.status is not before.status:
            self._tell(StatusSeen(after, ref))
        if after.phase is Phase.ENDED:
            self._ended_here = True
            self._tell(Ended(after, ref))

    def _decide(self) -> Action:
        observation, now = self.observe(), self._clock.now()
        if not self._granted:
            files = self._snapshot or snapshot(self.experiment)
            self._book = grant(
                self._options, self.book, files, self._kaggle, self._journal, self._clock, self._tell
            )  # fmt: skip
            self._granted = True
            observation = self._book.observation(self._snapshot)
        action = decide(observation, now)
        if self._policy.gpu and _hangs_on_quota(action):
            action = decide(replace(observation, quota=self._kaggle.quota()), now)
        return action

    def _act(self, action: Action) -> Action:
        match action:
            case Push():
                now, book = self._clock.now(), self.book
                if not action.again and sync(self._kaggle, book, action.kernel, now, self._tell):
                    return Wait(now, Why.SESSION)  # somebody else was faster: look again
                pusher = Pusher(self.experiment, self._kaggle, book, self._clock, self._tell)
                return pusher.push(action, self._snapshot or snapshot(self.experiment)) or action
            case Refuse():
                raise _edited(f"Changed since this chain began: {', '.join(action.changed)}.")
            case Finish() if action.changed and self._policy.chained and not self._ended_here:
                # Who edited a finished training and calls again doesn't want to be told that it's finished.
                raise _edited(f"Changed since this chain reached its target: {', '.join(action.changed)}.")
            case Wait() | Finish() | Fail() | Stop():
                return action
            case _:
                assert_never(action)

    def _fault(self, error: Unavailable | Throttled | BadAnswer) -> Wait:
        self._faults += 1
        if isinstance(error, BadAnswer) and self._faults >= BAD_ANSWERS:
            raise error
        wait_s = fault_interval(self._faults)
        if isinstance(error, Throttled) and error.retry_after_s is not None:
            wait_s = max(wait_s, error.retry_after_s)
        return Wait(self._clock.now() + wait_s, Why.NETWORK, error.message)


def _hangs_on_quota(action: Action) -> bool:
    match action:
        case Push():
            return not action.again
        case Wait():
            return action.why is Why.QUOTA
        case _:
            return False


def _edited(message: str) -> Edited:
    return Edited(
        message,
        hint="--accept-changes goes on from the last checkpoint (exactness isn't claimed across the edit); "
        "--new starts over; or undo the edit.",
    )
