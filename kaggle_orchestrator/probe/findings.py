"""What was found, and by what."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kaggle_orchestrator.profile import Profile


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting.

    Attributes:
        name: As in :class:`kaggle_orchestrator.profile.Profile`.
        value: None if it couldn't be measured.
        evidence: What was seen, or why nothing was.
    """

    name: str
    value: Any
    evidence: str


def profile_of(findings: Iterable[Finding], endpoint: str, now: float) -> Profile:
    """The profile that they make."""
    values = {f.name: f.value for f in findings if f.value is not None}
    return Profile(endpoint=endpoint, measured_at=now, **values)
