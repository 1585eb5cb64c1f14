"""What becomes of uploaded files: archives are unpacked, whatever they hold; who may see the dataset."""

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.localkaggle.client import DATASETS, Client
from tests.localkaggle.stage import staged

NAMES = {"ownerSlug": "me", "datasetSlug": "some-data"}


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(*entries: tuple[str, str | None]) -> bytes:
    """Empty files, and links."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for name, link in entries:
            entry = tarfile.TarInfo(name)
            if link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, link
            archive.addfile(entry)
    return buffer.getvalue()


def upload(client: Client, name: str, data: bytes) -> dict[str, str]:
    fields: dict[str, Any] = {"type": "DATASET", "name": name, "contentLength": len(data)}
    place = client.rpc("StartBlobUpload", "blobs.BlobApiService", **fields)
    assert client.http.put(place["createUrl"], data=data, timeout=30).status_code == 200
    return {"token": place["token"]}


def create(client: Client, files: dict[str, bytes], **fields: Any) -> list[str]:
    """The names in a dataset of uploaded files."""
    entries = [upload(client, name, data) for name, data in files.items()]
    made = {"ownerSlug": "me", "slug": "some-data", "title": "Some Data", "files": entries} | fields
    assert client.rpc("CreateDataset", DATASETS, **made)["status"] == "Ok"
    return [f["name"] for f in client.rpc("ListDatasetFiles", DATASETS, **NAMES).get("datasetFiles", [])]


GOOD = zipped(a=b"x" * 5000)
BROKEN = GOOD[:31] + b"\xff" * 4 + GOOD[35:]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (".zip", GOOD),
        ("..zip", GOOD),
        ("...zip", GOOD),
        ("broken.zip", BROKEN),
        ("cut.tgz", tarred(("a", None))[:-20]),
        ("latin.tar.gz", tarred(("caf\udce9", None))),
        ("leads-nowhere.tgz", tarred(("a", "gone"))),
        ("too-long.zip", zipped(**{"n" * 300: b""})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_not_be_unpacked_stays_as_it_is(tmp_path: Path, name: str, data: bytes) -> None:
    with staged(tmp_path) as stage:
        assert create(stage.client, {name: data, "b": b""}) == sorted([name, "b"])
    assert [p.name for p in (tmp_path / "datasets" / ".incoming").iterdir()] == []


def test_an_archive_becomes_a_folder_of_its_name(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        assert create(stage.client, {"x.zip": GOOD, "y.tar.gz": tarred(("d/e", None))}) == ["x/a", "y/d/e"]


@pytest.mark.parametrize("order", [["x", "x.zip"], ["x.zip", "x"]])
def test_a_file_and_an_archive_of_one_name(tmp_path: Path, order: list[str]) -> None:
    with staged(tmp_path) as stage:
        entries = [upload(stage.client, name, GOOD) for name in order]
        made = {"ownerSlug": "me", "slug": "some-data", "title": "Some Data", "files": entries}
        assert stage.client.post("CreateDataset", made, DATASETS).status_code == 400
        assert stage.client.post("GetDatasetStatus", NAMES, DATASETS).status_code == 404


@pytest.mark.parametrize(("fields", "status"), [({"isPrivate": True}, 404), ({}, 200)])
def test_the_client_leaves_out_that_a_dataset_is_public(tmp_path: Path, fields: dict[str, Any], status: int) -> None:
    with staged(tmp_path) as stage:
        create(stage.client, {"a": b"x"}, **fields)
        assert stage.other("somebody").post("GetDatasetStatus", NAMES, DATASETS).status_code == status
