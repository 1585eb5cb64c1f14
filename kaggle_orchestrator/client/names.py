"""From an output's name to a path below the target folder: no name leaves the folder or hides another."""

import os
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from kaggle_orchestrator.client.landing import disk_errors
from kaggle_orchestrator.errors import UnsafeName

_DRIVE = re.compile(r"[A-Za-z]:")
_BESIDE = re.compile(r"\.kgo-[0-9a-f]{16}\.(part|note)", re.IGNORECASE)


def place(names: Iterable[str], folder: Path) -> dict[str, Path]:
    """The path of each name; nothing is written.

    Raises:
        UnsafeName: A name is absolute, climbs, has a drive letter, a backslash or a control character, is one that
            another file may have while it comes, or passes through a link; or two names can't both be files.
    """
    placed = {name: folder.joinpath(*_parts(name)) for name in names}
    _refuse_collisions(placed)
    for name, path in placed.items():
        _refuse_links(name, path, folder)
    return placed


def _parts(name: str) -> list[str]:
    why = None
    parts = name.split("/")
    if not name or name.startswith("/") or _DRIVE.match(name):
        why = "it isn't relative"
    elif "\\" in name or not all(c.isprintable() or c == " " for c in name):
        why = "it has a backslash or a control character"
    elif any(_BESIDE.fullmatch(part) for part in parts):
        why = "kgo keeps what it is fetching under such a name"
    elif ".." in parts or "." in parts or "" in parts:
        why = "it climbs, or has an empty part"
    if why is None:
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            why = "it can't be a file's name"
    if why:
        hint = "Nothing was written. Rename it in training; --pattern pulls the others."
        raise UnsafeName(f"The output names a file {name!r}: {why}.", hint=hint)
    return parts


def _refuse_collisions(placed: dict[str, Path]) -> None:
    folders = {parent: name for name in placed for parent in _parents(name)}
    for name in placed:
        if name in folders:
            raise UnsafeName(f"The output names both {name!r} and {folders[name]!r}: it can't be a file and a folder.")


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _refuse_links(name: str, path: Path, folder: Path) -> None:
    for parent in path.parents:
        if parent == folder:
            return
        with disk_errors(parent):
            linked = parent.is_symlink()
        if linked:
            raise UnsafeName(
                f"{name!r} would be written through the link {parent}.",
                hint="Remove the link, or pull to another folder.",
            )


def folded_twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that are one file on a system that folds case (macOS), or None."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            return other, name
    return None
