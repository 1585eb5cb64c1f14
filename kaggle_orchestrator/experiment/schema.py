"""The shape of ``kgo.toml``: each key, its type, and what its value alone must satisfy.

A key that the design names and this version can't act on is here too, and refused by name unless it is set to its
default: silently passing over it would promise what isn't done.
"""

import math
from collections.abc import Callable
from datetime import date, time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from kaggle_orchestrator.experiment.model import MAX_SESSION_S, OnMismatch
from kaggle_orchestrator.experiment.values import (
    ACCELERATORS,
    format_duration,
    glob_fault,
    parse_accelerator,
    parse_competition,
    parse_duration,
    parse_model,
    parse_owned,
    parse_size,
    shown,
    slug_fault,
)
from kaggle_orchestrator.models import Accelerator


class Table(BaseModel):
    """A table: no conversions between types, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True)


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    if not value.isprintable():
        raise ValueError("holds a character that can't be printed")
    return value


def _argument(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character, which no command line can carry")
    return value


def _title(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be one line of printable text")
    if not 5 <= len(value) <= 50:
        raise ValueError(f"Kaggle wants 5 to 50 characters, this has {len(value)}")
    return value


def _slug(value: str) -> str:
    if fault := slug_fault(value):
        raise ValueError(fault)
    return value


def _accelerator(value: object) -> Accelerator:
    if not isinstance(value, str):
        raise ValueError(f"expected text in quotes, got {shown(value)}")
    return parse_accelerator(value)


def _glob(value: str) -> str:
    if fault := glob_fault(value):
        raise ValueError(fault)
    return value


def _path(value: str) -> str:
    """A file below the experiment's folder."""
    if fault := glob_fault(value):
        raise ValueError(fault)
    return "/".join(p for p in value.split("/") if p not in ("", "."))


def _place(value: str) -> str:
    """A file or folder anywhere on this machine; ``~`` is HOME."""
    value = _text(value)
    if not value.startswith("~"):
        return value
    try:
        return str(Path(value).expanduser())
    except RuntimeError as error:
        raise ValueError(f"{shown(value)}: there is no such home folder") from error


def _params(value: dict[str, Any]) -> dict[str, Any]:
    """``params`` travels as JSON."""
    _jsonable(value, "")
    return value


