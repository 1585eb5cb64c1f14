"""What Kaggle says and when: late, wrong, in two forms, or not at all; one knob each."""

from pathlib import Path
from typing import Any

import pytest

from tests.localkaggle.client import DATASETS
from tests.localkaggle.stage import Stage, plain, staged

BLOBS = "blobs.BlobApiService"


def names(slug: str) -> dict[str, Any]:
    return {"userName": "me", "kernelSlug": slug}


def test_a_session_waits_for_its_machine(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60), knobs={"queue_s": 300}) as stage:
        stage.client.push("in-the-queue", "pass")
        stage.later(299)
        assert stage.client.status("in-the-queue") == {"status": "QUEUED"}
        assert not stage.scenes
        stage.later(1)
        assert stage.client.status("in-the-queue") == {"status": "RUNNING"}
        stage.later(60)
        assert stage.client.status("in-the-queue") == {"status": "COMPLETE"}
        (session,) = stage.kaggle.sessions()
        assert session.started == session.created + 300


def test_a_waiting_session_mounts_what_is_there_when_it_starts(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60, a="x"), knobs={"queue_s": 30}) as stage:
        stage.client.push("the-source", "pass")
        stage.client.push("the-reader", "pass", kernelDataSources=["me/the-source"])
        stage.later(30)  # both start now: the source has no output yet
        stage.client.status("the-reader")
        assert [scene.mounts for scene in stage.scenes] == [(), ()]
        stage.later(60)
        stage.client.push("the-reader", "pass", kernelDataSources=["me/the-source"])
        stage.later(30)
        stage.client.status("the-reader")
        assert len(stage.scenes[-1].mounts) == 2


def test_a_waiting_session_can_be_cancelled(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"queue_s": 300}) as stage:
        stage.client.push("in-the-queue", "pass")
        (session,) = stage.kaggle.sessions()
        stage.client.rpc("CancelKernelSession", kernelSessionId=session.id)
        stage.later(300)
        assert stage.client.status("in-the-queue") == {"status": "CANCEL_ACKNOWLEDGED"}
        assert not stage.scenes


def test_queued_may_be_left_out(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"queue_s": 300, "queued_status": "omitted"}) as stage:
        stage.client.push("in-the-queue", "pass")
        assert stage.client.status("in-the-queue") == {}


def test_the_status_after_a_push_may_be_the_version_before(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60), knobs={"stale_status_s": 120}) as stage:
        stage.client.push("stale-one", "pass")
        assert stage.client.status("stale-one") == {"status": "RUNNING"}, "there is none before"
        stage.later(60)
        stage.client.push("stale-one", "pass")
        assert stage.client.status("stale-one") == {"status": "COMPLETE"}
        assert stage.client.status("stale-one", 2) == {"status": "RUNNING"}, "who asks for a version is told right"
        stage.later(59)
        assert stage.client.status("stale-one") == {"status": "COMPLETE"}
        stage.later(61)
        assert stage.client.status("stale-one", 2) == {"status": "COMPLETE"}


def test_a_new_kernel_is_denied_for_a_while(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"denied_s": 60}) as stage:
        stage.client.push("brand-new", "pass")
        for rpc in ("GetKernel", "GetKernelSessionStatus", "ListKernelSessionOutput", "ListKernelFiles"):
            assert stage.client.post(rpc, names("brand-new")).status_code == 403
        stage.later(60)
        assert stage.client.status("brand-new") == {"status": "COMPLETE"}
        stage.client.push("brand-new", "pass")
        assert stage.client.status("brand-new") == {"status": "RUNNING"}, "only new kernels"


def test_a_dead_session_may_read_running(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60, a="x"), knobs={"status_lag_s": 7200}) as stage:
        stage.client.push("late-news", "pass")
        stage.later(60 + 7199)
        assert stage.client.status("late-news") == {"status": "RUNNING"}
        assert stage.client.output("late-news") == {"files": []}
        stage.later(1)
        assert stage.client.status("late-news") == {"status": "COMPLETE"}
        assert stage.client.files("late-news") == {"a": b"x"}


def test_outputs_may_come_late(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60, a="x"), knobs={"output_lag_s": 300}) as stage:
        stage.client.push("late-files", "pass")
        stage.later(60)
        assert stage.client.status("late-files") == {"status": "COMPLETE"}
        assert stage.client.output("late-files") == {"files": []}
        denied = stage.client.post(
            "DownloadKernelOutput", {"ownerSlug": "me", "kernelSlug": "late-files", "filePath": "a"}
        )
        assert denied.status_code == 404
        stage.later(300)
        assert stage.client.files("late-files") == {"a": b"x"}


def test_a_cancelled_session_saves_first(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60, a="x"), knobs={"cancel_save_s": 120, "output_after_cancel": "keep"}) as stage:
        stage.client.push("called-off", "pass")
        stage.later(40)
        (session,) = stage.kaggle.sessions()
        stage.client.rpc("CancelKernelSession", kernelSessionId=session.id)
        assert stage.client.status("called-off") == {"status": "CANCEL_REQUESTED"}
        stage.later(119)
        assert stage.client.status("called-off") == {"status": "CANCEL_REQUESTED"}
        assert stage.client.output("called-off") == {"files": []}
        stage.later(1)
        assert stage.client.status("called-off") == {"status": "CANCEL_ACKNOWLEDGED"}
        assert stage.client.files("called-off") == {"a": b"x"}


