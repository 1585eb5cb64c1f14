"""Datasets: a snapshot of a folder on this machine, one version each time its content changes."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from kaggle_orchestrator.localkaggle.context import Call, Context
from kaggle_orchestrator.localkaggle.outputs import make_read_only, remove_tree
from kaggle_orchestrator.localkaggle.sources import COMPETITIONS, dataset_folder
from kaggle_orchestrator.localkaggle.wire import Refusal, is_name, timestamp
from kaggle_orchestrator.localkaggle.world import Dataset, DatasetFile
from kaggle_orchestrator.protocol import FileDigest, digest_file, digest_tree

INCOMING = ".incoming"
"""Folder of snapshots that are being taken."""


def snapshot(source: Path, root: Path) -> tuple[Path, str, tuple[DatasetFile, ...]]:
    """Copy a folder (or one file) below ``root``: the copy, its digest, its files. The digest is the copy's own.

    Raises:
        OSError, shutil.Error: It can't be read, or the disk is full. Nothing is left.
    """
    holding = root / "datasets" / INCOMING
    holding.mkdir(parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(dir=holding)) / "files"
    try:
        if source.is_dir():
            shutil.copytree(source, copy, copy_function=shutil.copy)
        else:
            copy.mkdir()
            shutil.copy(source, copy)
        files = digest_tree(copy)
        make_read_only(copy)
        return copy, _digest(files), tuple(DatasetFile(name, digest.size) for name, digest in files.items())
    except BaseException:
        remove_tree(copy.parent)
        raise


def content_digest(source: Path) -> str:
    """The digest that a snapshot of ``source`` would have.

    Raises:
        OSError: It can't be read.
    """
    return _digest(digest_tree(source) if source.is_dir() else {source.name: digest_file(source)})


def _digest(files: dict[str, FileDigest]) -> str:
    lines = "".join(f"{name}\0{digest.sha256}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def keep_snapshot(context: Context, owner: str, slug: str, snapshot_: tuple[Path, str, tuple[DatasetFile, ...]]) -> int:
    """Make a snapshot the current version, unless its content is that already; the current version's number."""
    copy, digest, files = snapshot_
    current = context.world.dataset(owner, slug)
    if current and current.digest == digest:
        remove_tree(copy.parent)
        return current.version
    version = (current.version if current else 0) + 1
    place = dataset_folder(context.world.root, owner, slug, version)
    remove_tree(place)  # left by a server that was killed before it had noted the version
    place.parent.mkdir(parents=True, exist_ok=True)
    copy.chmod(0o755)  # a read-only folder can't be moved
    copy.rename(place)
    place.chmod(0o555)
    copy.parent.rmdir()
    context.world.add_dataset(Dataset(owner, slug, version, digest, files, context.clock.now()))
    return version


def _dataset(context: Context, call: Call) -> Dataset:
    owner, slug = call.fields.text("ownerSlug"), call.fields.text("datasetSlug")
    known = is_name(owner) and is_name(slug) and owner != COMPETITIONS
    dataset = context.world.dataset(owner, slug, call.fields.integer("datasetVersionNumber")) if known else None
    if dataset is None:
        raise Refusal(404, f"Dataset {owner[:100]}/{slug[:100]} not found")
    return dataset


def status(context: Context, call: Call) -> dict[str, object]:
    """A snapshot is ready at once."""
    _dataset(context, call)
    return {"status": "READY"}


def list_files(context: Context, call: Call) -> dict[str, object]:
    """Names and sizes."""
    offset, size = call.fields.page()
    dataset = _dataset(context, call)
    created = timestamp(dataset.created)
    answer: dict[str, object] = {
        "datasetFiles": [
            {"name": f.name, "totalBytes": f.size, "creationDate": created}
            for f in dataset.files[offset : offset + size]
        ]
    }
    if offset + size < len(dataset.files):
        answer["nextPageToken"] = str(offset + size)
    return answer


HANDLERS = {"GetDatasetStatus": status, "ListDatasetFiles": list_files}
