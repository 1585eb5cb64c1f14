"""Datasets: uploaded over broken lines, made once, and current before anybody relies on them."""

import io
import os
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter

from kaggle_orchestrator.client import Kaggle, connect
from kaggle_orchestrator.errors import ArtifactError, BadAnswer, Refused, Unavailable, UsageError
from kaggle_orchestrator.models import DatasetRef, KernelRef, PushRequest
from tests.client.faulty import FaultyServer, answer
from tests.client.staging import client_on
from tests.localkaggle.stage import Stage, staged

REF = DatasetRef("me", "some-data")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    sizes = {"a.csv": 10, "empty": 0, "big.bin": 3_000_001}
    found = {}
    for name, size in sizes.items():
        found[name] = tmp_path / "data" / name
        found[name].parent.mkdir(exist_ok=True)
        found[name].write_bytes(bytes(n % 251 for n in range(size)))
    return found


def sizes(files: dict[str, Path]) -> dict[str, int]:
    return {name: path.stat().st_size for name, path in files.items()}


def test_a_dataset_is_made_and_is_current(tmp_path: Path, files: dict[str, Path]) -> None:
    with client_on(tmp_path / "k", knobs={"dataset_lag_s": 120}) as (kaggle, stage):
        assert not kaggle.datasets.exists(REF)
        began = stage.clock.now()
        kaggle.datasets.create(REF, "Some Data", files)
        assert stage.clock.now() - began >= 120
        assert kaggle.datasets.exists(REF)
        assert kaggle.datasets.status(REF) == "READY"
        assert kaggle.datasets.files(REF) == sizes(files)
        kaggle.push(PushRequest(KernelRef("me", "reads-it"), "Reads It", "pass", datasets=(str(REF),)))
        mounted = Path(stage.scenes[-1].mounts[0].source)
        assert {p.name: p.read_bytes() for p in mounted.iterdir()} == {n: p.read_bytes() for n, p in files.items()}


def test_a_next_version_replaces_the_files(tmp_path: Path, files: dict[str, Path]) -> None:
    with client_on(tmp_path / "k", knobs={"dataset_lag_s": 60}) as (kaggle, _):
        kaggle.datasets.create(REF, "Some Data", files)
        files["a.csv"].write_bytes(b"something else")
        del files["empty"]
        kaggle.datasets.add_version(REF, files, "more")
        assert kaggle.datasets.files(REF) == sizes(files)
        kaggle.datasets.delete(REF)
        kaggle.datasets.delete(REF)
        assert not kaggle.datasets.exists(REF)


def content(kaggle: Kaggle, stage: Stage) -> bytes:
    """What a session that starts now reads."""
    kaggle.push(PushRequest(KernelRef("me", "reads-it"), "Reads It", "pass", datasets=(str(REF),)))
    return (Path(stage.scenes[-1].mounts[0].source) / "a.csv").read_bytes()


