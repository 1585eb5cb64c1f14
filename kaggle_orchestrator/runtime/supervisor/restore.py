"""Which checkpoint an attempt goes on from: the one its header names, or an older whole one of the same output.

A leg that has a parent never trains from nothing: without a usable checkpoint it stops here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kaggle_orchestrator.protocol import (
    LEG_RESULT,
    MANIFEST,
    Checkpoint,
    CheckpointError,
    LegRecord,
    LegResult,
    Outcome,
    Parent,
    checkpoint_step,
    open_checkpoint,
)
from kaggle_orchestrator.protocol.jsonable import Malformed
from kaggle_orchestrator.runtime.supervisor.preflight import folders, holds_something, mounts_of, what_is_mounted
from kaggle_orchestrator.runtime.supervisor.verdict import Unfit

SEARCH_S = 60.0


@dataclass(frozen=True, slots=True)
class Restored:
    """A verified checkpoint on the mount.

    Attributes:
        checkpoint: It.
        note: What was wrong with newer ones, for the log and the result; empty as a rule.
    """

    checkpoint: Checkpoint
    note: str = ""


def checkpoint_folders(root: Path) -> Iterator[Path]:
    """Folders named like a checkpoint that hold a manifest, at any depth."""
    for folder in folders(root, depth=None, within_s=SEARCH_S):
        if checkpoint_step(folder.name) is not None and (folder / MANIFEST).exists():
            yield folder


def restore(parent: Parent, lineage: Sequence[LegRecord], root: Path) -> Restored:
    """Find and verify the checkpoint to go on from.

    Args:
        parent: What the header expects.
        lineage: The legs before; checkpoints of theirs in the parent's output may be walked back to.
        root: The input folder.

    Raises:
        Unfit: ``mount_missing`` when the source isn't there, ``wrong_source`` when something else is.
    """
    slug = parent.kernel.rpartition("/")[2]
    mounts = mounts_of([slug], root)[slug]
    for places in (mounts, [root]):  # where it should be; then anywhere: another layout may hold a whole copy
        found, damaged = _open_all(p for place in places for p in checkpoint_folders(place))
        faults = [str(error) for error in damaged.values()]
        for checkpoint in (c for c in found if c.sha256 == parent.sha256):
            fault = _fault(checkpoint)
            if fault is None:
                return Restored(checkpoint)
            faults.append(fault)

    for checkpoint in _older(parent, lineage, found, damaged):
        fault = _fault(checkpoint)
        if fault is None:
            what = f"is damaged ({faults[0]})" if faults else "is missing"
            note = f"the checkpoint of step {parent.step} {what}; going on from step {checkpoint.step}"
            return Restored(checkpoint, note)
        faults.append(fault)
    raise _nothing(parent, root, mounts, found, faults)


def _open_all(folders: Iterator[Path]) -> tuple[list[Checkpoint], dict[Path, CheckpointError]]:
    """Those whose manifest can be read, the highest step first, and what is wrong with the others."""
    found, damaged = [], {}
    for folder in folders:
        try:
            found.append(open_checkpoint(folder))
        except CheckpointError as error:
            damaged[folder] = error
    return sorted(found, key=lambda c: c.step, reverse=True), damaged


def _fault(checkpoint: Checkpoint) -> str | None:
    try:
        checkpoint.verify()
    except CheckpointError as error:
        return error.message
    return None


def _older(
    parent: Parent, lineage: Sequence[LegRecord], found: Sequence[Checkpoint], damaged: dict[Path, CheckpointError]
) -> list[Checkpoint]:
    """Older checkpoints of this chain in the output that the parent's attempt wrote, and in no other."""
    tokens = {parent.token, *(record.token for record in lineage)}
    folders = {c.folder.parent for c in found} | {folder.parent for folder in damaged}
    own = {folder for folder in folders if _written_by(folder.parent, parent, folder, found)}
    return [c for c in found if c.folder.parent in own and c.step < parent.step and c.manifest.token in tokens]


def _written_by(output: Path, parent: Parent, checkpoints: Path, found: Sequence[Checkpoint]) -> bool:
    """Whether an output is the parent's: its result says so, or, when that is gone, a checkpoint in it does."""
    try:
        return LegResult.loads((output / LEG_RESULT).read_bytes()).token == parent.token
    except (OSError, Malformed):
        return any(c.folder.parent == checkpoints and c.manifest.token == parent.token for c in found)


def _nothing(
    parent: Parent, root: Path, mounts: Sequence[Path], found: Sequence[Checkpoint], faults: Sequence[str]
) -> Unfit:
    expected = f"step {parent.step} of {parent.kernel} version {parent.version}"
    if faults:
        return Unfit(
            Outcome.WRONG_SOURCE,
            "damaged",
            f"No whole checkpoint to go on from (expected: {expected}): {'; '.join(faults[:3])}.",
            hint="Nothing was trained. `kgo run --retry` mounts it again.",
        )
    if found:
        there = ", ".join(f"{c.folder} (step {c.step}, token {c.manifest.token or 'none'})" for c in found[:3])
        return Unfit(
            Outcome.WRONG_SOURCE,
            "another checkpoint",
            f"Expected {expected} (token {parent.token}), but mounted is {there}.",
        )
    if mounts and holds_something(mounts[-1]):
        return Unfit(
            Outcome.WRONG_SOURCE, "no checkpoint", f"Expected {expected}, but {mounts[-1]} holds no checkpoint at all."
        )
    state = f"{mounts[0]} is empty" if mounts else f"it isn't mounted. Below {root} {what_is_mounted(root)}"
    return Unfit(
        Outcome.MOUNT_MISSING,
        "parent",
        f"Expected {expected}, but {state}.",
        hint="Kaggle sometimes leaves a new source out of its first run; the next one has it.",
    )
