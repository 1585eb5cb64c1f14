"""The small notations of ``kgo.toml``: durations, sizes, sources, accelerators, globs; a refusal says what would do."""

import re
from difflib import get_close_matches

from kaggle_orchestrator.models import Accelerator

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_PART = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_OWNED = re.compile(rf"{_PART}/{_PART}")
_COMPETITION = re.compile(_PART)
_MODEL = re.compile(rf"{_PART}/{_PART}/{_PART}/[A-Za-z0-9][A-Za-z0-9._-]*/\d+", re.ASCII)
_LINK = re.compile(r"https?://(?:www\.)?kaggle\.com/|^/?(?:datasets|d|code|c|competitions|models|m)/")

ACCELERATORS = {
    a.name: a
    for a in (
        Accelerator("none", None, 0),
        Accelerator("T4x2", "NvidiaTeslaT4", 2),  # the shape's name hides that there are two
        Accelerator("L4x4", "NvidiaL4", 4),
        Accelerator("L4x1", "NvidiaL4X1", 1),
        Accelerator("A100", "NvidiaTeslaA100", 1),
        Accelerator("H100", "NvidiaH100", 1),
        Accelerator("RtxPro6000", "NvidiaRtxPro6000", 1),
    )
}
"""By the name that kgo.toml uses. All but the first two only exist for some accounts."""
_BY_SHAPE = {a.machine_shape: a for a in ACCELERATORS.values() if a.machine_shape}


def parse_duration(value: object) -> float:
    """Seconds in ``"90s"``, ``"10m"``, ``"12h"``.

    Raises:
        ValueError: It isn't one.
    """
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f'expected a duration such as "90s", "10m" or "12h", got {shown(value)}')
    return float(match[1]) * _SECONDS[match[2]]


def format_duration(seconds: float) -> str:
    """The shortest of the three notations: ``"10m"``, not ``"600s"``."""
    for unit in ("h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"


def parse_size(value: object) -> int:
    """Bytes in ``"1GB"``, ``"500MB"``; decimal, as Kaggle counts.

    Raises:
        ValueError: It isn't one.
    """
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f'expected a size such as "500MB" or "1GB", got {shown(value)}')
    return round(float(match[1]) * _BYTES[match[2]])


def parse_owned(value: str, what: str) -> str:
    """A dataset or kernel: ``owner/slug``.

    Raises:
        ValueError: It isn't one.
    """
    if not _OWNED.fullmatch(value):
        raise ValueError(f"expected {what} as owner/slug, got {shown(value)}{_without_link(value, _OWNED)}")
    if what == "a kernel" and len(value.partition("/")[2]) < 5:
        raise ValueError(f"a kernel's slug has at least 5 characters, got {shown(value)}")
    return value


def parse_competition(value: str) -> str:
    """A competition: its slug.

    Raises:
        ValueError: It isn't one.
    """
    if not _COMPETITION.fullmatch(value):
        raise ValueError(f"expected a competition's slug, got {shown(value)}{_without_link(value, _COMPETITION)}")
    return value


def parse_model(value: str) -> str:
    """A model: ``owner/model/framework/variation/version``.

    Raises:
        ValueError: It isn't one.
    """
    if not _MODEL.fullmatch(value):
        raise ValueError(
            f"expected a model as owner/model/framework/variation/version, with a number as version, got {shown(value)}"
        )
    return value


def parse_accelerator(value: str) -> Accelerator:
    """An accelerator by kgo's name (``T4x2``) or by Kaggle's (``NvidiaTeslaT4``).

    Raises:
        ValueError: Retired, not supported yet or unknown. Kaggle itself accepts a misspelt name without a word and
            runs the session on something else.
    """
    if value in ACCELERATORS:
        return ACCELERATORS[value]
    if value in _BY_SHAPE:
        return _BY_SHAPE[value]
    folded = value.casefold()
    if "tpu" in folded:
        raise ValueError(f"{shown(value)} is a TPU; TPUs are not yet supported")
    if "p100" in folded:
        raise ValueError('Kaggle has retired the P100 and runs such a session on two T4s: write "T4x2"')
    if folded in ("t4", "gpu", "t4x1", "cuda", "default"):
        raise ValueError(f"{shown(value)} doesn't name one; Kaggle's usual GPU is two T4s: write \"T4x2\"")
    if folded in ("cpu", ""):
        raise ValueError('for CPU write "none"')
    known = {name.casefold(): name for name in (*ACCELERATORS, *_BY_SHAPE)}
    close = get_close_matches(folded, known, n=1)
    guess = f'; did you mean "{known[close[0]]}"?' if close else ""
    raise ValueError(f"no accelerator {shown(value)}{guess} (known: {', '.join(ACCELERATORS)})")


def slug_fault(slug: str, *, longest: int = 40, shortest: int = 5) -> str | None:
    """Why Kaggle would not take a kernel's slug, or None. 40, so that a suffix fits into Kaggle's 50."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug):
        return f"a slug has lower-case letters a-z, digits and single hyphens between them, got {shown(slug)}"
    if len(slug) > longest:
        return f"at most {longest} characters, this has {len(slug)}"
    if len(slug) < shortest:
        return f"at least {shortest} characters, this has {len(slug)}"
    return None


def glob_fault(pattern: str) -> str | None:
    """Why ``pattern`` can't be a glob below the experiment's folder, or None."""
    if not pattern.strip():
        return "an empty pattern"
    if not pattern.isprintable():
        return "holds a character that can't be printed"
    if "\\" in pattern:
        return "write / between folders"
    if pattern.startswith(("/", "~")):
        return "write it relative to the folder of kgo.toml"
    if ".." in pattern.split("/"):
        return "it would leave the folder of kgo.toml"
    return None


def shown(value: object) -> str:
    """A value as a message shows it: near to how TOML has it, on one line, not endless."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _without_link(value: str, form: re.Pattern[str]) -> str:
    """A suggestion for what was copied from the browser's address line."""
    bare = _LINK.sub("", _LINK.sub("", value)).strip("/")
    bare = "/".join(bare.split("/")[: 2 if form is _OWNED else 1])
    return f'; write "{bare}"' if bare != value and form.fullmatch(bare) else ""
