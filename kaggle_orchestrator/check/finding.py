"""What a check has to say: where, how bad, what happens otherwise, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How sure and how bad."""

    ERROR = "error"
    """It will fail; ``kgo check`` exits 1."""
    WARNING = "warning"
    """It will probably cost time or results."""
    INFO = "info"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        id: The rule's id, by which it can be switched off.
        where: ``train.py:12``, a key of kgo.toml, or empty for the whole kernel.
        message: What is so and what comes of it.
        fix: What to do about it.
    """

    id: str
    severity: Severity
    message: str
    fix: str
    where: str = ""
