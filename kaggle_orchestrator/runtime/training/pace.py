"""When a checkpoint is due and when it is time to leave: pure arithmetic over times it is handed.

Automatic saving costs about 1 % of the time, and a kill loses about 1 % of a leg, at most; the first save comes
after a few steps, so that a checkpoint that can't be saved or loaded shows at once.
"""

from dataclasses import dataclass

FIRST_STEPS = 5
FIRST_S = 10.0
FLOOR_S = 1.0
COST = 0.01


@dataclass(slots=True)
class Pace:
    """All times in seconds of a monotonic clock, but for ``deadline``, which is wall time.

    Attributes:
        save_every_s: Fixed interval between saves, or None for automatic.
        deadline: Seconds since the epoch at which training should have left, or None.
        started: When training began in this process.
        slowest_step_s: The longest time between two points at which it could have been saved; it includes data wait
            and evaluation, and not the first step, which warms up.
        slowest_save_s: The longest save.
    """

    save_every_s: float | None
    deadline: float | None
    started: float
    slowest_step_s: float = 0.0
    slowest_save_s: float = 0.0
    _last_point: float | None = None
    _last_save: float | None = None
    _last_save_s: float = 0.0

    def reached_point(self, now: float) -> None:
        """A point at which the training can be saved and left."""
        if self._last_point is not None:
            self.slowest_step_s = max(self.slowest_step_s, now - self._last_point)
        self._last_point = now

    def saved(self, now: float, took_s: float) -> None:
        """A save ended at ``now``; its time isn't the step's."""
        self._last_save, self._last_save_s = now, took_s
        self._last_point = now
        self.slowest_save_s = max(self.slowest_save_s, took_s)

    def save_due(self, now: float, steps: int) -> bool:
        """Whether to save now; ``steps`` were trained in this process."""
        if self._last_save is None:
            early = steps >= FIRST_STEPS or now - self.started >= FIRST_S
            return early or (self.save_every_s is not None and now - self.started >= self.save_every_s)
        return now - self._last_save >= self._interval_s(now)

    def leave_due(self, now: float, wall: float) -> bool:
        """Whether the next point, and the save there, might come after the deadline.

        Args:
            now: Seconds of the monotonic clock.
            wall: The same moment, seconds since the epoch.
        """
        if self.deadline is None:
            return False
        since = 0.0 if self._last_point is None else now - self._last_point
        return wall + max(0.0, self.slowest_step_s - since) + self.slowest_save_s >= self.deadline

    def _interval_s(self, now: float) -> float:
        if self.save_every_s is not None:
            return self.save_every_s
        return max(FLOOR_S, self._last_save_s / COST, (now - self.started) * COST)
