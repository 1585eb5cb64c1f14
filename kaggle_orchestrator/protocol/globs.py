"""Globs over POSIX paths, the same on every system and on both sides of a push.

``*`` stays within a name, ``**`` goes through folders, and a folder's name means everything in it.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of ``patterns`` matches ``path`` or a folder that it lies in (``src`` is as good as ``src/**``)."""
    parts = path.split("/")
    return any(_match(parts, _parts(pattern)) for pattern in patterns)


def _parts(pattern: str) -> list[str]:
    return [p for p in pattern.split("/") if p not in ("", ".")]


def _match(path: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return True
    if not path:
        return False
    if pattern[0] != "**":
        return fnmatchcase(path[0], pattern[0]) and _match(path[1:], pattern[1:])
    return len(pattern) == 1 or any(_match(path[n:], pattern[1:]) for n in range(len(path)))