def test_a_version_of_the_same_size_is_waited_for_too(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with client_on(tmp_path / "k", knobs={"dataset_lag_s": 120}) as (kaggle, stage):
        file.write_bytes(b"old weights")
        kaggle.datasets.create(REF, "Some Data", {"a.csv": file})
        file.write_bytes(b"new weights")
        kaggle.datasets.add_version(REF, {"a.csv": file}, "more")
        assert kaggle.datasets.version(REF) == 2
        assert content(kaggle, stage) == b"new weights"


def test_a_version_of_the_same_size_that_did_not_land_is_not_claimed(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    fault = {"rpc": "CreateDatasetVersion", "status": 500}
    with client_on(tmp_path / "k", faults=[fault]) as (kaggle, stage):
        file.write_bytes(b"old weights")
        kaggle.datasets.create(REF, "Some Data", {"a.csv": file})
        file.write_bytes(b"new weights")
        with pytest.raises(Unavailable, match="whether it was made isn't known"):
            kaggle.datasets.add_version(REF, {"a.csv": file}, "more")
        assert content(kaggle, stage) == b"old weights"


def test_a_kaggle_that_fails_while_one_waits_is_waited_for(tmp_path: Path, files: dict[str, Path]) -> None:
    fault = {"rpc": "ListDatasetFiles", "first": 12, "status": 503}  # more often than one read is repeated
    with client_on(tmp_path / "k", faults=[fault]) as (kaggle, _):
        kaggle.datasets.create(REF, "Some Data", files)
        assert kaggle.datasets.files(REF) == sizes(files)


def test_a_listing_without_end_is_no_listing(server: FaultyServer, kaggle: Kaggle) -> None:
    page = {"datasetFiles": [{"name": "a", "totalBytes": "1"}], "nextPageToken": "1"}
    server.on("/v1/datasets.DatasetApiService/ListDatasetFiles", answer(page))
    with pytest.raises(BadAnswer, match=r"files of dataset me/some-data has no end"):
        kaggle.datasets.files(REF)


@pytest.mark.parametrize(
    "fault",
    [
        {"rpc": "CreateDataset", "status": 500, "after_landing": True},
        {"rpc": "CreateDataset", "reset": True, "after_landing": True},
        {"rpc": "CreateDataset", "status": 200, "body": "html", "after_landing": True},
        {"rpc": "StartBlobUpload", "every": 2, "status": 503},
        {"rpc": "ListDatasetFiles", "first": 2, "status": 429, "retry_after": 30},
    ],
)
def test_it_is_made_once_whatever_is_answered(tmp_path: Path, files: dict[str, Path], fault: dict[str, Any]) -> None:
    with client_on(tmp_path / "k", faults=[fault]) as (kaggle, stage):
        kaggle.datasets.create(REF, "Some Data", files)
        assert kaggle.datasets.files(REF) == sizes(files)
        current = stage.client.rpc("GetDataset", "datasets.DatasetApiService", ownerSlug="me", datasetSlug="some-data")
        assert current["currentVersionNumber"] == 1


def test_one_that_was_not_made_is_not_claimed(tmp_path: Path, files: dict[str, Path]) -> None:
    fault = {"rpc": "CreateDataset", "status": 500}
    with (
        client_on(tmp_path / "k", faults=[fault]) as (kaggle, _),
        pytest.raises(Unavailable, match="whether it was made isn't known"),
    ):
        kaggle.datasets.create(REF, "Some Data", files)


def test_refusals_have_kaggle_s_words(tmp_path: Path, files: dict[str, Path]) -> None:
    with client_on(tmp_path / "k") as (kaggle, _):
        with pytest.raises(Refused, match="between 6 and 50"):
            kaggle.datasets.create(REF, "Tiny", files)
        kaggle.datasets.create(REF, "Some Data", files)
        with pytest.raises(Refused, match="already in use"):
            kaggle.datasets.create(REF, "Some Data", files)


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "a/b", "..", ""])
def test_names_that_would_not_arrive_as_they_are(tmp_path: Path, files: dict[str, Path], name: str) -> None:
    with client_on(tmp_path / "k") as (kaggle, _), pytest.raises(UsageError):
        kaggle.datasets.create(REF, "Some Data", {name: files["a.csv"]})


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    with client_on(tmp_path / "k") as (kaggle, _):
        with pytest.raises(UsageError, match=r"gone can't be a dataset's file: No such file"):
            kaggle.datasets.create(REF, "Some Data", {"gone": tmp_path / "gone"})
        with pytest.raises(UsageError, match="isn't a file"):
            kaggle.datasets.create(REF, "Some Data", {"folder": tmp_path})
        with pytest.raises(UsageError, match="at least one"):
            kaggle.datasets.create(REF, "Some Data", {})
        assert not kaggle.datasets.exists(REF)