def test_a_delete_does_not_wait_for_the_saving(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"cancel_save_s": 1e6}) as stage:
        stage.client.push("to-be-gone", "pass")
        stage.client.rpc("DeleteKernel", **names("to-be-gone"))
        assert stage.client.post("GetKernel", names("to-be-gone")).status_code == 403


def test_a_cancel_by_the_container_s_name_may_be_refused(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"container_cancel": "refused"}) as stage:
        stage.client.push("goes-on", "pass")
        (session,) = stage.kaggle.sessions()
        assert stage.client.post("CancelKernelSession", {"kernelSessionId": session.id}).status_code == 404
        stage.later(60)
        assert stage.client.status("goes-on") == {"status": "COMPLETE"}


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("flat", {"code": 403, "message": "Permission 'kernels.get' was denied"}),
        (
            "nested",
            {"error": {"code": 403, "message": "Permission 'kernels.get' was denied", "status": "PERMISSION_DENIED"}},
        ),
    ],
)
def test_errors_have_two_forms(tmp_path: Path, form: str, body: dict[str, Any]) -> None:
    with staged(tmp_path, knobs={"error_body": form}) as stage:
        answer = stage.client.post("GetKernel", names("nobody-s"))
        assert (answer.status_code, answer.json()) == (403, body)


@pytest.mark.parametrize("tells", ["seconds", "date", "none"])
def test_too_many_calls_are_throttled(tmp_path: Path, tells: str) -> None:
    with staged(tmp_path, knobs={"calls_per_minute": 3, "retry_after": tells}) as stage:
        for _ in range(3):
            assert stage.client.post("ListKernels", {}).status_code == 200
        answer = stage.client.post("ListKernels", {})
        assert answer.status_code == 429
        assert ("retry-after" in answer.headers) == (tells != "none")
        if tells == "seconds":
            assert answer.headers["retry-after"] == "61"
        if tells == "date":
            assert answer.headers["retry-after"].endswith("GMT")
        assert stage.other("somebody").post("ListKernels", {}).status_code == 200
        stage.later(60)
        assert stage.client.post("ListKernels", {}).status_code == 200


def test_a_live_log_may_be_dropped_and_is_told_from_the_start_again(tmp_path: Path) -> None:
    with staged(tmp_path, plain(600), knobs={"log_drop_s": 60}) as stage:
        stage.client.push("long-log", "pass")
        url = f"{stage.kaggle.url}/v1/kernels/logs/stream/me/long-log"
        for _ in range(2):
            text = stage.client.http.get(url, timeout=30).text
            assert text.count("hello") == 1
            assert "END_OF_LOG" not in text
            stage.later(10)


def upload(stage: Stage, name: str, data: bytes) -> str:
    started = stage.client.rpc("StartBlobUpload", BLOBS, type="DATASET", name=name, contentLength=len(data))
    assert stage.client.http.put(started["createUrl"], data=data, timeout=30).status_code == 200
    return str(started["token"])


def test_a_new_dataset_version_is_not_current_at_once(tmp_path: Path) -> None:
    with staged(tmp_path, knobs={"dataset_lag_s": 60}) as stage:
        fields: dict[str, Any] = {"ownerSlug": "me", "datasetSlug": "some-data"}
        created = stage.client.rpc(
            "CreateDataset", DATASETS, ownerSlug="me", slug="some-data", title="Some Data",
            files=[{"token": upload(stage, "a.csv", b"1")}],
        )  # fmt: skip
        assert created["status"] == "Ok"
        assert stage.client.rpc("GetDatasetStatus", DATASETS, **fields) == {"status": "READY"}
        assert stage.client.rpc("ListDatasetFiles", DATASETS, **fields) == {"datasetFiles": []}
        stage.later(60)
        body = {"versionNotes": "more", "files": [{"token": upload(stage, "a.csv", b"22")}]}
        stage.client.rpc("CreateDatasetVersion", DATASETS, **fields, body=body)
        stage.client.push("reads-old", "pass", datasetDataSources=["me/some-data"])
        assert (Path(stage.scenes[-1].mounts[0].source) / "a.csv").read_bytes() == b"1"
        assert [f["totalBytes"] for f in stage.client.rpc("ListDatasetFiles", DATASETS, **fields)["datasetFiles"]] == [
            1
        ]
        stage.later(60)
        assert [f["totalBytes"] for f in stage.client.rpc("ListDatasetFiles", DATASETS, **fields)["datasetFiles"]] == [
            2
        ]
        stage.client.push("reads-new", "pass", datasetDataSources=["me/some-data"])
        assert (Path(stage.scenes[-1].mounts[0].source) / "a.csv").read_bytes() == b"22"
