"""What makes two experiments the same: the files that travel, and the settings that training depends on."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment.model import Experiment
from kaggle_orchestrator.protocol import FileDigest, digest_file


def file_digests(files: Mapping[str, Path | bytes]) -> dict[str, FileDigest]:
    """The digest of each collected file (or of contents already read), by its path, sorted.

    Raises:
        RenderError: A file can't be read.
    """
    digests = {}
    for path, file in sorted(files.items()):
        if isinstance(file, bytes):
            digests[path] = FileDigest(hashlib.sha256(file).hexdigest(), len(file))
            continue
        try:
            digests[path] = digest_file(file)
        except OSError as error:
            raise RenderError(f"{path} can't be read: {error.strerror or error}") from error
    return digests


def code_sha256(files: Mapping[str, Path | bytes]) -> str:
    """One sha256 over the names and contents of the collected files; modes and times don't count.

    Raises:
        RenderError: A file can't be read.
    """
    return _sha256("kgo-code", [[path, digest.sha256] for path, digest in file_digests(files).items()])


def training_settings(experiment: Experiment) -> dict[str, object]:
    """The settings that training depends on, by their key in ``kgo.toml``: another value is an edit of the chain.

    Budgets, names for people, what is kept and what is pulled are not among them, so they can change at any time.
    """
    kernel, train, checkpoint = experiment.kernel, experiment.train, experiment.checkpoint
    return {
        "kernel.accelerator": kernel.accelerator.machine_shape,
        "kernel.internet": kernel.internet,
        "kernel.docker_image": kernel.docker_image,
        "kernel.datasets": sorted(kernel.datasets),
        "kernel.competitions": sorted(kernel.competitions),
        "kernel.models": sorted(kernel.models),
        "kernel.kernels": sorted(kernel.kernels),
        "train.entry": train.entry,
        "train.args": train.args,
        "train.launch": train.launch,
        **{f"train.params.{name}": value for name, value in train.params.items()},
        "checkpoint.paths": checkpoint.paths,
        "checkpoint.done": checkpoint.done,
        "checkpoint.deterministic": checkpoint.deterministic,
    }


def config_sha256(experiment: Experiment) -> str:
    """One sha256 over :func:`training_settings`."""
    return _sha256("kgo-config", training_settings(experiment))


def chain_id(owner: str, slug: str, generation: int) -> str:
    """16 hex digits that name a chain; the same on every machine. ``generation`` counts from 1, up with ``--new``."""
    return hashlib.sha256(f"kgo-chain\n{owner.lower()}\n{slug}\n{generation}".encode()).hexdigest()[:16]


def _sha256(kind: str, value: object) -> str:
    return hashlib.sha256(f"{kind}\n{json.dumps(value, sort_keys=True)}".encode()).hexdigest()
