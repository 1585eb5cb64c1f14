"""What the local Kaggle's world remembers, one frozen record each."""

from dataclasses import dataclass

from kaggle_orchestrator.models import KernelRef, SessionStatus


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel; ``current`` is the number of its latest version."""

    id: int
    ref: KernelRef
    title: str
    private: bool
    created: float
    current: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What a push set, besides the source. Sources are those that Kaggle accepted."""

    language: str
    kernel_type: str
    gpu: bool
    internet: bool
    machine_shape: str | None
    docker_image: str | None
    datasets: tuple[str, ...]
    competitions: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a kernel."""

    kernel: Kernel
    number: int
    source: str
    settings: Settings
    created: float


@dataclass(frozen=True, slots=True)
class Session:
    """The execution of one version. Times in seconds since the epoch; ``cancelled``: when that was asked for."""

    id: int
    kernel: KernelRef
    version: int
    gpu: bool
    limit_s: float
    created: float
    status: SessionStatus
    message: str
    started: float | None
    ended: float | None
    cancelled: float | None = None


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file of a dataset, by its POSIX path."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Collection:
    """A dataset, whatever its version, that was made through the API."""

    id: int
    owner: str
    slug: str
    title: str
    private: bool
    license: str


@dataclass(frozen=True, slots=True)
class Blob:
    """A file on its way into a dataset; ``size`` as it was announced, None if it wasn't."""

    token: str
    owner: str
    name: str
    size: int | None
    created: float


@dataclass(frozen=True, slots=True)
class Dataset:
    """One version of a dataset; a competition's owner is ``competitions``. It's the current one from ``current_at``."""

    owner: str
    slug: str
    version: int
    digest: str
    files: tuple[DatasetFile, ...]
    created: float
    current_at: float


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that sessions run with, and the folders it needs (``sys.prefix``, ``sys.base_prefix``)."""

    python: str
    prefixes: tuple[str, ...]
