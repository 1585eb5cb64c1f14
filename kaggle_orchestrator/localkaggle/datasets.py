"""Datasets: snapshots of folders on this machine or of uploaded files, each version whole and never changed."""

import asyncio
import hashlib
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from slugify import slugify
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from kaggle_orchestrator.localkaggle import blobs
from kaggle_orchestrator.localkaggle.context import Call, Context
from kaggle_orchestrator.localkaggle.kernels import Handler
from kaggle_orchestrator.localkaggle.outputs import make_read_only, pack, remove_tree
from kaggle_orchestrator.localkaggle.records import Dataset, DatasetFile
from kaggle_orchestrator.localkaggle.sources import COMPETITIONS, dataset_folder
from kaggle_orchestrator.localkaggle.wire import Fields, Refusal, is_name, timestamp
from kaggle_orchestrator.protocol import FileDigest, digest_file, digest_tree
from kaggle_orchestrator.protocol.files import is_disk_full

INCOMING = ".incoming"
"""Folder of snapshots that are being taken."""
_BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    ValueError,
)


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


def keep_snapshot(
    context: Context, owner: str, slug: str, snapshot_: tuple[Path, str, tuple[DatasetFile, ...]], *, lag_s: float = 0.0
) -> int:
    """Make a snapshot the next version, current after ``lag_s``, unless it's what is current already; its number."""
    world, now = context.world, context.clock.now()
    copy, digest, files = snapshot_
    current = world.dataset(owner, slug, now=now)
    latest = world.latest_version(owner, slug)
    if current and current.digest == digest and current.version == latest:
        remove_tree(copy.parent)
        return current.version
    version = latest + 1
    place = dataset_folder(world.root, owner, slug, version)
    remove_tree(place)  # left by a server that was killed before it had noted the version
    place.parent.mkdir(parents=True, exist_ok=True)
    copy.chmod(0o755)  # a read-only folder can't be moved
    copy.rename(place)
    place.chmod(0o555)
    copy.parent.rmdir()
    world.add_dataset(Dataset(owner, slug, version, digest, files, now, now + lag_s))
    return version


def readable(context: Context, user: str, owner: str, slug: str) -> bool:
    """Whether there is such a dataset for this user; competitions' data is none."""
    if not is_name(owner) or not is_name(slug) or owner == COMPETITIONS:
        return False
    collection = context.world.collection(owner, slug)
    if collection is not None:
        return not collection.private or owner == user
    return context.world.latest_version(owner, slug) > 0


def _name(context: Context, call: Call) -> tuple[str, str]:
    owner, slug = call.fields.text("ownerSlug"), call.fields.text("datasetSlug").lower()
    if not readable(context, call.user, owner, slug):
        raise Refusal(404, f"Dataset {owner[:100]}/{slug[:100]} not found")
    return owner, slug


def _version(context: Context, call: Call) -> Dataset | None:
    """The version asked for, or the current one; None: a new dataset that has no current version yet."""
    owner, slug = _name(context, call)
    number = call.fields.integer("datasetVersionNumber")
    found = context.world.dataset(owner, slug, number, now=context.clock.now())
    if found is None and number is not None:
        raise Refusal(404, f"Dataset {owner}/{slug} has no version {number}")
    return found


def status(context: Context, call: Call) -> dict[str, object]:
    """READY as soon as its files are there, current or not."""
    _name(context, call)
    return {"status": "READY"}


def list_files(context: Context, call: Call) -> dict[str, object]:
    """Names and sizes."""
    offset, size = call.fields.page()
    dataset = _version(context, call)
    if dataset is None:
        return {"datasetFiles": []}
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


def get(context: Context, call: Call) -> dict[str, object]:
    """What is known of a dataset."""
    owner, slug = _name(context, call)
    return _summary(context, owner, slug, call.base)


def _summary(context: Context, owner: str, slug: str, base: str) -> dict[str, object]:
    collection = context.world.collection(owner, slug)
    current = context.world.dataset(owner, slug, now=context.clock.now())
    return {
        "id": collection.id if collection else 0,
        "ref": f"{owner}/{slug}",
        "title": collection.title if collection else slug,
        "url": f"{base}/datasets/{owner}/{slug}",
        "ownerRef": owner,
        "isPrivate": collection.private if collection else False,
        "licenseName": collection.license if collection else "unknown",
        "totalBytes": sum(f.size for f in current.files) if current else 0,
        "currentVersionNumber": current.version if current else 0,
        "lastUpdated": timestamp(current.created if current else context.clock.now()),
    }


