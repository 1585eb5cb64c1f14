"""The only place, besides the in-session code, that asks the time or sleeps; everything else is handed a clock."""

import time
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Wall time in seconds since the epoch, and waiting."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(max(0.0, seconds))


@dataclass(slots=True)
class FakeClock:
    """A clock that moves only by sleeping. Public, so that users' tests can have it too."""

    time: float = 1_800_000_000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Move on without waiting."""
        self.slept.append(seconds)
        self.time += max(0.0, seconds)
