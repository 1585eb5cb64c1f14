"""The one way in which a step before training says that there is nothing to run."""

from kaggle_orchestrator.protocol import KgoError, Outcome


class Unfit(KgoError):
    """The attempt ends before training begins.

    Attributes:
        outcome: The verdict.
        reason: A short word behind it.
    """

    def __init__(self, outcome: Outcome, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome
        self.reason = reason
