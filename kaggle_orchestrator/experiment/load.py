"""Reads a ``kgo.toml``. Whatever the file holds, all of its faults are reported together, each with its key."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kaggle_orchestrator.errors import ConfigError, Fault, UsageError
from kaggle_orchestrator.experiment.model import (
    ChainConfig,
    CheckpointConfig,
    Experiment,
    GuardsConfig,
    KernelConfig,
    LocalConfig,
    PullConfig,
    TrainConfig,
)
from kaggle_orchestrator.experiment.rules import Rules
from kaggle_orchestrator.experiment.schema import ChainTable, Document
from kaggle_orchestrator.experiment.selection import select
from kaggle_orchestrator.experiment.template import ENTRY
from kaggle_orchestrator.experiment.wording import dotted, fault_of, without

FILE = "kgo.toml"


def load(path: Path) -> Experiment:
    """Read and validate an experiment.

    Args:
        path: A ``kgo.toml`` or its folder.

    Raises:
        UsageError: There is no such file, or it can't be read.
        ConfigError: Something is wrong in it, or with the files it names; holds all faults.
    """
    file = path / FILE if path.is_dir() else path
    document = _parse(file)
    faults: list[Fault] = []
    locations: list[tuple[str | int, ...]] = []
    try:
        checked = Document.model_validate(document)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            faults.append(fault_of(detail))
            locations.append(detail["loc"])
        # What is right is still looked at, so that the person sees everything in one go.
        checked = Document.model_validate(without(document, locations))
    root = file.parent.resolve()
    rules = Rules(checked, root, wrong=[dotted(_key(location)) for location in locations])
    faults += rules.faults()
    experiment = _experiment(checked, root, file.name)
    if not rules.is_wrong("train.entry", "train.include", "train.exclude", "train", "pull.dir", "local.sources"):
        faults += select(experiment).faults
    if faults:
        raise ConfigError(str(file), sorted(faults, key=_table))
    return experiment


def _table(fault: Fault) -> int:
    """Faults are told table by table, in the order of the documentation; unknown tables first."""
    name = re.split(r"[.\[]", fault.path, maxsplit=1)[0]
    return [*Document.model_fields].index(name) if name in Document.model_fields else -1


def _key(location: Iterable[str | int]) -> tuple[str | int, ...]:
    """A location without indices into a list, and not deeper than the key."""
    return tuple(location)[:2]


def _parse(file: Path) -> dict[str, Any]:
    try:
        if file.exists() and not file.is_file():  # reading a pipe or a device might never end
            raise UsageError(f"{file} isn't a file.", hint="EXP is a kgo.toml or its folder.")
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"There is no {file}.", hint="`kgo init` makes an experiment; EXP names its folder."
        ) from error
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror or error}.") from error
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(str(file), [Fault(f"line {line}", "not UTF-8 text")]) from error
    except tomllib.TOMLDecodeError as error:
        if file.suffix != ".toml":  # the entry, most likely
            raise UsageError(f"{file} isn't a kgo.toml.", hint="EXP is a kgo.toml or its folder.") from error
        raise ConfigError(str(file), [_syntax_fault(str(error))]) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond what Python reads
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]
        raise ConfigError(str(file), [Fault("file", f"can't be read as TOML: {why}")]) from error


def _syntax_fault(said: str) -> Fault:
    """``Expected '=' … (at line 3, column 7)`` with its place in front."""
    message, _, place = said.rpartition(" (at ")
    message, place = (message, place.rstrip(")")) if message else (said, "file")
    return Fault(place, f"not valid TOML: {message[:1].lower()}{message[1:]}")


def _experiment(document: Document, root: Path, file: str) -> Experiment:
    kernel, train, checkpoint = document.kernel, document.train, document.checkpoint
    slug = kernel.slug or ""
    return Experiment(
        root=root,
        file=file,
        kernel=KernelConfig(
            slug=slug,
            title=kernel.title or slug,
            template=kernel.template,
            accelerator=kernel.accelerator,
            internet=kernel.internet,
            private=kernel.private,
            datasets=tuple(kernel.datasets),
            competitions=tuple(kernel.competitions),
            models=tuple(kernel.models),
            kernels=tuple(kernel.kernels),
            docker_image=kernel.docker_image,
        ),
        train=TrainConfig(
            entry=train.entry or ENTRY,
            brought=train.entry is None,
            args=tuple(train.args),
            include=None if train.include is None else tuple(train.include),
            exclude=tuple(train.exclude),
            launch=train.launch,
            params=train.params,
        ),
        chain=None if document.chain is None else _chain(document.chain),
        checkpoint=CheckpointConfig(
            keep=checkpoint.keep,
            save_every_s=checkpoint.save_every,
            paths=tuple(checkpoint.paths),
            done=checkpoint.done,
            deterministic=checkpoint.deterministic,
            on_mismatch=checkpoint.on_mismatch,
        ),
        guards=GuardsConfig(hung_s=document.guards.hung),
        pull=PullConfig(dir=document.pull.dir, patterns=tuple(document.pull.patterns)),
        local=LocalConfig(python=document.local.python, sources=document.local.sources),
    )


def _chain(chain: ChainTable) -> ChainConfig:
    limit = float(chain.session_limit)
    return ChainConfig(
        session_limit_s=limit,
        stop_before_s=chain.stop_before,
        quota_reserve_s=chain.quota_reserve,
        max_legs=chain.max_legs,
        max_gpu_hours=float(chain.max_gpu_hours),
        retries=chain.retries,
        min_leg_s=min(1800.0, limit / 2) if chain.min_leg is None else chain.min_leg,
    )
