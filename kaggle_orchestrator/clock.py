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


class ScaledClock:
    """A clock that runs ``factor`` times faster than the machine's from ``start`` on; waiting is as much shorter."""

    def __init__(self, start: float, factor: float) -> None:
        self._start = start
        self._began = time.time()
        self._factor = factor

    def now(self) -> float:
        """Seconds since the epoch, on this clock."""
        return self._start + (time.time() - self._began) * self._factor

    def sleep(self, seconds: float) -> None:
        """Wait until so many seconds have gone by on this clock."""
        time.sleep(max(0.0, seconds) / self._factor)


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
