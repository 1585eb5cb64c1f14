"""A checkpoint folder and its manifest: what is in it, who wrote it, what it went on from.

A folder counts only when its manifest is complete and every file has the recorded sha256. The manifest is written
last and the folder renamed into place, so a folder under its final name is whole unless the disk damaged it.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kaggle_orchestrator.protocol.errors import KgoError
from kaggle_orchestrator.protocol.files import FileDigest, digest_file
from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable, to_jsonable

CHECKPOINTS = "checkpoints"
"""Folder below the working folder."""
MANIFEST = "manifest.json"
SCHEMA = 1
_NAME = re.compile(r"step-(\d{8,})")


class CheckpointError(KgoError):
    """A checkpoint can't be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint says of itself.

    Attributes:
        token: Token of the attempt that wrote it; empty outside a chain.
        step: Global steps done.
        epoch: From 0, or None.
        files: Digest of every file but the manifest, by POSIX path.
        parent: sha256 of the manifest it went on from, or None.
        digests: State digest of each tracked object, e.g. ``{"model": …}``.
        environment: What exactness depends on: threads, CPU capability, versions.
    """

    token: str
    step: int
    files: Mapping[str, FileDigest]
    epoch: int | None = None
    parent: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str | int] = field(default_factory=dict)
    schema: int = SCHEMA

    def dumps(self) -> str:
        """As JSON text, for ``manifest.json``."""
        return json.dumps(to_jsonable(self), sort_keys=True, indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder whose manifest could be read.

    Attributes:
        folder: Where it lies.
        manifest: Its manifest.
        sha256: sha256 of ``manifest.json``: names the checkpoint, content included.
    """

    folder: Path
    manifest: Manifest
    sha256: str

    @property
    def step(self) -> int:
        """Global steps done."""
        return self.manifest.step

    def verify(self) -> None:
        """Read every file and compare.

        Raises:
            CheckpointError: One is missing, unreadable or differs.
        """
        for name, expected in self.manifest.files.items():
            path = self.folder / name
            try:
                found = digest_file(path)
            except OSError as error:
                raise CheckpointError(f"{path}: {error.strerror or error}") from error
            if found.size != expected.size:
                raise CheckpointError(f"{path}: {found.size} bytes where {expected.size} were written")
            if found.sha256 != expected.sha256:
                raise CheckpointError(f"{path}: content differs from its recorded sha256")


def checkpoint_name(step: int) -> str:
    """Name of the folder for a step: ``step-00001234``."""
    return f"step-{step:08d}"


def checkpoint_step(name: str) -> int | None:
    """The step that a checkpoint folder's name tells, or None if it isn't named like one."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def open_checkpoint(folder: Path) -> Checkpoint:
    """Read a folder's manifest; the files themselves are not read.

    Raises:
        CheckpointError: The manifest is missing or damaged, names a file outside the folder, or no file at all.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
        manifest = from_jsonable(Manifest, json.loads(data))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        kind = "" if isinstance(error, Malformed) else "not JSON: "
        raise CheckpointError(f"{path}: {kind}{error}") from error
    if not manifest.files:
        raise CheckpointError(f"{path}: names no file")
    for name in manifest.files:
        if name.startswith("/") or ".." in name.split("/") or "\\" in name:
            raise CheckpointError(f"{path}: names {name!r}, which is outside the checkpoint")
    return Checkpoint(folder, manifest, hashlib.sha256(data).hexdigest())
