"""The bundle: everything that a session unpacks, as one archive whose bytes depend on nothing but its contents.

``plan.json``, ``src/`` (the user's files, byte for byte) and ``lib/`` (the part of kgo that runs in a session).
"""

import io
import stat
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import kaggle_orchestrator
from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.protocol import Plan

PLAN = "plan.json"
SOURCES = "src/"
LIBRARY = "lib/"
_IN_SESSION = ("protocol", "runtime")


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the bundle; only the owner's right to execute is kept of its mode, as git does."""

    data: bytes
    executable: bool = False


def library() -> dict[str, Member]:
    """The part of this package that runs in a session, by its path in the bundle."""
    package = Path(kaggle_orchestrator.__file__).resolve().parent
    files = [package / "__init__.py", package / "py.typed"]
    for part in _IN_SESSION:
        files += [p for p in (package / part).rglob("*.py") if "__pycache__" not in p.parts]
    return {f"{LIBRARY}{package.name}/{f.relative_to(package).as_posix()}": Member(f.read_bytes()) for f in files}


def user_files(files: Mapping[str, Path]) -> dict[str, Member]:
    """Read the collected files.

    Raises:
        RenderError: One can't be read.
    """
    members = {}
    for path, file in files.items():
        try:
            members[path] = Member(file.read_bytes(), bool(file.stat().st_mode & stat.S_IXUSR))
        except OSError as error:
            raise RenderError(f"{path} can't be read: {error.strerror or error}") from error
    return members


def pack(plan: Plan, files: Mapping[str, Member]) -> bytes:
    """The archive for a plan and the user's files: a compressed tar.

    Names are sorted; times, owners and modes are fixed. Deflate, since a Python without lzma is not rare.
    """
    members = {PLAN: Member(plan.dumps().encode()), **library()}
    members.update((SOURCES + path, member) for path, member in files.items())
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as archive:
        for name, member in sorted(members.items()):
            info = tarfile.TarInfo(name)
            info.size = len(member.data)
            info.mode = 0o755 if member.executable else 0o644
            archive.addfile(info, io.BytesIO(member.data))
    return zlib.compress(out.getvalue(), 9)


def unpack(archive: bytes) -> dict[str, Member]:
    """Every file of an archive that ``pack`` made, by its path in the bundle.

    Raises:
        RenderError: It is damaged, or names a file outside the bundle.
    """
    members = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(zlib.decompress(archive)), encoding="utf-8") as tar:
            for info in tar:
                data = tar.extractfile(info)
                path = PurePosixPath(info.name)
                if data is None or path.is_absolute() or ".." in path.parts:
                    raise RenderError(f"The bundle holds {info.name!r}, which isn't a file of one.")
                members[info.name] = Member(data.read(), bool(info.mode & stat.S_IXUSR))
    except (tarfile.TarError, zlib.error, UnicodeDecodeError) as error:
        raise RenderError(f"The bundle is damaged: {error}.") from error
    return members
