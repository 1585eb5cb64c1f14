"""An experiment: a validated ``kgo.toml`` and the code it names. Frozen; durations in seconds, sizes in bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kaggle_orchestrator.experiment.names import file_at
from kaggle_orchestrator.models import Accelerator

MAX_SESSION_S = 12 * 3600
"""Kaggle's limit for a GPU or CPU session."""


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """``[kernel]``. ``title`` slugifies to ``slug``; the owner is the authenticated user."""

    slug: str
    title: str
    template: str
    accelerator: Accelerator
    internet: bool = False
    private: bool = True
    datasets: tuple[str, ...] = ()
    competitions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    docker_image: str | None = None


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """``[train]``. ``entry`` and the globs are POSIX paths below the experiment's folder; ``include`` None means
    what git tracks (without git: all but the deny-list). ``brought``: the entry is the template's own."""

    entry: str
    brought: bool = False
    args: tuple[str, ...] = ()
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    launch: str = "python"
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """``[chain]``; an experiment without one is a one-off."""

    session_limit_s: float = MAX_SESSION_S
    stop_before_s: float = 600.0
    quota_reserve_s: float = 1800.0
    max_legs: int = 20
    max_gpu_hours: float = 60.0
    retries: int = 3
    min_leg_s: float = 1800.0


class OnMismatch(StrEnum):
    """What a leg does that doesn't go on exactly."""

    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """``[checkpoint]``. ``save_every_s`` None means ``"auto"``."""

    keep: int = 2
    save_every_s: float | None = None
    paths: tuple[str, ...] = ()
    done: str | None = None
    deterministic: bool = False
    on_mismatch: OnMismatch = OnMismatch.WARN


@dataclass(frozen=True, slots=True)
class GuardsConfig:
    """``[guards]``."""

    hung_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class PullConfig:
    """``[pull]``. ``dir`` lies below the experiment's folder unless absolute; no patterns means the default."""

    dir: str = "outputs"
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """``[local]``: the interpreter of the local Kaggle's sessions, and folders that stand in for sources."""

    python: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything in a ``kgo.toml``.

    Attributes:
        root: Absolute path of its folder, links resolved.
        chain: None for a one-off.
        file: Name of the file in that folder.
    """

    root: Path
    kernel: KernelConfig
    train: TrainConfig
    chain: ChainConfig | None = None
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    pull: PullConfig = field(default_factory=PullConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    file: str = "kgo.toml"

    def place(self, path: str) -> Path:
        """The file or folder that a key names: below the experiment's folder unless it's absolute."""
        return file_at(self.root, path)
