"""The folder of checkpoints: written so that a kill or a full disk at any moment leaves the good ones as they are.

Order of a save: a temporary folder beside the final one, its files written and synced, read again for their sha256,
the manifest, the rename, the parent folder synced; only then are older checkpoints deleted.
"""

import errno
import fcntl
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from kaggle_orchestrator.protocol import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    FileDigest,
    KgoError,
    Manifest,
    checkpoint_step,
    digest_tree,
    open_checkpoint,
)
from kaggle_orchestrator.protocol.checkpoint import checkpoint_name
from kaggle_orchestrator.protocol.files import sync_file, sync_folder
from kaggle_orchestrator.runtime.training.digest import state_digest, tensor_bytes
from kaggle_orchestrator.runtime.training.disk import disk_full, save_state, write_error
from kaggle_orchestrator.runtime.training.say import say

DOCUMENT = "run.json"
"""The file that holds steps, epoch, positions and the best value."""
_TEMPORARY = "tmp-"
_DAMAGED = "damaged-"
_LOCK = "lock"
_MARGIN = 16 << 20
_OVERHEAD = 64 << 10
"""Bytes of a checkpoint's files beside its tensors, roughly, for each."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a checkpoint stores.

    Attributes:
        step: Global steps done.
        epoch: From 0, or None.
        states: State of each object by name; each becomes ``<name>.pt``.
        document: JSON object with everything that isn't an object's state.
        digests: Of further states, which lie in ``document``.
        token, parent, environment: As in the manifest.
    """

    step: int
    epoch: int | None
    states: Mapping[str, Any]
    document: Mapping[str, Any]
    token: str = ""
    parent: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str | int] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one training in ``folder``; at most one process writes them."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep
        self._lock: IO[str] | None = None
        self._checked = False

    def claim(self, *, shared: bool) -> None:
        """Clear what killed saves have left; where others may come too (``shared``), become the one writer.

        Raises:
            KgoError: Another process writes here, or the folder can't be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if shared:
                self._lock = (self.folder / _LOCK).open("w")
                # A record lock: unlike flock it isn't inherited by loader workers, which outlive a killed training.
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise KgoError(
                    f"another training is writing to {self.folder}", hint="End it, or start this one in another folder."
                ) from error
            if error.errno != errno.ENOLCK:
                raise KgoError(f"{self.folder}: {error.strerror or error}") from error
        for left in self.folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)

    def release(self) -> None:
        """Let another process write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def steps(self) -> list[int]:
        """Steps of the checkpoint folders, the newest first."""
        if not self.folder.is_dir():
            return []
        found = (checkpoint_step(p.name) for p in self.folder.iterdir() if p.is_dir())
        return sorted((step for step in found if step is not None), reverse=True)

    def has(self, step: int) -> bool:
        """Whether there is a checkpoint of that step."""
        return self._path(step).is_dir()

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; damaged ones are set aside, and named.

        Raises:
            KgoError: There are checkpoints, but none is whole.
        """
        steps = self.steps()
        for step in steps:
            path = self._path(step)
            try:
                checkpoint = open_checkpoint(path)
                checkpoint.verify()
            except CheckpointError as error:
                aside = path.with_name(_DAMAGED + path.name)
                say(f"{error.message}: damaged, set aside as {aside.name}")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
                continue
            return checkpoint
        if steps:
            raise KgoError(
                f"none of the {len(steps)} checkpoints in {self.folder} is whole",
                hint="To start from the beginning, move that folder away.",
            )
        return None

    def write(self, snapshot: Snapshot) -> Checkpoint:
        """Save a checkpoint, then delete the ones that are too many.

        Raises:
            DiskFull: No room; nothing has changed.
            KgoError: A state can't be stored so that it can be loaded again, or the folder can't be written.
        """
        name = checkpoint_name(snapshot.step)
        temporary = self.folder / f"{_TEMPORARY}{name}"
        size = sum(tensor_bytes(s) + _OVERHEAD for s in snapshot.states.values())
        digests = {n: state_digest(s, n) for n, s in snapshot.states.items()} | dict(snapshot.digests)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(size)
            temporary.mkdir(parents=True)
            files = _write_files(temporary, snapshot)
            manifest = Manifest(
                token=snapshot.token,
                step=snapshot.step,
                epoch=snapshot.epoch,
                files=files,
                parent=snapshot.parent,
                digests=digests,
                environment=snapshot.environment,
            )
            (temporary / MANIFEST).write_text(manifest.dumps(), encoding="utf-8")
            sync_file(temporary / MANIFEST)
            if not self._checked:  # a state that can't be loaded is found now, not in the next leg
                check_loadable(open_checkpoint(temporary))
                self._checked = True
            sync_folder(temporary)
            temporary.rename(self._path(snapshot.step))
            sync_folder(self.folder)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, KgoError) or not isinstance(error, (OSError, RuntimeError)):
                raise
            raise write_error(self.folder, size, error, self.steps()) from error
        self._prune(self._keep)
        return open_checkpoint(self._path(snapshot.step))

    def _path(self, step: int) -> Path:
        return self.folder / checkpoint_name(step)

    def _make_room(self, size: int) -> None:
        """Two saves have to fit at first, one later; older checkpoints give way, but never the newest."""
        margin = max(_MARGIN, size // 20)
        need = (size if self.steps() else 2 * size) + margin
        while (free := shutil.disk_usage(self.folder).free) < need:
            steps = self.steps()
            if len(steps) < 2:
                raise disk_full(self.folder, need, free, steps)
            say(f"the disk has no room for {self._keep} checkpoints: deleting the one of step {steps[-1]}")
            self._delete(steps[-1])

    def _prune(self, keep: int) -> None:
        for step in self.steps()[keep:]:
            self._delete(step)

    def _delete(self, step: int) -> None:
        """Out of sight first: a kill in mid-delete must not leave half a folder under its final name."""
        aside = self.folder / f"{_TEMPORARY}old-{checkpoint_name(step)}"
        try:
            self._path(step).rename(aside)
        except OSError as error:
            say(f"{self._path(step)}: can't be deleted: {error.strerror or error}")
            return
        shutil.rmtree(aside, ignore_errors=True)


def load_state(checkpoint: Checkpoint, name: str) -> Any:
    """The stored state of one object, on the CPU.

    Raises:
        KgoError: torch can't load it with ``weights_only=True``.
    """
    path = checkpoint.folder / f"{name}.pt"
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, and the file's name helps more than each
        raise KgoError(f"{path}: torch can't load it: {error}") from error


def load_document(checkpoint: Checkpoint) -> dict[str, Any]:
    """The JSON object of a checkpoint.

    Raises:
        KgoError: It isn't one of this library's.
    """
    path = checkpoint.folder / DOCUMENT
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KgoError(f"{path}: {error}", hint="Was this checkpoint written by kgo.start()?") from error
    if not isinstance(document, dict):
        raise KgoError(f"{path}: not a JSON object")
    return document


def check_loadable(checkpoint: Checkpoint) -> int:
    """Load each state and compare its digest; returns how many there are.

    Raises:
        KgoError: One can't be loaded, or isn't what was saved.
    """
    names = [name.removesuffix(".pt") for name in checkpoint.manifest.files if name.endswith(".pt")]
    for name in names:
        state = load_state(checkpoint, name)
        if state_digest(state, name) != checkpoint.manifest.digests.get(name):
            raise KgoError(f"{checkpoint.folder / name}.pt: the loaded state isn't the saved one")
    return len(names)


def _write_files(folder: Path, snapshot: Snapshot) -> dict[str, FileDigest]:
    for name, state in snapshot.states.items():
        save_state(state, folder / f"{name}.pt")
    (folder / DOCUMENT).write_text(json.dumps(snapshot.document, indent=1) + "\n", encoding="utf-8")
    sync_file(folder / DOCUMENT)
    return digest_tree(folder)
