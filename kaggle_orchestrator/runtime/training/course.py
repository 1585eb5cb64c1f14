"""How far a training is: counted in steps and epochs, the same in whichever leg it is asked."""

from dataclasses import dataclass
from enum import StrEnum


class Loop(StrEnum):
    """Which loop trains."""

    EPOCHS = "epochs"
    STEPS = "steps"


@dataclass(slots=True)
class Course:
    """Where a training is and where it goes.

    Attributes:
        loop: Its loop.
        total: Epochs or steps to train.
        step: Global steps done.
        epoch: Epochs done, so also the number of the current one, from 0; 0 in a loop over steps.
        steps_per_epoch: Known from the first whole epoch on.
    """

    loop: Loop
    total: int
    step: int = 0
    epoch: int = 0
    steps_per_epoch: int | None = None

    @property
    def complete(self) -> bool:
        """Whether all of it is trained."""
        return (self.step if self.loop is Loop.STEPS else self.epoch) >= self.total

    @property
    def current_epoch(self) -> int | None:
        """The epoch that the last step belongs to, or None without epochs."""
        return None if self.loop is Loop.STEPS else min(self.epoch, self.total - 1)

    def target_step(self) -> int | None:
        """The step at which it is complete, as far as that is known."""
        if self.loop is Loop.STEPS:
            return self.total
        return None if self.steps_per_epoch is None else self.steps_per_epoch * self.total
