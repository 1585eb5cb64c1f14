"""Signs of life: a report, a line of output, or, from a script that makes no reports, work done by its processes.

A process that waits for ever uses no time of a CPU; one that computes in silence isn't hung. A training that does
report is judged by its reports and output alone: ranks that wait for each other spin.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kaggle_orchestrator.runtime.supervisor.process import Training

BUSY = 0.01
"""Part of one CPU that counts as working."""


@dataclass(slots=True)
class Heartbeat:
    """Judges whether training is alive; times are monotonic seconds."""

    hung_s: float | None
    training: Training
    monotonic: Callable[[], float] = time.monotonic
    _heard_at: float = field(init=False)
    _sampled_at: float = field(init=False)
    _cpu_s: float = 0.0

    def __post_init__(self) -> None:
        self._heard_at = self._sampled_at = self.monotonic()

    def beat(self) -> None:
        """It gave a sign."""
        self._heard_at = self.monotonic()

    def silent(self, output_at: float, reports: bool) -> bool:
        """Whether it has been silent for too long.

        Args:
            output_at: When it last printed something.
            reports: Whether it has made reports.
        """
        if self.hung_s is None:
            return False
        now = self.monotonic()
        self._heard_at = max(self._heard_at, output_at)
        if now - self._sampled_at >= self.hung_s / 10:
            cpu_s = sum(p.cpu_s for p in self.training.tree())
            if not reports and cpu_s - self._cpu_s >= BUSY * (now - self._sampled_at):
                self._heard_at = now
            self._cpu_s, self._sampled_at = cpu_s, now
        return now - self._heard_at >= self.hung_s
