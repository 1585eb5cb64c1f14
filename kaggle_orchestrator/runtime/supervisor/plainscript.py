"""Checkpoints of scripts that know nothing of kgo: files matching globs, wrapped into verified checkpoint folders.

A script's own file may be torn at any moment; its copy in ``checkpoints/step-…`` is whole, or isn't there. Steps
count the distinct saves that were seen, upward from the parent's, so that the chain sees one kind of checkpoint.
"""

import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kaggle_orchestrator.protocol import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    FileDigest,
    Manifest,
    checkpoint_name,
    checkpoint_step,
    digest_file,
    open_checkpoint,
)
from kaggle_orchestrator.protocol.files import sync_file, sync_folder
from kaggle_orchestrator.protocol.globs import matches
from kaggle_orchestrator.runtime.supervisor.words import is_text

MTIMES = "mtimes.json"
"""In a wrapped checkpoint: modification times (ns) by path, since a mount doesn't keep them."""
FILES = "files"
"""Folder in a wrapped checkpoint that holds the script's files."""
RESUME = "{resume}"


def matching(working: Path, globs: Sequence[str]) -> dict[str, Path]:
    """The script's files that match, by POSIX path; our own folders and links that lead out are passed over."""
    found = {path: file for path, file in _named(working, globs) if file.is_file() and not _leads_out(file, working)}
    return dict(sorted(found.items()))


def links(working: Path, globs: Sequence[str]) -> list[str]:
    """The links that match and lead out of the working folder; what is there may be anyone's: no checkpoint has it."""
    return sorted(path for path, file in _named(working, globs) if _leads_out(file, working))


def _leads_out(file: Path, working: Path) -> bool:
    return file.is_symlink() and not file.resolve().is_relative_to(working.resolve())


