"""Where a source lies: Kaggle mounts one and the same source in different places on different accounts."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from kaggle_orchestrator.protocol import KgoError, Variable

_OWNED = ("datasets", "notebooks", "models")
"""Folders of the newer layout that hold ``<owner>/<slug>``; ``competitions`` holds ``<slug>``."""


def find_mount(slug: str, kaggle_root: Path | None, local_sources: Mapping[str, Path]) -> Path:
    """The folder of the source ``slug`` (or ``owner/slug``).

    Kaggle's own layouts come first (``input/<slug>``, ``input/<kind>/<owner>/<slug>``), then any depth below
    ``input``, the shallowest first. Without an ``input`` folder, on a laptop, ``[local] sources`` of ``kgo.toml``
    says where it lies.

    Raises:
        KgoError: It isn't there, or more than one folder could be meant.
    """
    owner, _, name = slug.rpartition("/")
    if not name or name in (".", ".."):
        raise KgoError(f"run.mount({slug!r}): give the source's slug, like 'digits' or 'owner/digits'")
    root = None if kaggle_root is None else kaggle_root / "input"
    if root is None or not root.is_dir():
        return _local(slug, name, local_sources, root)
    for level in (_known(root, owner, name), *_levels(root)):
        found = [p for p in level if p.name == name and (not owner or owner == p.parent.name or p.parent == root)]
        if len(found) > 1:
            raise KgoError(
                f"run.mount({slug!r}): {len(found)} folders could be meant: {', '.join(map(str, found))}",
                hint=f"Name the owner: run.mount('owner/{name}').",
            )
        if found:
            return found[0]
    there = sorted(p.name for p in root.iterdir())
    raise KgoError(
        f"source {slug!r} isn't mounted below {root}; there: {', '.join(there) or 'nothing'}",
        hint="Is it in kgo.toml under [kernel] (datasets, competitions, models, kernels)?",
    )


def _known(root: Path, owner: str, name: str) -> list[Path]:
    """Where Kaggle mounts it in either layout; with both at once, the first."""
    owners = [p for kind in _OWNED for p in sorted((root / kind).glob(owner or "*"))]
    newer = [p / name for p in owners if (p / name).is_dir()]
    plain = [p for p in (root / name, root / "competitions" / name) if p.is_dir()]
    return plain[:1] or newer


def _levels(root: Path) -> Iterator[list[Path]]:
    """The folders below ``root``, level by level, so that what is near is found without walking all the data.

    Mounts may be links; a link back up is followed once.
    """
    level, seen = [root], {root.resolve()}
    while level:
        below = sorted(p for folder in level for p in folder.iterdir() if p.is_dir())
        level = [p for p in below if p.resolve() not in seen]
        seen.update(p.resolve() for p in level)
        yield level


def _local(slug: str, name: str, sources: Mapping[str, Path], root: Path | None) -> Path:
    for key, folder in sources.items():
        if slug in (key, key.rpartition("/")[2]) or name == key:
            if folder.is_dir():
                return folder
            raise KgoError(f"run.mount({slug!r}): [local] sources of kgo.toml names {folder}, which isn't a folder")
    where = f"{root} isn't there" if root is not None else "there is no /kaggle here"
    raise KgoError(
        f"run.mount({slug!r}): {where}, and [local] sources of kgo.toml doesn't name it",
        hint=f"Add it there, or set {Variable.KAGGLE_ROOT} to a folder that holds input/{name}/.",
    )