def get_metadata(context: Context, call: Call) -> dict[str, object]:
    """Title and licence."""
    owner, slug = _name(context, call)
    about = _summary(context, owner, slug, call.base)
    info = {
        "datasetId": about["id"],
        "datasetSlug": slug,
        "ownerUser": owner,
        "title": about["title"],
        "isPrivate": about["isPrivate"],
        "licenses": [{"name": about["licenseName"]}],
    }
    return {"info": info}


def list_datasets(context: Context, call: Call) -> dict[str, object]:
    """One's own (``group`` MY or ``user``), or all that one may see."""
    fields = call.fields
    mine = fields.text("group").endswith("MY")
    owner, search = call.user if mine else fields.text("user"), fields.text("search").lower()
    offset, size = fields.page()
    offset = offset or max(0, (fields.integer("page") or 1) - 1) * size
    found = [
        c
        for c in context.world.collections()
        if (not owner or c.owner == owner)
        and (not c.private or c.owner == call.user)
        and (search in c.slug or search in c.title.lower())
    ]
    page = found[offset : offset + size]
    answer: dict[str, object] = {"datasets": [_summary(context, c.owner, c.slug, call.base) for c in page]}
    if offset + size < len(found):
        answer["nextPageToken"] = str(offset + size)
    return answer


async def create(context: Context, call: Call) -> dict[str, object]:
    """A new dataset with its first version."""
    fields = call.fields
    owner, title = fields.text("ownerSlug") or call.user, fields.text("title").strip()
    slug = (fields.text("slug") or slugify(title)).lower()
    if owner != call.user:
        raise Refusal(403, "Permission 'datasets.create' was denied")
    if not is_name(slug) or not 6 <= len(slug) <= 50:
        return {"status": "Error", "error": "The dataset slug must be between 6 and 50 characters"}
    if not 6 <= len(title) <= 50:
        return {"status": "Error", "error": "The dataset title must be between 6 and 50 characters"}
    private, license_ = fields.flag("isPrivate"), fields.text("licenseName") or "unknown"
    if context.world.collection(owner, slug) or context.world.latest_version(owner, slug):
        return {"status": "Error", "error": f'The requested slug "{slug}" is already in use by a dataset.'}
    await _make_version(
        context, call, owner, slug, fields, lambda: _begin(context, owner, slug, title, private, license_)
    )
    return {"status": "Ok", "ref": f"/{owner}/{slug}", "url": f"{call.base}/datasets/{owner}/{slug}"}


def _begin(context: Context, owner: str, slug: str, title: str, private: bool, license_: str) -> None:
    if context.world.collection(owner, slug):
        raise Refusal(409, f'The requested slug "{slug}" is already in use by a dataset.')
    context.world.add_collection(owner, slug, title, private, license_)


async def create_version(context: Context, call: Call) -> dict[str, object]:
    """A further version of a dataset."""
    owner, slug = _name(context, call)
    return await _further(context, call, owner, slug)


async def create_version_by_id(context: Context, call: Call) -> dict[str, object]:
    """The same, by the dataset's number."""
    collection = context.world.collection_by_id(call.fields.integer("id") or 0)
    if collection is None or not readable(context, call.user, collection.owner, collection.slug):
        raise Refusal(404, "Dataset not found")
    return await _further(context, call, collection.owner, collection.slug)


async def _further(context: Context, call: Call, owner: str, slug: str) -> dict[str, object]:
    if owner != call.user:
        raise Refusal(403, "Permission 'datasets.update' was denied")
    body = call.fields.inner("body")

    def begin() -> None:  # it may have been deleted while its files were taken
        if not readable(context, call.user, owner, slug):
            raise Refusal(404, f"Dataset {owner}/{slug} not found")

    await _make_version(context, call, owner, slug, body, begin)
    return {"status": "Ok", "ref": f"/{owner}/{slug}", "url": f"{call.base}/datasets/{owner}/{slug}"}


