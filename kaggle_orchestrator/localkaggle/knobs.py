"""The knobs: one for each point on which reports of Kaggle contradict each other, and for its limits and its moods."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.profile import (
    ContainerCancel,
    Disposition,
    FirstMount,
    MountLayout,
    QueuedStatus,
    QuickSave,
    SelfMount,
)


class BoxMode(StrEnum):
    """How sessions are kept apart from the machine."""

    AUTO = "auto"
    """Namespaces where they are allowed."""
    OFF = "off"
    """Session variables only."""


class Verified(StrEnum):
    """What the accounts have proven of themselves."""

    ALL = "all"
    NO_PHONE = "no_phone"
    """Pushes are accepted, but sessions get neither GPU nor internet, without a word."""
    NOTHING = "nothing"
    """Pushes are refused with 403."""


class ErrorBody(StrEnum):
    """The form of an error's body."""

    FLAT = "flat"
    """``{"code": …, "message": …}``, which the official client understands."""
    NESTED = "nested"
    """``{"error": {"code": …, "message": …, "status": …}}``"""


class RetryAfter(StrEnum):
    """Whether a throttled caller is told how long to wait."""

    SECONDS = "seconds"
    DATE = "date"
    NONE = "none"


class Overflow(StrEnum):
    """What becomes of an output with too many files or bytes."""

    LOSE = "lose"
    """Only the first files, by name, are kept."""
    ZIP = "zip"
    """All are listed, but ``_output_.zip`` alone is mounted."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """One setting of all knobs. Seconds are the world's: see ``clock_factor``.

    Attributes:
        output_after_error: After a session that failed.
        output_after_kill: After the time limit.
        output_after_cancel: After a cancel by hand.
        mount_layout: Where sources appear.
        self_mount: A kernel among its own sources.
        first_mount: A newly attached source.
        quick_save: What a version that was saved without running does to the kernel's mount.
        container_cancel: Whether ``KAGGLE_CONTAINER_NAME`` holds the number to cancel by.
        queued_status: How QUEUED is told.
        sigterm_before_kill_s: SIGTERM so long before the SIGKILL of the time limit; 0: none.
        queue_s: A session waits so long for its machine.
        stale_status_s: For so long after a push, the status without a version is the one of the version before.
        denied_s: For so long a new kernel is denied (403) to everyone who asks.
        status_lag_s: A session that is over reads RUNNING for so long.
        output_lag_s: Its output is empty for so long after that.
        cancel_save_s: A cancelled session reads CANCEL_REQUESTED for so long.
        dataset_lag_s: A new dataset version becomes the current one so long after its upload.
        log_drop_s: A live log's connection is dropped after so long; 0: never.
        calls_per_minute: More of an account's calls are answered 429; 0: no limit.
        retry_after: What a 429 says of the wait.
        error_body: The form of errors.
        latency_ms: Each request is answered so much later, in real milliseconds.
        verified: What accounts have proven of themselves.
        gpu_sessions, cpu_sessions: An account's cap.
        gpu_quota_hours: An account's weekly quota.
        max_session_s: Kaggle's 12 h, in seconds.
        working_bytes, working_files: What ``/kaggle/working`` may hold at the end.
        overflow: What becomes of more.
        memory_bytes: A session with more in memory is killed; 0: no limit.
        url_ttl_s: Seconds after which a signed download URL expires.
        log_bytes: Size at which a session's log is cut in its middle.
        clock_factor: The world's clock runs so many times faster than the machine's.
        seed: Of everything that happens by chance.
        box: How sessions are kept apart from the machine.
    """

    output_after_error: Disposition = Disposition.DROP
    output_after_kill: Disposition = Disposition.DROP
    output_after_cancel: Disposition = Disposition.DROP
    mount_layout: MountLayout = MountLayout.BOTH
    self_mount: SelfMount = SelfMount.DROP
    first_mount: FirstMount = FirstMount.FULL
    quick_save: QuickSave = QuickSave.KEEP
    container_cancel: ContainerCancel = ContainerCancel.WORKS
    queued_status: QueuedStatus = QueuedStatus.NAMED
    sigterm_before_kill_s: float = 0.0
    queue_s: float = 0.0
    stale_status_s: float = 0.0
    denied_s: float = 0.0
    status_lag_s: float = 0.0
    output_lag_s: float = 0.0
    cancel_save_s: float = 0.0
    dataset_lag_s: float = 0.0
    log_drop_s: float = 0.0
    calls_per_minute: float = 0.0
    retry_after: RetryAfter = RetryAfter.SECONDS
    error_body: ErrorBody = ErrorBody.FLAT
    latency_ms: float = 0.0
    verified: Verified = Verified.ALL
    gpu_sessions: int = 2
    cpu_sessions: int = 5
    gpu_quota_hours: float = 30.0
    max_session_s: float = 43_200.0
    working_bytes: int = 20_000_000_000
    working_files: int = 500
    overflow: Overflow = Overflow.LOSE
    memory_bytes: int = 0
    url_ttl_s: float = 3600.0
    log_bytes: int = 16 << 20
    clock_factor: float = 1.0
    seed: int = 0
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
        if new.get("clock_factor") == 0:
            raise UsageError("knob clock_factor: time can't stand still")
        return replace(self, **new)

    def remembered(self, values: object) -> "Knobs":
        """These knobs as a world noted them, less what another version of kgo noted that this one doesn't know."""
        knobs = self
        for name, value in values.items() if isinstance(values, Mapping) else ():
            with suppress(UsageError):
                knobs = knobs.changed({name: value})
        return knobs

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
