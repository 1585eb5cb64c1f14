"""What an attempt leaves behind: verified checkpoints, no more of them than are kept, and the digest of every file.

A checkpoint is removed only when as many whole ones as are kept lie beside it.
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kaggle_orchestrator.protocol import (
    LEG_RESULT,
    MANIFEST,
    Checkpoint,
    CheckpointError,
    FileDigest,
    Outcome,
    checkpoint_step,
    digest_file,
    open_checkpoint,
)
from kaggle_orchestrator.runtime.supervisor.verdict import Unfit
from kaggle_orchestrator.runtime.supervisor.words import is_text

_LEFTOVERS = ("checkpoints/*.tmp", "checkpoints/tmp-*", "kgo/*.tmp", "best.new", "best.old")


def own_checkpoints(folder: Path, token: str) -> list[Checkpoint]:
    """Checkpoints that this attempt wrote, the newest first; only their manifests are read.

    Training may commit and remove some meanwhile.
    """
    names, found = [], []
    with contextlib.suppress(OSError):
        names = [p.name for p in folder.iterdir() if checkpoint_step(p.name) is not None]
    for name in names:
        with contextlib.suppress(CheckpointError):
            checkpoint = open_checkpoint(folder / name)
            if checkpoint.manifest.token == token:
                found.append(checkpoint)
    return sorted(found, key=lambda c: c.step, reverse=True)


def bytes_below(folder: Path) -> int:
    """Size of all files below a folder, as far as they can be seen."""
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(here, name)).st_size  # noqa: PTH118 (in a loop over every output)
    return total


def sweep(working: Path) -> None:
    """Remove what a killed save left: temporary folders and files of ours."""
    best, before = working / "best", working / "best.old"
    with contextlib.suppress(OSError):
        if before.is_dir() and not best.exists():  # killed between the two renames of a swap
            before.rename(best)
    for pattern in _LEFTOVERS:
        for path in working.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()


def reclaim(working: Path) -> str:
    """Make the working folder usable again if training removed it or shut it.

    Returns:
        What training had done to it; empty if nothing.

    Raises:
        Unfit: ``user_error``: it can't be had back.
    """
    there = working.is_dir()
    if there and os.access(working, os.R_OK | os.W_OK | os.X_OK):
        return ""
    wrong = f"Training {'took away the permissions of' if there else 'removed'} its working folder, {working}."
    try:
        if there:
            working.chmod(0o755)
        else:
            working.mkdir(parents=True)
    except OSError as error:
        message = f"{wrong} It can't be restored: {error.strerror or error}."
        raise Unfit(Outcome.USER_ERROR, "working folder", message) from error
    return wrong


@dataclass(slots=True)
class Outputs:
    """The working folder after training.

    Attributes:
        newest: The newest verified checkpoint of this attempt, or None.
        digests: Digest of every file but the result, by POSIX path.
        notes: What a person should know.
    """

    working: Path
    newest: Checkpoint | None = None
    older: list[Checkpoint] = field(default_factory=list)
    digests: dict[str, FileDigest] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    settled: bool = False

    def settle(self, folder: Path, token: str, keep: int, until: float, now: Callable[[], float] = time.time) -> None:
        """Verify the newest checkpoints, and remove those beyond ``keep`` and damaged ones.

        Args:
            folder: The checkpoints.
            token: Only this attempt's count.
            keep: Whole ones that stay.
            until: When to stop verifying older ones (wall time); the newest is verified in any case.
            now: The clock.
        """
        self.settled = True
        sweep(self.working)
        damaged = []
        for checkpoint in own_checkpoints(folder, token):
            if len(self._whole) >= keep:
                shutil.rmtree(checkpoint.folder, ignore_errors=True)
                continue
            if self.newest is not None and now() > until:
                self.notes.append(f"no time left to verify {checkpoint.folder.name}")
                break
            try:
                checkpoint.verify()
            except CheckpointError as error:
                damaged.append(checkpoint)
                self.notes.append(f"damaged: {error.message}")
                continue
            self._take(checkpoint)
        if self.newest is not None:  # with nothing whole, a damaged one is still worth a person's look
            for checkpoint in damaged:
                shutil.rmtree(checkpoint.folder, ignore_errors=True)

    @property
    def _whole(self) -> list[Checkpoint]:
        return [c for c in (self.newest, *self.older) if c is not None]

    def _take(self, checkpoint: Checkpoint) -> None:
        if self.newest is None:
            self.newest = checkpoint
        else:
            self.older.append(checkpoint)
        place = checkpoint.folder.relative_to(self.working).as_posix()
        for name, digest in checkpoint.manifest.files.items():  # verified, so not read again
            if is_text(name):
                self.digests[f"{place}/{name}"] = digest
        self.digests[f"{place}/{MANIFEST}"] = digest_file(checkpoint.folder / MANIFEST)

    def make_room(self) -> bool:
        """Give up the older checkpoints, so that the result can be written; False if there are none."""
        for checkpoint in self.older:
            shutil.rmtree(checkpoint.folder, ignore_errors=True)
            place = checkpoint.folder.relative_to(self.working).as_posix() + "/"
            self.digests = {n: d for n, d in self.digests.items() if not n.startswith(place)}
        freed, self.older = bool(self.older), []
        return freed

    def digest(self, until: float, now: Callable[[], float] = time.time) -> None:
        """Hash all other files, what is pulled by default first; stops at ``until`` (wall time) and says so."""
        names = sorted(self._files(), key=lambda n: (not n.startswith(("kgo/", "best/", "final")), n))
        left = [n for n in names if n not in self.digests and n != LEG_RESULT]
        for number, name in enumerate(left):
            if now() > until:
                self.notes.append(f"no time left to hash {len(left) - number} files")
                break
            try:
                self.digests[name] = digest_file(self.working / name)
            except OSError as error:
                self.notes.append(f"{name} can't be read: {error.strerror or error}")
        self.digests = dict(sorted(self.digests.items()))

    def _files(self) -> list[str]:
        found: list[str] = []
        nameless: list[str] = []
        for here, _, names in os.walk(self.working):
            for name in names:
                path = Path(here, name)
                try:
                    regular = stat.S_ISREG(path.lstat().st_mode)
                except OSError as error:
                    self.notes.append(f"{os.fsencode(path)!r} can't be read: {error.strerror or error}")
                    continue
                if regular:
                    place = path.relative_to(self.working).as_posix()
                    (found if is_text(place) else nameless).append(place)
        if nameless:
            shown = ", ".join(repr(os.fsencode(n)) for n in sorted(nameless)[:5])
            more = f" and {len(nameless) - 5} more" if len(nameless) > 5 else ""
            self.notes.append(f"left out of the result and of checkpoints, being no UTF-8: {shown}{more}")
        return found