async def _make_version(
    context: Context, call: Call, owner: str, slug: str, body: Fields, begin: Callable[[], None]
) -> None:
    """Take the uploaded files: all, or nothing is changed."""
    tokens = [entry.text("token") for entry in body.objects("files")]
    if not tokens:
        raise Refusal(400, "files: a dataset needs at least one")
    uploads = [blobs.whole_blob(context, call.user, token) for token in dict.fromkeys(tokens)]
    if len({blob.name for blob, _ in uploads}) < len(uploads):
        raise Refusal(400, "files: two have the same name")
    taken = await asyncio.to_thread(_collect, context.world.root, [(blob.name, path) for blob, path in uploads])
    try:
        with context.world.change():
            begin()
            keep_snapshot(context, owner, slug, taken, lag_s=context.knobs.dataset_lag_s)
            for blob, _ in uploads:
                context.world.remove_blob(blob.token)
    except BaseException:
        remove_tree(taken[0].parent)
        raise
    for _, path in uploads:
        path.unlink(missing_ok=True)


def _collect(root: Path, files: list[tuple[str, Path]]) -> tuple[Path, str, tuple[DatasetFile, ...]]:
    """A snapshot of uploaded files, archives unpacked as Kaggle does."""
    holding = root / "datasets" / INCOMING
    holding.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=holding) as folder:
        plain = {name for name, path in files if not _unpack(path, name, Path(folder))}
        for name, path in files:
            if name not in plain:
                continue
            if Path(folder, name).is_dir():
                raise Refusal(400, f"files: {name[:100]!r} is also the folder of an archive")
            shutil.copy(path, Path(folder, name))
        return snapshot(Path(folder), root)


def _unpack(path: Path, name: str, folder: Path) -> bool:
    """Unpack an archive into a folder of its name; whether it is one that can be unpacked."""
    stem = re.sub(r"\.(zip|tar|tar\.gz|tgz)$", "", name)
    place = folder / stem
    if stem == name or stem in ("", ".", "..") or os.path.lexists(place):
        return False
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(place)
        elif tarfile.is_tarfile(path) and hasattr(tarfile, "data_filter"):  # old Pythons can't unpack it safely
            with tarfile.open(path) as tar:
                tar.extractall(place, filter="data")
        else:
            return False
        for found in place.rglob("*"):
            found.relative_to(place).as_posix().encode()  # a name that isn't UTF-8 can't be listed
            found.stat()  # nor a link that leads nowhere be copied
    except OSError as error:
        remove_tree(place)
        if is_disk_full(error):
            raise
        return False
    except _BROKEN_ARCHIVE:
        remove_tree(place)
        return False
    return True


def delete(context: Context, call: Call) -> dict[str, object]:
    """All versions; sessions that have them mounted keep what they see."""
    owner, slug = _name(context, call)
    if owner != call.user:
        raise Refusal(403, "Permission 'datasets.delete' was denied")
    context.world.remove_dataset(owner, slug)
    remove_tree(context.world.root / "datasets" / owner / slug)
    return {}


async def download(context: Context, call: Call) -> Response:
    """A redirect to one file, or all of a version as one archive."""
    dataset, name = _version(context, call), call.fields.text("fileName")
    if dataset is None:
        raise Refusal(404, "The dataset has no files yet")
    folder = dataset_folder(context.world.root, dataset.owner, dataset.slug, dataset.version)
    if name:
        if name not in {f.name for f in dataset.files}:
            raise Refusal(404, f"{name[:200]!r} is not in the dataset")
        return FileResponse(folder / name, media_type="application/octet-stream")
    handle, archive = tempfile.mkstemp(suffix=".zip", dir=context.world.root)
    os.close(handle)
    try:
        await asyncio.to_thread(pack, Path(archive), folder, [f.name for f in dataset.files])
    except BaseException:
        Path(archive).unlink(missing_ok=True)
        raise
    return FileResponse(
        archive,
        media_type="application/zip",
        filename=f"{dataset.slug}.zip",
        background=BackgroundTask(os.unlink, archive),
    )


HANDLERS: dict[str, Handler] = {
    "CreateDataset": create,
    "CreateDatasetVersion": create_version,
    "CreateDatasetVersionById": create_version_by_id,
    "DeleteDataset": delete,
    "DownloadDataset": download,
    "GetDataset": get,
    "GetDatasetMetadata": get_metadata,
    "GetDatasetStatus": status,
    "ListDatasetFiles": list_files,
    "ListDatasets": list_datasets,
}
