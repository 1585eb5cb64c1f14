"""The folder of a template: the kernel's source to fill in, and the training, for templates that bring one."""

from pathlib import Path

from kaggle_orchestrator.experiment.names import file_at
from kaggle_orchestrator.experiment.shipped import shipped

SCRIPT, NOTEBOOK = "kernel.py.jinja", "kernel.ipynb.jinja"
"""A template's folder holds one of them."""
ENTRY = "train.py"
"""The training that a template may bring; it is data, never filled in."""


def template_folder(root: Path, name: str) -> Path:
    """The folder of ``kernel.template``: one that ships with kgo, or one of the user's own below ``root``."""
    return file_at(root, name) if is_own(name) else shipped("kernel_templates") / name


def is_own(name: str) -> bool:
    """Whether a template's name is a path."""
    return "/" in name or name.startswith(".")


def source_file(folder: Path) -> Path | None:
    """What is filled in, or None if the folder is no template's.

    A template without one of its own is pushed as the ``script`` is.
    """
    found = next((folder / name for name in (SCRIPT, NOTEBOOK) if (folder / name).is_file()), None)
    if found is None and (folder / ENTRY).is_file():
        return shipped("kernel_templates") / "script" / SCRIPT
    return found


def entry_file(folder: Path) -> Path | None:
    """The training that a template brings, or None."""
    file = folder / ENTRY
    return file if file.is_file() else None


def known_templates() -> list[str]:
    """Names of the templates that ship with kgo."""
    return sorted(p.name for p in shipped("kernel_templates").iterdir() if p.is_dir() and source_file(p))
