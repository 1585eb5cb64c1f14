"""What `kgo probe` measured of one Kaggle: how it behaves where reports of it contradict each other.

A setting that wasn't measured is None, and whoever reads it must be right both ways.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable

SCHEMA = 1


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


class SelfMount(StrEnum):
    """What becomes of a kernel among its own sources."""

    DROP = "drop"
    """It's left out without a word."""
    MOUNT = "mount"
    """Its last COMPLETE version is mounted like another kernel's."""


class FirstMount(StrEnum):
    """Whether a newly attached source is there in the first session that has it."""

    FULL = "full"
    EMPTY = "empty"
    """It isn't mounted; the next session has it."""


class QuickSave(StrEnum):
    """What a version that was saved without running does to the mount of the kernel's output."""

    KEEP = "keep"
    """The last COMPLETE version is mounted all the same."""
    MASK = "mask"
    """Nothing is mounted until another version has run."""


class ContainerCancel(StrEnum):
    """Whether a session can be cancelled by the number in its ``KAGGLE_CONTAINER_NAME``."""

    WORKS = "works"
    REFUSED = "refused"


class QueuedStatus(StrEnum):
    """How the status of a session that waits for its machine is told."""

    NAMED = "named"
    OMITTED = "omitted"
    """Left out, as protocol buffers leave out an enumeration's zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One Kaggle's settings, each None where it wasn't measured.

    Attributes:
        endpoint: The address that was measured.
        measured_at: When, in seconds since the epoch.
        output_after_error: After a session that failed.
        output_after_kill: After the time limit.
        output_after_cancel: After a cancel by hand.
        mount_layout: Where sources appear.
        self_mount: A kernel among its own sources.
        first_mount: A newly attached source.
        quick_save: A version that was saved without running.
        container_cancel: Cancelling by ``KAGGLE_CONTAINER_NAME``.
        queued_status: The status of a session that waits.
        sigterm_before_kill_s: Seconds between SIGTERM and SIGKILL at the time limit; 0: no SIGTERM.
    """

    endpoint: str = ""
    measured_at: float = 0.0
    output_after_error: Disposition | None = None
    output_after_kill: Disposition | None = None
    output_after_cancel: Disposition | None = None
    mount_layout: MountLayout | None = None
    self_mount: SelfMount | None = None
    first_mount: FirstMount | None = None
    quick_save: QuickSave | None = None
    container_cancel: ContainerCancel | None = None
    queued_status: QueuedStatus | None = None
    sigterm_before_kill_s: float | None = None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile.

        Raises:
            UsageError: There is none, or it isn't one.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA:
                raise Malformed(f"expected a profile of schema {SCHEMA}")
            return from_jsonable(cls, data)
        except OSError as error:
            raise UsageError(f"The profile {path} can't be read: {error.strerror or error}.") from error
        except (ValueError, RecursionError, Malformed) as error:
            raise UsageError(f"{path} is not a profile: {error}", hint="`kgo probe` makes one.") from error

    def dumps(self) -> str:
        """As JSON, for :meth:`load`."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2) + "\n"

    def measured(self) -> Mapping[str, Any]:
        """The measured settings by name: each is also a knob of the local Kaggle."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("endpoint", "measured_at")}
        return {name: value for name, value in values.items() if value is not None}
