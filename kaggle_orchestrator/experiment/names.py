"""File names as text, whatever the locale: names are UTF-8 on the disk, and Python reads them by the locale's encoding.

Under a Latin-1 locale ``größe.py`` would otherwise reach Kaggle under a garbled name, and under plain C not at all.
"""

import os
from pathlib import Path


def text_of(native: str) -> str:
    """A name or path as Python got it from the system, as text; what isn't UTF-8 becomes lone surrogates."""
    return os.fsencode(native).decode("utf-8", "surrogateescape")


def file_at(root: Path, path: str) -> Path:
    """The file that a path, given as text, names: seen from ``root`` unless it's absolute."""
    return root / os.fsdecode(path.encode("utf-8", "surrogateescape"))