def _named(working: Path, globs: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for here, folders, names in os.walk(working):
        inside = Path(here).relative_to(working)
        if inside == Path():
            folders[:] = [f for f in folders if f != "kgo"]
        folders[:] = [f for f in folders if not _is_ours(Path(here, f))]
        for name in names:
            path = (inside / name).as_posix()
            file = Path(here, name)
            if is_text(path) and matches(path, globs) and os.access(file.parent, os.X_OK):  # else nobody can look at it
                yield path, file


def _is_ours(folder: Path) -> bool:
    """Whether a folder is a checkpoint, or becoming one."""
    if checkpoint_step(folder.name.removesuffix(".tmp")) is None:
        return False
    return folder.name.endswith(".tmp") or os.access(folder / MANIFEST, os.F_OK)


def is_match(file: Path, working: Path, globs: Sequence[str]) -> bool:
    """Whether a file is one of the script's checkpoints."""
    try:
        path = file.relative_to(working.resolve()).as_posix()
    except ValueError:
        return False
    return matches(path, globs)


def drop_resume(args: Iterable[str], resume: str | None) -> list[str]:
    """Fill ``{resume}`` in; without one the argument goes, and with it a bare flag before it."""
    kept: list[str] = []
    for arg in args:
        if RESUME not in arg:
            kept.append(arg)
        elif resume is not None:
            kept.append(arg.replace(RESUME, resume))
        elif arg == RESUME and kept and kept[-1].startswith("-") and "=" not in kept[-1]:
            kept.pop()
    return kept


def is_wrapped(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint holds a plain script's files."""
    return MTIMES in checkpoint.manifest.files


def bring_back(checkpoint: Checkpoint, working: Path) -> Path:
    """Copy the files of a wrapped checkpoint to where the script had them, the oldest first, with their times.

    Returns:
        The newest of them.

    Raises:
        OSError: No room, or the mount can't be read.
    """
    times: dict[str, int] = json.loads((checkpoint.folder / MTIMES).read_text(encoding="utf-8"))
    newest = working
    for path, mtime in sorted(times.items(), key=lambda item: (item[1], item[0])):
        if f"{FILES}/{path}" not in checkpoint.manifest.files:
            continue
        newest = working / path
        newest.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.folder / FILES / path, newest)
        os.utime(newest, ns=(mtime, mtime))
    return newest


Signature = dict[str, tuple[int, int, int]]


def signature(files: dict[str, Path]) -> Signature:
    """Inode, size and modification time of each file: cheap to compare."""
    found = {}
    for path, file in files.items():
        try:
            stat = file.lstat()
        except OSError:
            continue
        found[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


@dataclass(slots=True)
class Wrapper:
    """Wraps what changed.

    Attributes:
        working: The working folder.
        globs: ``checkpoint.paths``.
        token: Token of the attempt.
        step: Number of the last distinct save.
        parent: sha256 of the manifest the attempt went on from.
        known: Digests of the files at the last save, restored ones at first.
        restored: Digests of the restored files.
        removed: Whether the script has removed a copy that was its newest.
    """

    working: Path
    checkpoints: Path
    globs: Sequence[str]
    token: str
    step: int
    parent: str | None
    known: dict[str, str] = field(default_factory=dict)
    seen: Signature = field(default_factory=dict)
    quiet: Signature = field(default_factory=dict)
    next_at: float = 0.0
    restored: dict[str, str] = field(default_factory=dict)
    removed: bool = False
    newest: Path | None = None

    @classmethod
    def after(
        cls, restored: Checkpoint | None, working: Path, checkpoints: Path, globs: Sequence[str], token: str
    ) -> "Wrapper":
        """A wrapper that counts on from what was restored."""
        if restored is None:
            return cls(working, checkpoints, globs, token, 0, None)
        digests = {n: d.sha256 for n, d in restored.manifest.files.items()}
        known = {n.removeprefix(f"{FILES}/"): sha for n, sha in digests.items() if n.startswith(f"{FILES}/")}
        return cls(working, checkpoints, globs, token, restored.step, restored.sha256, known, restored=known)

    def look(
        self, open_files: Callable[[], Sequence[Path]] = list, *, last: bool = False, whole: bool = True
    ) -> Checkpoint | None:
        """Wrap the files if they changed and are at rest.

        Args:
            open_files: Tells which of them training holds open for writing.
            last: Training has ended: don't wait for a second look.
            whole: They are surely whole. Without that only files that were seen at rest, or whose format shows that
                nothing is missing, are wrapped.

        Returns:
            The new checkpoint, if one was made.

        Raises:
            OSError: The disk is full; what was wrapped before is untouched.
        """
        started = time.monotonic()
        if not last and started < self.next_at:
            return None
        self._miss()
        files = matching(self.working, self.globs)
        now = signature(files)
        files = {path: file for path, file in files.items() if path in now}
        if not now or now == self.seen:
            return None
        if not last and now != self.quiet:
            self.quiet = now  # still being written, perhaps: look again
            return None
        if not last and open_files():
            return None
        if not whole and now != self.quiet and not all(_shows_whole(file) for file in files.values()):
            return None
        made = self._wrap(files, now)
        self.next_at = time.monotonic() + 10 * (time.monotonic() - started)  # at most a tenth of the time goes here
        return made

    def _miss(self) -> None:
        """If the newest copy has vanished, forget it, so that the files are wrapped again."""
        if self.newest is not None and not os.access(self.newest / MANIFEST, os.F_OK):
            self.newest, self.removed = None, True
            self.seen, self.known = {}, self.restored

    def _wrap(self, files: dict[str, Path], before: Signature) -> Checkpoint | None:
        step = self.step + 1
        folder = self.checkpoints / checkpoint_name(step)
        beside = folder.with_name(f"{folder.name}.tmp")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            digests = {f"{FILES}/{path}": _copy(file, beside / FILES / path) for path, file in files.items()}
            if signature(files) != before:
                return None  # it changed while it was copied
            known = {path: digests[f"{FILES}/{path}"].sha256 for path in files}
            self.seen = before
            if known == self.known:
                return None  # touched, not changed
            times = {path: before[path][2] for path in files}
            (beside / MTIMES).write_text(json.dumps(times, sort_keys=True), encoding="utf-8")
            digests[MTIMES] = digest_file(beside / MTIMES)
            manifest = Manifest(self.token, step, dict(sorted(digests.items())), parent=self.parent)
            (beside / MANIFEST).write_text(manifest.dumps(), encoding="utf-8")
            for path in (beside / MTIMES, beside / MANIFEST):
                sync_file(path)
            beside.rename(folder)
            sync_folder(self.checkpoints)
        except FileNotFoundError:
            return None  # the script removed a file meanwhile
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        self.step, self.known, self.newest = step, known, folder
        try:
            made = open_checkpoint(folder)
        except CheckpointError:
            return None  # the script removed it already: the next look misses it
        self.parent = made.sha256
        return made


def _shows_whole(file: Path) -> bool:
    """Whether a file is a zip archive (as ``torch.save`` writes) with its end."""
    try:
        return zipfile.is_zipfile(file)
    except OSError:
        return False


def _copy(source: Path, target: Path) -> FileDigest:
    """Copy durably; the digest is that of the copy as it can be read back."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    sync_file(target)
    return digest_file(target)