def _jsonable(value: object, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _jsonable(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for n, item in enumerate(value):
            _jsonable(item, f"{path}[{n}]")
    elif isinstance(value, date | time):
        raise ValueError(f"{path} is a date or time: write it as a string")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path} is {value}: must be a finite number")


def _number(least: float, *, above: bool = False) -> Callable[[float], float]:
    def check(value: float) -> float:
        if not math.isfinite(value) or value < least or (above and value == least):
            raise ValueError(f"must be {'more than' if above else 'at least'} {least:g}, got {shown(value)}")
        return value

    return check


def _duration(*, least_s: float = 0.0, most_s: float = math.inf) -> Callable[[object], float]:
    def read(value: object) -> float:
        seconds = parse_duration(value)
        if seconds < least_s:
            raise ValueError(f"at least {format_duration(least_s)}, got {shown(value)}")
        if seconds > most_s:
            raise ValueError(f"at most {format_duration(most_s)}, which is Kaggle's limit; got {shown(value)}")
        return seconds

    return read


def _auto_or_duration(value: object) -> float | None:
    return None if value == "auto" else _duration(least_s=1)(value)


def _later(
    default: str | None = None, *, others: tuple[str, ...] = (), read: Callable[[object], object] | None = None
) -> Callable[[object], object]:
    """Accept ``default``; refuse any other value as not yet supported, or as wrong if it is that in any case."""

    def check(value: object) -> object:
        if read:
            read(value)
        elif default is not None and value not in (default, *others):
            raise ValueError(f"expected {' or '.join(shown(v) for v in (default, *others))}, got {shown(value)}")
        if default is None or (read(value) != read(default) if read else value != default):
            instead = f"leave it out or at {shown(default)}" if default else "leave it out"
            raise ValueError(f"{shown(value)} is not yet supported; {instead}")
        return value

    return check


def _choice(kind: type[StrEnum]) -> Callable[[object], StrEnum]:
    def read(value: object) -> StrEnum:
        found = next((v for v in kind if v == value), None)
        if found is None:
            raise ValueError(f"expected {' or '.join(shown(v.value) for v in kind)}, got {shown(value)}")
        return found

    return read


def _later_list(value: object) -> object:
    if value != []:
        raise ValueError("not yet supported; leave it out")
    return value


def _later_table(value: object) -> object:
    if value != {}:
        raise ValueError("not yet supported; leave it out")
    return value


Text = Annotated[str, AfterValidator(_text)]
Argument = Annotated[str, AfterValidator(_argument)]
Glob = Annotated[str, AfterValidator(_glob)]
FilePath = Annotated[str, AfterValidator(_path)]
Place = Annotated[str, AfterValidator(_place)]


class KernelTable(Table):
    """``[kernel]``."""

    slug: Annotated[str, AfterValidator(_slug)] | None = None
    title: Annotated[str, AfterValidator(_title)] | None = None
    template: Text = "script"
    accelerator: Annotated[Accelerator, BeforeValidator(_accelerator)] = ACCELERATORS["none"]
    internet: bool = False
    private: bool = True
    datasets: list[Annotated[str, AfterValidator(lambda v: parse_owned(v, "a dataset"))]] = []
    competitions: list[Annotated[str, AfterValidator(parse_competition)]] = []
    models: list[Annotated[str, AfterValidator(parse_model)]] = []
    kernels: list[Annotated[str, AfterValidator(lambda v: parse_owned(v, "a kernel"))]] = []
    docker_image: Text | None = None


class TrainTable(Table):
    """``[train]``."""

    entry: FilePath | None = None
    args: list[Argument] = []
    include: list[Glob] | None = None
    exclude: list[Glob] = []
    requirements: Annotated[object, BeforeValidator(_later())] = None
    launch: Annotated[str, BeforeValidator(_later("python", others=("torchrun",)))] = "python"
    secrets: Annotated[object, BeforeValidator(_later_list)] = None
    params: Annotated[dict[str, Any], AfterValidator(_params)] = {}


class ChainTable(Table):
    """``[chain]``."""

    session_limit: Annotated[float, BeforeValidator(_duration(least_s=1, most_s=MAX_SESSION_S))] = MAX_SESSION_S
    stop_before: Annotated[float, BeforeValidator(_duration())] = 600.0
    quota_reserve: Annotated[float, BeforeValidator(_duration())] = 1800.0
    max_legs: Annotated[int, AfterValidator(_number(1))] = 20
    max_gpu_hours: Annotated[float, AfterValidator(_number(0, above=True))] = 60.0
    retries: Annotated[int, AfterValidator(_number(0))] = 3
    min_leg: Annotated[float, BeforeValidator(_duration())] | None = None
    out_of_quota: Annotated[str, BeforeValidator(_later("wait", others=("cpu", "stop")))] = "wait"
    rescue_limit: Annotated[str, BeforeValidator(_later("1GB", read=parse_size))] = "1GB"


class CheckpointTable(Table):
    """``[checkpoint]``."""

    keep: Annotated[int, AfterValidator(_number(1))] = 2
    save_every: Annotated[float | None, BeforeValidator(_auto_or_duration)] = None
    paths: list[Glob] = []
    done: FilePath | None = None
    deterministic: bool = False
    on_mismatch: Annotated[OnMismatch, BeforeValidator(_choice(OnMismatch))] = OnMismatch.WARN


class GuardsTable(Table):
    """``[guards]``."""

    gpu_idle: Annotated[str, BeforeValidator(_later("30m", read=parse_duration))] = "30m"
    hung: Annotated[float, BeforeValidator(_duration(least_s=1))] = 1800.0


class PullTable(Table):
    """``[pull]``."""

    dir: Place = "outputs"
    patterns: list[Glob] = []


class LocalTable(Table):
    """``[local]``."""

    python: Place | None = None
    sources: dict[str, Place] = {}


class Document(Table):
    """The whole file."""

    kernel: KernelTable = Field(default_factory=KernelTable)
    train: TrainTable = Field(default_factory=TrainTable)
    chain: ChainTable | None = None
    checkpoint: CheckpointTable = Field(default_factory=CheckpointTable)
    guards: GuardsTable = Field(default_factory=GuardsTable)
    notify: Annotated[object, BeforeValidator(_later_table)] = None
    pull: PullTable = Field(default_factory=PullTable)
    local: LocalTable = Field(default_factory=LocalTable)
    sweep: Annotated[object, BeforeValidator(_later_table)] = None


TABLES: dict[str, type[Table]] = {
    "kernel": KernelTable,
    "train": TrainTable,
    "chain": ChainTable,
    "checkpoint": CheckpointTable,
    "guards": GuardsTable,
    "pull": PullTable,
    "local": LocalTable,
}
"""Each table's keys, for suggestions."""
