"""A session's output: what is left of the working folder once it's over, and its listing.

The listing is taken once and kept; only what it names is ever served.
"""

import html
import json
import logging
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import assert_never

from kaggle_orchestrator.localkaggle.knobs import Knobs, Overflow
from kaggle_orchestrator.localkaggle.notebook import EXECUTED
from kaggle_orchestrator.localkaggle.sessionlog import whole_log
from kaggle_orchestrator.localkaggle.spec import SessionFolder
from kaggle_orchestrator.protocol import write_atomic
from kaggle_orchestrator.protocol.globs import matches

_log = logging.getLogger(__name__)

ZIP = "_output_.zip"
"""What Kaggle mounts of an output that is too large."""
_LONGEST = os.pathconf("/", "PC_PATH_MAX") - 256
"""Bytes of a path that still leave room for one more name."""


@dataclass(frozen=True, slots=True)
class Output:
    """One file: its POSIX path below the working folder, its size in bytes, when it was written."""

    name: str
    size: int
    modified: float


def settle_output(folder: SessionFolder, knobs: Knobs, *, keep: bool, lost: str | None) -> None:
    """Take the listing, or drop the output; may be repeated after a crash.

    Args:
        folder: The session's.
        knobs: How much Kaggle keeps.
        keep: False: all of it is dropped.
        lost: Glob of names that a scripted fault takes away.
    """
    if folder.listing.exists():
        return
    for path in (folder.root, folder.working):  # without a box, a session may have put anything in their place
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            path.mkdir()
    if not keep:
        remove_tree(folder.working)
        folder.working.mkdir()
    outputs = [output for output in _scan(folder.working) if output.name != EXECUTED]
    if lost is not None:
        outputs = _lose(folder, outputs, {o.name for o in outputs if matches(o.name, (lost,))})
    kept = _within(outputs, knobs)
    if kept < len(outputs):
        match knobs.overflow:
            case Overflow.LOSE:
                outputs = _lose(folder, outputs, {o.name for o in outputs[kept:]})
            case Overflow.ZIP:
                folder.packed.mkdir(exist_ok=True)
                pack(folder.packed / ZIP, folder.working, [output.name for output in outputs])
                make_read_only(folder.packed)
            case unknown:
                assert_never(unknown)
    write_atomic(folder.listing, json.dumps([(o.name, o.size, o.modified) for o in outputs]).encode())


def _lose(folder: SessionFolder, outputs: list[Output], lost: set[str]) -> list[Output]:
    for name in lost:
        (folder.working / name).unlink(missing_ok=True)
    return [output for output in outputs if output.name not in lost]


def _within(outputs: list[Output], knobs: Knobs) -> int:
    """How many, the first ones by name, Kaggle has room for."""
    sizes = accumulate(output.size for output in outputs[: knobs.working_files])
    return sum(size <= knobs.working_bytes for size in sizes)


def pack(archive: Path, root: Path, names: Iterable[str]) -> None:
    """Write files below ``root`` into an archive."""
    with zipfile.ZipFile(archive, "w", strict_timestamps=False) as file:
        for name in names:
            file.write(root / name, name)


def mounted_output(folder: SessionFolder) -> Path:
    """The folder that other sessions find of a session's output."""
    return folder.packed if folder.packed.exists() else folder.working


def add_extras(folder: SessionFolder, script: str) -> None:
    """What a mounted output holds besides the files. Called after the listing, which Kaggle leaves them out of."""
    pushed = folder.source / script  # without a box, the session may have changed it, or removed it
    source = pushed.read_text(encoding="utf-8", errors="replace") if pushed.is_file() else ""
    log = whole_log(folder.log)
    page = f"<!DOCTYPE html><meta charset=utf-8><title>results</title><pre>{html.escape(log)}</pre>\n"
    extras = {} if (folder.working / EXECUTED).exists() else {"__script__.py": source}
    extras |= {"__results__.html": page, "__output__.json": log, "custom.css": ""}
    for name, text in extras.items():
        path = folder.working / name
        if not os.path.lexists(path):
            path.write_text(text, encoding="utf-8")


def read_listing(folder: SessionFolder) -> Mapping[str, Output]:
    """The output's files by name, sorted; none while the session lives."""
    try:
        return _parsed(folder.listing)
    except FileNotFoundError:
        return {}


@lru_cache(maxsize=32)
def _parsed(listing: Path) -> Mapping[str, Output]:
    """Kept in memory, since each download asks: a session's listing never changes, nor is its number given again."""
    outputs = [Output(*item) for item in json.loads(listing.read_text(encoding="utf-8"))]
    return MappingProxyType({output.name: output for output in outputs})


def make_read_only(root: Path) -> None:
    """Take the write permission away from a folder and all below it; where mounts are links, that's all there is."""
    for path in (*_below(root), root):
        _set_mode(path, path.lstat(), forbidden=0o222)


def remove_tree(root: Path) -> None:
    """Remove a folder, however deep it goes, read-only ones below it included; nothing happens if it isn't there."""
    if root.is_symlink():
        root.unlink()
    if not root.exists():
        return
    folders = [root]
    for folder in folders:  # it grows as more are found
        folder.chmod(0o700)
        for entry in _entries(folder):
            path = folder / entry.name
            if not entry.is_dir(follow_symlinks=False):
                path.unlink()
            elif _is_nameable(path):
                folders.append(path)
            else:
                path.chmod(0o700)
                folders.append(path.rename(tempfile.mkdtemp(dir=root)))
    for folder in reversed(folders):
        folder.rmdir()


def _below(root: Path) -> Iterator[Path]:
    """Folders, then what is in them, without links; folders may be opened up as they come.

    What lies so deep that its path is too long for the system is left out: nobody could read it there.
    """
    folders = [root]
    while folders:
        folder = folders.pop()
        for entry in _entries(folder):
            path = folder / entry.name
            if entry.is_symlink():
                continue
            if not _is_nameable(path):
                _log.warning("left out of the output: a path in %s is too long", root)
                continue
            yield path
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _is_nameable(path: Path) -> bool:
    return len(os.fsencode(path)) <= _LONGEST


def _scan(root: Path) -> list[Output]:
    found = []
    _set_mode(root, root.lstat(), wanted=0o755)
    for path in _below(root):
        status, name = path.lstat(), path.relative_to(root).as_posix()
        if stat.S_ISDIR(status.st_mode):
            _set_mode(path, status, wanted=0o755)
        elif not stat.S_ISREG(status.st_mode):
            continue
        elif not _is_utf8(name):
            _log.warning("left out of the output: %r is not UTF-8", name)
        else:
            _set_mode(path, status, wanted=0o444)
            found.append(Output(name, status.st_size, status.st_mtime))
    return sorted(found, key=lambda output: output.name)


def _set_mode(path: Path, status: os.stat_result, *, wanted: int = 0, forbidden: int = 0) -> None:
    """Change permissions where they differ. No output runs with its owner's rights (set-user-ID).

    A file that has more names than one keeps its permissions: without a box, it may be somebody else's, too.
    """
    mode = stat.S_IMODE(status.st_mode)
    new = (mode & 0o777 | wanted) & ~forbidden
    if new != mode and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
        path.chmod(new)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
