"""Digests of files, and writing one so that a reader sees the old content or the new, never half of it."""

import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileDigest:
    """sha256 (hex) and size in bytes of one file."""

    sha256: str
    size: int


def digest_file(path: Path) -> FileDigest:
    """Read ``path`` once.

    Raises:
        OSError: It can't be read.
    """
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return FileDigest(digest.hexdigest(), size)


def digest_tree(root: Path) -> dict[str, FileDigest]:
    """The digest of every regular file below ``root``, by its POSIX path relative to ``root``, sorted."""
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.is_symlink())
    return {p.relative_to(root).as_posix(): digest_file(p) for p in files}


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed because the disk, or one's share of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable (a rename isn't, until its folder is synced)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` with ``data``: written beside it, synced, then renamed over it.

    Raises:
        OSError: The disk is full, or the folder isn't writable. ``path`` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
