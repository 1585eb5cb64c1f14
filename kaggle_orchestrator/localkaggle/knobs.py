"""The knobs: one for each point on which reports of Kaggle contradict each other, and for its limits."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from kaggle_orchestrator.errors import UsageError


class Disposition(StrEnum):
    """What becomes of the output of a session that didn't end well."""

    DROP = "drop"
    KEEP = "keep"


class MountLayout(StrEnum):
    """Where a source appears below ``/kaggle/input``."""

    FLAT = "flat"
    """``<slug>``"""
    OWNER = "owner"
    """``notebooks/<owner>/<slug>``, ``datasets/<owner>/<slug>``, ``competitions/<slug>``"""
    BOTH = "both"


class BoxMode(StrEnum):
    """How sessions are kept apart from the machine."""

    AUTO = "auto"
    """Namespaces where they are allowed."""
    OFF = "off"
    """Session variables only."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """One setting of all knobs.

    Attributes:
        output_after_error: After a session that failed.
        output_after_kill: After the time limit.
        output_after_cancel: After a cancel by hand.
        mount_layout: Where sources appear.
        gpu_sessions, cpu_sessions: An account's cap.
        gpu_quota_hours: An account's weekly quota.
        max_session_s: Kaggle's 12 h, in seconds.
        url_ttl_s: Seconds after which a signed download URL expires.
        log_bytes: Size at which a session's log is cut in its middle.
        box: How sessions are kept apart from the machine.
    """

    output_after_error: Disposition = Disposition.DROP
    output_after_kill: Disposition = Disposition.DROP
    output_after_cancel: Disposition = Disposition.DROP
    mount_layout: MountLayout = MountLayout.BOTH
    gpu_sessions: int = 2
    cpu_sessions: int = 5
    gpu_quota_hours: float = 30.0
    max_session_s: float = 43_200.0
    url_ttl_s: float = 3600.0
    log_bytes: int = 16 << 20
    box: BoxMode = BoxMode.AUTO

    def changed(self, values: Mapping[str, object]) -> "Knobs":
        """These knobs with some of them set anew; values are strings, or of the knob's own type.

        Raises:
            UsageError: No such knob, or not a value of it.
        """
        kinds = {f.name: type(getattr(self, f.name)) for f in fields(self)}
        new: dict[str, Any] = {}
        for name, value in values.items():
            if name not in kinds:
                raise UsageError(f"no knob {name!r}; there are: {', '.join(sorted(kinds))}")
            try:
                new[name] = kinds[name](str(value))
            except ValueError as error:
                allowed = kinds[name]
                want = ", ".join(allowed) if issubclass(allowed, StrEnum) else f"a number ({allowed.__name__})"
                raise UsageError(f"knob {name}: {value!r} is not {want}") from error
            if isinstance(new[name], int | float) and not 0 <= new[name] < 1e12:
                raise UsageError(f"knob {name}: {value!r} is out of range")
        return replace(self, **new)

    def jsonable(self) -> dict[str, Any]:
        """By name."""
        return asdict(self)


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """``name=value`` texts as a mapping.

    Raises:
        UsageError: One has no ``=``.
    """
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"knob {setting!r}: expected NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
