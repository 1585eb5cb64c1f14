"""What is removed while another call about it goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.localkaggle import datasets
from tests.localkaggle.client import DATASETS
from tests.localkaggle.stage import plain, staged


def test_a_second_delete_spares_what_has_the_name_by_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with staged(tmp_path, plain(600.0, result="text")) as stage:
        stage.client.push("again", "pass")
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

        def overtake() -> None:
            stage.client.rpc("DeleteKernel", userName="me", kernelSlug="again")
            stage.client.push("again", "pass")

        async def overtaken(seconds: float) -> None:
            monkeypatch.setattr(asyncio, "sleep", sleep)
            await asyncio.to_thread(overtake)

        monkeypatch.setattr(asyncio, "sleep", overtaken)
        stage.client.rpc("DeleteKernel", userName="me", kernelSlug="again")
        assert stage.client.status("again")["status"] == "RUNNING"


def test_a_dataset_deleted_under_an_upload_stays_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"ownerSlug": "me", "datasetSlug": "gone-data"}
    with staged(tmp_path) as stage:
        client, collect = stage.client, datasets._collect

        def upload() -> list[dict[str, str]]:
            begun = client.rpc("StartBlobUpload", "blobs.BlobApiService", name="a.txt", contentLength=1)
            assert client.http.put(begun["createUrl"], data=b"a").status_code == 200
            return [{"token": begun["token"]}]

        title = {"slug": "gone-data", "title": "Gone data"}
        client.rpc("CreateDataset", DATASETS, **title, ownerSlug="me", isPrivate=True, files=upload())

        def deleted_first(*arguments: Any) -> Any:
            client.rpc("DeleteDataset", DATASETS, **name)
            return collect(*arguments)

        monkeypatch.setattr(datasets, "_collect", deleted_first)
        answer = client.post("CreateDatasetVersion", {**name, "body": {"files": upload()}}, DATASETS)
        assert answer.status_code == 404
        assert client.post("GetDataset", name, DATASETS).status_code == 404
