"""How long to wait and how often to try: only reads are ever repeated, a push never is."""

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import BadAnswer, Throttled, Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits on calls and downloads; times in seconds.

    Attributes:
        connect_s: Until a connection stands.
        read_s: Between two pieces of an answer. The official client has none and hangs on a silent server.
        push_read_s: The same for a push, which Kaggle may take long to answer.
        total_s: For the whole answer to one call, however it trickles in.
        attempts: Tries of a read, and of a file without progress between them.
        first_wait_s: Before the second try; doubled from then on, with jitter.
        longest_wait_s: No wait is longer. When Kaggle asks for more, the caller is told instead.
        connections: Files downloaded at a time, one connection each.
        pages: Pages of a listing; more are taken for a listing that never ends.
        silence_s: A live log without a new record for so long is given up; a session may be silent for all its hours.
        calls_per_minute: kgo's own budget of API calls (not of downloads); None: no limit.
    """

    connect_s: float = 10.0
    read_s: float = 60.0
    push_read_s: float = 180.0
    total_s: float = 600.0
    attempts: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    connections: int = 32
    pages: int = 500
    silence_s: float = 13 * 3600.0
    calls_per_minute: float | None = None

    def wait(self, tries: int, rng: random.Random) -> float:
        """Seconds to wait after ``tries`` failures (from 1): doubling, with jitter of a half."""
        return min(self.longest_wait_s, self.first_wait_s * 2.0 ** (tries - 1)) * rng.uniform(0.5, 1.0)


class Pace:
    """Spreads calls, from whatever thread, so that no minute has more than its budget."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self._most = policy.calls_per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: deque[float] = deque()

    def wait(self) -> None:
        """Wait until one more call fits."""
        if self._most is None:
            return
        with self._lock:  # held while waiting: the others' turn comes later still
            while (left := self._left(self._clock.now())) > 0:
                self._clock.sleep(left)
            self._calls.append(self._clock.now())

    def _left(self, now: float) -> float:
        while self._calls and self._calls[0] <= now - 60.0:
            self._calls.popleft()
        full = self._most is not None and len(self._calls) >= max(1, int(self._most))
        return self._calls[0] + 60.0 - now if full else 0.0


class Retry:
    """Repeats reads that failed in a way that may pass."""

    def __init__(self, policy: Policy, clock: Clock, rng: random.Random) -> None:
        self.policy = policy
        self._clock = clock
        self._rng = rng

    def __call__(self, read: Callable[[], T]) -> T:
        """Call ``read`` until it answers, at most ``policy.attempts`` times; then its last error is raised."""
        attempts = Retrying(
            stop=stop_after_attempt(self.policy.attempts),
            retry=retry_if_exception(self.may_pass),
            wait=self._wait,
            sleep=self._clock.sleep,
            reraise=True,
        )
        return attempts(read)

    def may_pass(self, error: BaseException) -> bool:
        """Whether the same read may succeed after a bearable wait."""
        if isinstance(error, Throttled):
            return error.retry_after_s is None or error.retry_after_s <= self.policy.longest_wait_s
        return isinstance(error, (Unavailable, BadAnswer))

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._clock.sleep(seconds)

    def pause(self, error: BaseException | None, tries: int, stop: threading.Event | None = None) -> None:
        """Wait as ``error`` asks, or else as ``tries`` failures in a row suggest; no longer once ``stop`` is set."""
        left = self._seconds(error, tries)
        while left > 0 and not (stop and stop.is_set()):
            self._clock.sleep(min(1.0, left))
            left -= 1.0

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return self._seconds(error, state.attempt_number)

    def _seconds(self, error: BaseException | None, tries: int) -> float:
        seconds = self.policy.wait(tries, self._rng)
        if isinstance(error, Throttled) and error.retry_after_s is not None:
            return error.retry_after_s + seconds / 10  # never early, and not all callers in the same instant
        return seconds
