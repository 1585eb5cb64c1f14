"""A file's arrival on disk: written beside its name, synced, then renamed; under its name it is whole or not there."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kaggle_orchestrator.errors import ArtifactError
from kaggle_orchestrator.protocol import FileDigest, digest_file
from kaggle_orchestrator.protocol.files import is_disk_full


@contextmanager
def disk_errors(name: str | Path) -> Iterator[None]:
    """Say of a failure on disk what it means.

    Raises:
        ArtifactError: The disk is full, or the file can't be written or read.
    """
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise ArtifactError(
                f"The disk is full: {name} can't be written.",
                hint="Free some space and pull again; files that are complete stay and aren't fetched again.",
            ) from error
        raise ArtifactError(f"{name} can't be written or read: {error.strerror or error}.") from error


@contextmanager
def landing(target: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the name ``target`` when the block ends well, and vanishes when it doesn't.

    Raises:
        ArtifactError: The disk is full, the folder can't be written, or another pull is writing the same file.
    """
    # Not derived from the process: what a killed pull left is taken over by the next one instead of piling up.
    beside = target.with_name(f".kgo-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}.part")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise ArtifactError(f"{target} is a folder; a file of that name is in the output.")
        file = _open_alone(beside, target)
    try:
        yield file
        with disk_errors(target):
            os.fsync(file.fileno())
            beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    finally:
        with suppress(OSError):  # synced already, or given up
            file.close()


def landed(target: Path, expected: FileDigest) -> bool:
    """Whether the very file is there already. A link doesn't count: it would be replaced.

    Raises:
        ArtifactError: What is there can't be read.
    """
    with disk_errors(target):
        if target.is_symlink() or not target.is_file() or target.stat().st_size != expected.size:
            return False
        return digest_file(target) == expected


def folds_case(folder: Path) -> bool:
    """Whether ``a`` and ``A`` are one file there."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".kgo-case-{os.getpid()}"
        probe.touch()
        try:
            return probe.with_name(probe.name.upper()).exists()
        finally:
            probe.unlink()


def _open_alone(path: Path, target: Path) -> BinaryIO:
    """Open for writing what no other process writes."""
    while True:
        file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b", buffering=0)  # noqa: PTH123, SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another pull may have renamed or removed it between our open and our lock.
            if _is_same(path, file):
                file.truncate(0)
                return file
        except BlockingIOError as error:
            file.close()
            raise ArtifactError(f"Another pull is writing {target}.", hint="Wait for it, or pull elsewhere.") from error
        except BaseException:
            file.close()
            raise
        file.close()


def _is_same(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
