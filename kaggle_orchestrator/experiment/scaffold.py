"""Makes a new experiment from a starter. Overwrites nothing: either all files are new, or none is written."""

from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from slugify import slugify

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.experiment.selection import WRITTEN_BY_TRAINING, never_travels
from kaggle_orchestrator.experiment.shipped import shipped
from kaggle_orchestrator.experiment.template import entry_file

_IGNORED = (".kgo/", "outputs/", *(f"/{name}/" for name in WRITTEN_BY_TRAINING))


class Starter(StrEnum):
    """What a new experiment begins as."""

    SCRIPT = "script"
    """A complete small training in one file."""
    NOTEBOOK = "notebook"
    """The same, pushed as a notebook that ends with its curves."""
    PYTORCH = "pytorch"
    """An image classifier from settings alone."""
    DIGITS = "digits"
    """The handwritten digits of ``examples/``, data included."""


def scaffold(folder: Path, starter: Starter) -> list[Path]:
    """Write a starter's files into a folder, which need not exist.

    Returns:
        The files, sorted.

    Raises:
        UsageError: One of them exists, or the folder can't be written.
    """
    contents = _digits() if starter is Starter.DIGITS else _written(folder, starter)
    contents.setdefault(".gitignore", "".join(f"{line}\n" for line in _IGNORED).encode())
    if (folder / ".gitignore").exists():
        del contents[".gitignore"]
    if taken := sorted(path for path in contents if (folder / path).exists()):
        names = ", ".join(taken[:5]) + (" and more" if len(taken) > 5 else "")
        raise UsageError(
            f"{folder} already holds {names}; nothing was written.", hint="Name another folder: kgo init DIR."
        )
    written: list[Path] = []
    try:
        for path, data in contents.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as out:
                written.append(file)
                out.write(data)
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        raise UsageError(f"{folder} can't be written: {error.strerror or error}.") from error
    return sorted(folder / path for path in contents)


def _written(folder: Path, starter: Starter) -> dict[str, bytes]:
    """A starter of ``starters/``: what it doesn't have of its own is the script's, unless its template brings it."""
    home = files("kaggle_orchestrator.experiment").joinpath("starters")
    names = [starter.value] if entry_file(shipped("kernel_templates") / starter.value) else ["script", starter.value]
    contents = {
        p.name.removesuffix(".txt"): p.read_bytes()
        for name in names
        for p in home.joinpath(name).iterdir()
        if p.name.endswith(".txt")
    }
    contents["kgo.toml"] = contents["kgo.toml"].replace(b"@SLUG@", _slug(folder).encode())
    return contents


def _slug(folder: Path) -> str:
    """A slug from the folder's name; Kaggle wants at least five characters."""
    slug = slugify(folder.resolve().name)[:40].strip("-")
    return slug if len(slug) >= 5 else f"{slug}-training".strip("-")


def _digits() -> dict[str, bytes]:
    root = shipped("examples") / "digits"
    found = {p.relative_to(root).as_posix(): p for p in sorted(root.rglob("*")) if p.is_file()}
    return {
        path: file.read_bytes()
        for path, file in found.items()
        if not never_travels(path) and path.split("/")[0] not in WRITTEN_BY_TRAINING
    }