def test_another_account_s_private_dataset_is_not_there(tmp_path: Path, files: dict[str, Path]) -> None:
    with client_on(tmp_path / "k") as (kaggle, stage):
        kaggle.datasets.create(REF, "Some Data", files)
        other = stage.other("somebody")
        fields = {"ownerSlug": "me", "datasetSlug": "some-data"}
        for rpc in ("GetDatasetStatus", "ListDatasetFiles", "GetDataset", "DownloadDataset", "DeleteDataset"):
            assert other.post(rpc, fields, "datasets.DatasetApiService").status_code == 404
        answer = other.rpc("SaveKernel", **other.request("wants-it", "pass", datasetDataSources=["me/some-data"]))
        assert answer["invalidDatasetSources"] == ["me/some-data"]


class Breaking(BaseAdapter):
    """A line on which each upload's first try breaks after a megabyte."""

    def __init__(self, inner: BaseAdapter) -> None:
        super().__init__()
        self.inner = inner
        self.spans: list[str] = []

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        span = request.headers.get("Content-Range")
        if request.method == "PUT" and span is None and isinstance(request.body, io.BufferedReader):
            request.body = request.body.read(1_000_000)
            self.inner.send(request, *args, **kwargs)
            raise requests.ConnectionError(ConnectionResetError("cut"), request=request)
        self.spans += [span] if span else []
        return self.inner.send(request, *args, **kwargs)

    def close(self) -> None:
        """Nothing is open."""


def test_an_upload_goes_on_where_it_broke(tmp_path: Path, files: dict[str, Path]) -> None:
    with staged(tmp_path / "k") as stage:
        line = Breaking(stage.kaggle.adapter)
        with connect(stage.kaggle.url, environ={}, clock=stage.clock, adapter=line) as kaggle:
            kaggle.datasets.create(REF, "Some Data", files)
            assert kaggle.datasets.files(REF) == sizes(files)
            ref = KernelRef("me", "reads-it")
            kaggle.push(PushRequest(ref, "Reads It", "pass", datasets=(str(REF),)))
        mounted = Path(stage.scenes[-1].mounts[0].source)
        assert (mounted / "big.bin").read_bytes() == files["big.bin"].read_bytes()
    assert line.spans == ["bytes */10", "bytes */3000001", "bytes 1000000-3000000/3000001"]


def test_an_upload_whose_address_has_expired_begins_anew(tmp_path: Path, files: dict[str, Path]) -> None:
    class Late(Breaking):
        def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
            if request.headers.get("Content-Range", "").startswith("bytes */") and not self.spans:
                clock.sleep(7200)
            return super().send(request, *args, **kwargs)

    with staged(tmp_path / "k") as stage:
        clock = stage.clock
        with connect(stage.kaggle.url, environ={}, clock=clock, adapter=Late(stage.kaggle.adapter)) as kaggle:
            kaggle.datasets.create(REF, "Some Data", {"a.csv": files["a.csv"]})
            assert kaggle.datasets.files(REF) == {"a.csv": 10}


@pytest.mark.parametrize("grows", [True, False])
def test_a_file_that_changes_during_its_upload_is_not_made_of_two(tmp_path: Path, *, grows: bool) -> None:
    file = tmp_path / "big.bin"
    file.write_bytes(b"1" * 3_000_001)

    class Meanwhile(Breaking):
        def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
            if request.headers.get("Content-Range", "").startswith("bytes */"):
                file.write_bytes(b"2" * (3_000_001 + grows))
                os.utime(file, (1, 1))
            return super().send(request, *args, **kwargs)

    with staged(tmp_path / "k") as stage:
        line = Meanwhile(stage.kaggle.adapter)
        with connect(stage.kaggle.url, environ={}, clock=stage.clock, adapter=line) as kaggle:
            with pytest.raises(ArtifactError, match="was changed while it was uploaded"):
                kaggle.datasets.create(REF, "Some Data", {"big.bin": file})
            assert not kaggle.datasets.exists(REF)
