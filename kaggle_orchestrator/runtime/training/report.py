"""Tells the supervisor how far training is, through ``protocol.Progress``; outside a session it tells nobody.

A report that can't be written never stops a training: the supervisor has its own eye on the disk.
"""

import math
from contextlib import suppress
from pathlib import Path

from kaggle_orchestrator.protocol import Progress
from kaggle_orchestrator.protocol.progress import SAVING

EVERY_S = 1.0


class Reporter:
    """Writes reports and the marker of an open checkpoint into ``control``."""

    def __init__(self, control: Path | None) -> None:
        self._control = control
        self._last = -math.inf

    def due(self, now: float) -> bool:
        """Whether the last report is old enough for another; ``now`` is seconds of a monotonic clock."""
        return self._control is not None and now - self._last >= EVERY_S

    def write(self, progress: Progress, now: float) -> None:
        """Write a report now."""
        if self._control is None:
            return
        self._last = now
        with suppress(OSError):
            progress.write(self._control)

    def saving(self, under_way: bool) -> None:
        """Set or remove the marker that keeps the supervisor from killing a half-written checkpoint."""
        if self._control is None:
            return
        with suppress(OSError):
            if under_way:
                (self._control / SAVING).touch()
            else:
                (self._control / SAVING).unlink(missing_ok=True)
