"""What makes two experiments the same: the files that travel, and the settings that training depends on."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment.model import Experiment
from kaggle_orchestrator.protocol import FileDigest, digest_file


def file_digests(files: Mapping[str, Path] | Mapping[str, bytes]) -> dict[str, FileDigest]:
    """The digest of each collected file (or of contents already read), by its path, sorted.

    Raises:
        RenderError: A file can't be read.
    """
    contents: Mapping[str, Path | bytes] = dict(files.items())
    digests = {}
    for path, file in sorted(contents.items()):
        if isinstance(file, bytes):
            digests[path] = FileDigest(hashlib.sha256(file).hexdigest(), len(file))
            continue
        try:
            digests[path] = digest_file(file)
        except OSError as error:
            raise RenderError(f"{path} can't be read: {error.strerror or error}") from error
    return digests


def code_sha256(files: Mapping[str, Path] | Mapping[str, bytes]) -> str:
    """One sha256 over the names and contents of the collected files; modes and times don't count.

    Raises:
        RenderError: A file can't be read.
    """
    return _sha256("kgo-code", [[path, digest.sha256] for path, digest in file_digests(files).items()])


def config_sha256(experiment: Experiment) -> str:
    """One sha256 over the settings that training depends on: another value is an edit of the chain.

    Budgets, names for people, what is kept and what is pulled are not among them, so they can change at any time.
    """
    kernel, train, checkpoint = experiment.kernel, experiment.train, experiment.checkpoint
    return _sha256(
        "kgo-config",
        {
            "machine_shape": kernel.accelerator.machine_shape,
            "internet": kernel.internet,
            "docker_image": kernel.docker_image,
            "datasets": sorted(kernel.datasets),
            "competitions": sorted(kernel.competitions),
            "models": sorted(kernel.models),
            "kernels": sorted(kernel.kernels),
            "entry": train.entry,
            "args": list(train.args),
            "launch": train.launch,
            "params": dict(train.params),
            "paths": list(checkpoint.paths),
            "done": checkpoint.done,
            "deterministic": checkpoint.deterministic,
        },
    )


def chain_id(owner: str, slug: str, generation: int) -> str:
    """16 hex digits that name a chain; the same on every machine. ``generation`` counts from 1, up with ``--new``."""
    return hashlib.sha256(f"kgo-chain\n{owner.lower()}\n{slug}\n{generation}".encode()).hexdigest()[:16]


def _sha256(kind: str, value: object) -> str:
    return hashlib.sha256(f"{kind}\n{json.dumps(value, sort_keys=True)}".encode()).hexdigest()
