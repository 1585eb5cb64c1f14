"""A file's arrival on disk: written beside its name, synced, then renamed; under its name it is whole or not there.

What has come of it outlives the process, with a note on which file it is of.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
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
        raise ArtifactError(
            f"{name} can't be written or read: {error.strerror or error}.",
            hint="Check the rights of its folder, or pull to another one (-o).",
        ) from error


_SMALL = 1 << 20
"""Bytes of a file that is fetched again rather than gone on with."""


@dataclass(frozen=True, slots=True)
class Note:
    """Of which file a part is: its strong validator, its whole size in bytes if that is known, the machine's start."""

    etag: str
    total: int | None
    boot: str


@dataclass(slots=True)
class Part:
    """What has come of a file so far.

    Attributes:
        file: Its bytes.
        note: What they are of; None: nothing that could be gone on with.
    """

    file: BinaryIO
    note: Note | None
    _path: Path

    def remember(self, etag: str | None, total: int | None) -> None:
        """The part begins anew, as one of this file; without a validator, or if it's small, it isn't gone on with."""
        before, small = self.note, total is not None and total <= _SMALL
        self.note = None if etag is None or small else Note(etag, total, _boot())
        with disk_errors(self._path):
            if self.note is None:
                if before is not None:
                    self._path.unlink(missing_ok=True)
            else:
                self._path.unlink(missing_ok=True)  # it may be a link
                # The part is empty still: a note that breaks off costs nothing.
                self._path.write_text(json.dumps(asdict(self.note)), encoding="utf-8")

    def forget(self) -> None:
        """It's of no use."""
        self.remember(None, None)


class Taken(Exception):
    """Another pull is writing the same file; ``size`` bytes of it so far."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


@contextmanager
def landing(target: Path, *, checked: bool, expected: FileDigest | None = None) -> Iterator[Part]:
    """A file to write, which takes the name ``target`` when the block ends well.

    When it doesn't, what can be gone on with stays beside the name, also if the process is killed; the next landing
    begins with it.

    Args:
        target: Its name.
        checked: The whole file will be compared with a known sha256. Otherwise a part from before the machine's last
            start isn't taken up: a power cut may have left holes in it.
        expected: The digest, if it's known: what another pull has finished meanwhile isn't written again.

    Raises:
        ArtifactError: The disk is full, or the folder can't be written.
        Taken: Another pull is writing the same file, or has just finished it.
    """
    # Not derived from the process: what a killed pull left is taken over by the next one instead of piling up.
    beside, note = _beside(target)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise ArtifactError(f"{target} is a folder; a file of that name is in the output.")
        file = _open_alone(beside)
        if expected is not None and _is_there(target, expected):  # since ``landed`` looked
            beside.unlink()
            file.close()
            raise Taken(expected.size)
    part = Part(file, _left(note, file, checked=checked), note)
    try:
        if part.note is None:
            with disk_errors(target):
                file.truncate(0)
                note.unlink(missing_ok=True)
        yield part
        with disk_errors(target):
            os.fsync(file.fileno())
            beside.replace(target)
            if part.note is not None:
                note.unlink(missing_ok=True)
    except BaseException:
        with suppress(OSError):
            if part.note is None or os.fstat(file.fileno()).st_size == 0:
                beside.unlink(missing_ok=True)
                note.unlink(missing_ok=True)
        raise
    finally:
        with suppress(OSError):  # synced already, or given up
            file.close()


def _beside(target: Path) -> tuple[Path, Path]:
    name = f".kgo-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}"
    return target.with_name(f"{name}.part"), target.with_name(f"{name}.note")


def _left(note: Path, file: BinaryIO, *, checked: bool) -> Note | None:
    """The note on a part that can be gone on with."""
    try:
        data = json.loads(note.read_text(encoding="utf-8"))
        found = Note(data["etag"], data["total"], data["boot"])
        size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError, TypeError, KeyError):
        return None
    known = isinstance(found.etag, str) and found.etag.startswith('"') and isinstance(found.total, int | None)
    if not known or not size or (found.total is not None and size > found.total):
        return None
    same_start = found.boot == _boot() != ""
    return found if checked or same_start else None


def _boot() -> str:
    """Names the machine's last start; empty where the system doesn't tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def landed(target: Path, expected: FileDigest) -> bool:
    """Whether the very file is there already. A link doesn't count: it would be replaced.

    Raises:
        ArtifactError: What is there can't be read.
    """
    with disk_errors(target):
        if not _is_there(target, expected):
            return False
        part, note = _beside(target)
        if part.exists() or note.exists():
            with suppress(Taken), closing(_open_alone(part)):
                part.unlink()
                note.unlink(missing_ok=True)
        return True


def _is_there(target: Path, expected: FileDigest) -> bool:
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


def _open_alone(path: Path) -> BinaryIO:
    """Open for writing what no other process writes."""
    while True:
        file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b", buffering=0)  # noqa: PTH123, SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another pull may have renamed or removed it between our open and our lock.
            if _is_same(path, file):
                return file
        except BlockingIOError as error:
            with closing(file):
                raise Taken(os.fstat(file.fileno()).st_size) from error
        except BaseException:
            file.close()
            raise
        file.close()


def _is_same(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
