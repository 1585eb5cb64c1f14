"""The nouns that layers hand to each other; frozen, without behaviour that needs a network."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from kaggle_orchestrator.errors import UsageError

_REF = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)/([A-Za-z0-9][A-Za-z0-9_-]*)")


@dataclass(frozen=True, slots=True, order=True)
class KernelRef:
    """``owner/slug``."""

    owner: str
    slug: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``owner/slug``.

        Raises:
            UsageError: It isn't one.
        """
        match = _REF.fullmatch(text)
        if not match:
            raise UsageError(f"{text!r} is not a kernel: expected owner/slug.")
        return cls(match[1], match[2])

    def __str__(self) -> str:
        return f"{self.owner}/{self.slug}"


@dataclass(frozen=True, slots=True, order=True)
class DatasetRef:
    """``owner/slug``."""

    owner: str
    slug: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``owner/slug``.

        Raises:
            UsageError: It isn't one.
        """
        match = _REF.fullmatch(text)
        if not match:
            raise UsageError(f"{text!r} is not a dataset: expected owner/slug.")
        return cls(match[1], match[2])

    def __str__(self) -> str:
        return f"{self.owner}/{self.slug}"


class SessionStatus(StrEnum):
    """Kaggle's words for a session's state."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ERROR = "ERROR"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    CANCEL_ACKNOWLEDGED = "CANCEL_ACKNOWLEDGED"
    NEW_SCRIPT = "NEW_SCRIPT"

    @property
    def terminal(self) -> bool:
        """Whether the session has ended."""
        return self in (SessionStatus.COMPLETE, SessionStatus.ERROR, SessionStatus.CANCEL_ACKNOWLEDGED)


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Status of one version's session, with Kaggle's failure message (empty if none)."""

    status: SessionStatus
    failure_message: str = ""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What ``kernel.accelerator`` asks for.

    Attributes:
        name: As in kgo.toml, e.g. ``T4x2``.
        machine_shape: As Kaggle's API wants it, or None for CPU.
        gpus: How many GPUs that is.
    """

    name: str
    machine_shape: str | None
    gpus: int


class KernelType(StrEnum):
    """What a kernel's source is."""

    SCRIPT = "script"
    NOTEBOOK = "notebook"


@dataclass(frozen=True, slots=True)
class PushRequest:
    """All that a push says. Sources are ``owner/slug`` names (competitions: a slug).

    ``session_timeout_s`` None leaves Kaggle's maximum (12 h; Kaggle wants a number below it). ``run`` False saves a
    version without running it.
    """

    ref: KernelRef
    title: str
    source: str
    kernel_type: KernelType = KernelType.SCRIPT
    language: str = "python"
    private: bool = True
    internet: bool = False
    machine_shape: str | None = None
    datasets: tuple[str, ...] = ()
    competitions: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    docker_image: str | None = None
    session_timeout_s: int | None = None
    run: bool = True


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """What an accepted push made."""

    ref: KernelRef
    version: int
    url: str


@dataclass(frozen=True, slots=True)
class KernelVersion:
    """The source of one version, and the number of the latest."""

    ref: KernelRef
    source: str
    current_version: int


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file in a version's output; the URL is signed and expires."""

    name: str
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class OutputListing:
    """The whole listing (all pages) of a version's output, and its log's lines."""

    files: tuple[OutputFile, ...]
    log: tuple[str, ...]

    @property
    def by_name(self) -> Mapping[str, OutputFile]:
        """The files by name."""
        return {f.name: f for f in self.files}


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A piece of a session's log, ``time`` seconds after its start; ``stream`` is ``stdout`` or ``stderr``."""

    stream: str
    time: float
    data: str


@dataclass(frozen=True, slots=True)
class Quota:
    """The weekly GPU quota in seconds; ``refresh_at`` in seconds since the epoch, None if Kaggle doesn't say."""

    used_s: float
    reserved_s: float
    total_s: float
    refresh_at: float | None

    @property
    def free_s(self) -> float:
        """What a new session can use."""
        return max(0.0, self.total_s - self.used_s - self.reserved_s)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A local file whose sha256 was checked; ``name`` is its path in the output."""

    name: str
    path: str
    sha256: str
    size: int
