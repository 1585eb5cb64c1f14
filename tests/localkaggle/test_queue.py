"""Sessions start and end in the order of the world's time, with the quota that is there, however late anybody looks."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.quota import quota_refresh
from kaggle_orchestrator.localkaggle.records import Session
from kaggle_orchestrator.localkaggle.scripted import Scene, Script
from kaggle_orchestrator.localkaggle.sessions import TOO_LONG
from tests.localkaggle.client import DATASETS, SLEEPS, Client, processes, until
from tests.localkaggle.stage import Stage, plain, staged

BLOBS = "blobs.BlobApiService"
HOUR = 3600.0
GPU = {"machineShape": "NvidiaTeslaT4"}
OVER = {"status": "CANCEL_ACKNOWLEDGED", "failureMessage": TOO_LONG}


def by_slug(stage: Stage) -> dict[str, Session]:
    """The last session of each kernel."""
    return {session.kernel.slug: session for session in stage.kaggle.sessions()}


def test_a_push_to_a_running_kernel_ends_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, plain(100, a="x")) as stage:
        stage.client.push("same-one", "pass", **GPU)
        stage.later(40)
        stage.client.push("same-one", "pass", **GPU)
        stage.later(30)
        assert [s.status for s in stage.kaggle.sessions()] == ["RUNNING", "RUNNING"]
        third = stage.client.rpc("SaveKernel", **stage.client.request("same-one", "pass", **GPU))
        assert third["error"].startswith("Maximum batch GPU session count of 2")
        stage.later(1000)
        began = stage.kaggle.sessions()[0].created
        assert [s.ended for s in stage.kaggle.sessions()] == [began + 100, began + 140]
        assert stage.client.files("same-one", 1) == stage.client.files("same-one", 2) == {"a": b"x"}
        assert stage.client.rpc("GetAcceleratorQuotaStatistics")["gpuQuota"]["timeUsed"] == "200s"


def test_what_a_session_mounts_does_not_depend_on_who_looks_when(tmp_path: Path) -> None:
    with staged(tmp_path, plain(100, a="x"), knobs={"queue_s": 50}) as stage:
        stage.client.push("the-source", "pass")
        stage.later(30)
        stage.client.push("early-reader", "pass", kernelDataSources=["me/the-source"])
        stage.later(71)
        stage.client.push("late-reader", "pass", kernelDataSources=["me/the-source"])
        stage.later(10_000)
        sessions = by_slug(stage)
        began = sessions["the-source"].created
        assert [s.started for s in sessions.values()] == [began + 50, began + 80, began + 151]
        assert [len(scene.mounts) for scene in stage.scenes] == [0, 0, 2]


def test_a_mounted_dataset_is_the_one_that_was_current_at_the_start(tmp_path: Path) -> None:
    def upload(stage: Stage, data: bytes) -> list[dict[str, str]]:
        begun = stage.client.rpc("StartBlobUpload", BLOBS, type="DATASET", name="a.csv", contentLength=len(data))
        assert stage.client.http.put(begun["createUrl"], data=data, timeout=30).status_code == 200
        return [{"token": str(begun["token"])}]

    with staged(tmp_path, plain(100), knobs={"queue_s": 50, "dataset_lag_s": 60}) as stage:
        files = upload(stage, b"old")
        stage.client.rpc("CreateDataset", DATASETS, ownerSlug="me", slug="some-data", title="Some Data", files=files)
        stage.later(60)
        body = {"versionNotes": "more", "files": upload(stage, b"new")}
        stage.client.rpc("CreateDatasetVersion", DATASETS, ownerSlug="me", datasetSlug="some-data", body=body)
        stage.client.push("the-reader", "pass", datasetDataSources=["me/some-data"])
        stage.later(10_000)  # the new version has long been current when somebody looks
        stage.kaggle.sessions()
        (scene,) = stage.scenes
        assert {(Path(mount.source) / "a.csv").read_bytes() for mount in scene.mounts} == {b"old"}


def test_sessions_are_ended_when_the_quota_is_used_up(tmp_path: Path) -> None:
    knobs = {"gpu_quota_hours": 2, "output_after_kill": "keep"}

    def play(scene: Scene) -> Script:
        return plain(2 * HOUR, half="x") if scene.session.kernel.slug == "first-one" else plain(3 * HOUR, half="x")

    with staged(tmp_path, play, knobs=knobs) as stage:
        client, began = stage.client, stage.clock.now()
        client.push("first-one", "pass", sessionTimeoutSeconds=5000, **GPU)
        client.push("on-a-cpu", "pass")
        stage.other("other").push("their-own", "pass", **GPU)
        stage.later(HOUR / 2)
        client.push("second-one", "pass", **GPU)
        stage.later(HOUR * 0.75 - 1)
        assert client.status("first-one") == {"status": "RUNNING"}
        stage.later(10 * HOUR)  # t + (t - 0.5 h) = 2 h
        ends = {slug: s.ended for slug, s in by_slug(stage).items()}
        assert ends == {
            "first-one": pytest.approx(began + 1.25 * HOUR, abs=1e-3),
            "second-one": pytest.approx(began + 1.25 * HOUR, abs=1e-3),
            "on-a-cpu": began + 3 * HOUR,
            "their-own": pytest.approx(began + 2 * HOUR, abs=1e-3),
        }
        assert client.status("first-one") == client.status("second-one") == OVER
        assert set(client.files("first-one")) == {"half"}, "it was written an hour after the start"
        assert client.files("second-one") == {}
        assert client.rpc("GetAcceleratorQuotaStatistics")["gpuQuota"]["timeUsed"] == "7200s"
        refused = client.rpc("SaveKernel", **client.request("third-one", "pass", **GPU))
        assert refused["error"].startswith("Maximum weekly GPU quota of 2.00 hours")
        stage.later(quota_refresh(stage.clock.now()) - stage.clock.now())
        assert client.push("third-one", "pass", **GPU) == 1


def test_a_new_week_has_a_quota_of_its_own(tmp_path: Path) -> None:
    """What a session that ended on Friday used doesn't end one that runs on Saturday, whoever looks only on Sunday."""
    with staged(tmp_path, plain(7 * HOUR), knobs={"gpu_quota_hours": 10}) as stage:
        stage.later(quota_refresh(stage.clock.now()) - stage.clock.now() - 9 * HOUR)
        stage.client.push("on-friday", "pass", **GPU)
        stage.later(8 * HOUR)
        stage.client.push("overnight", "pass", **GPU)
        began = stage.clock.now()
        stage.later(40 * HOUR)
        session = by_slug(stage)["overnight"]
        assert (session.status, session.ended) == ("COMPLETE", began + 7 * HOUR)


def test_a_real_session_is_ended_when_the_quota_is_used_up(fresh: Callable[[], LocalServer]) -> None:
    server, marker = fresh(), f"kgo-test-{uuid4().hex}"
    client = Client(server.url)
    client.push("uses-it-up", SLEEPS.format(marker=marker), **GPU)
    client.push("on-a-cpu", "import time; time.sleep(600)")
    until(lambda: processes(marker))
    admin.set_knobs(server.url, {"gpu_quota_hours": 1 / 3600})
    assert client.wait("uses-it-up") == OVER
    assert not processes(marker)
    assert client.status("on-a-cpu") == {"status": "RUNNING"}


def histories(root: Path, seed: int, glance_s: float) -> list[tuple[Any, ...]]:
    """What becomes of the same pushes and cancels when somebody looks each ``glance_s`` seconds."""
    rng = random.Random(seed)
    knobs = {"queue_s": rng.choice([0, 70]), "cancel_save_s": rng.choice([0, 90]), "gpu_quota_hours": 0.7}
    faults = [{"kill_session": {"every": 4, "after_s": 200, "when_output": "a"}}]

    def play(scene: Scene) -> Script:
        length = random.Random(f"{seed}/{scene.session.id}").randrange(1, 1500)
        return plain(float(length), a="x")

    with staged(root, play, knobs=knobs, faults=faults) as stage:
        start, slugs = stage.clock.now(), ["one-kernel", "another-one", "third-kernel"]
        for _ in range(12):
            request = stage.client.request(
                rng.choice(slugs),
                "pass",
                kernelDataSources=[f"me/{slug}" for slug in slugs],
                sessionTimeoutSeconds=rng.choice([600, 1200]),
                **(GPU if rng.random() < 0.7 else {}),
            )
            stage.client.rpc("SaveKernel", **request)
            until_ = stage.clock.now() + rng.choice([5, 60, 400, 3000])
            while stage.clock.now() + glance_s < until_:
                stage.later(glance_s)
                stage.kaggle.sessions()
            stage.later(until_ - stage.clock.now())
            if rng.random() < 0.2:
                living = [s for s in stage.kaggle.sessions() if not s.status.terminal and s.cancelled is None]
                if living:
                    stage.client.rpc("CancelKernelSession", kernelSessionId=living[-1].id)
        stage.later(50_000)
        sessions = stage.kaggle.sessions()
        assert all(s.status.terminal and s.ended is not None for s in sessions)

        def since(at: float | None) -> float | None:
            return None if at is None else round(at - start, 3)

        mounts = [[mount.target for mount in scene.mounts] for scene in stage.scenes]
        told = [(str(s.kernel), s.version, s.status, s.message, since(s.started), since(s.ended)) for s in sessions]
        return [*told, *map(tuple, mounts)]


@pytest.mark.parametrize("seed", range(3))
def test_whoever_looks_when_the_same_happens(tmp_path: Path, seed: int) -> None:
    told = histories(tmp_path / "seldom", seed, 1e9)
    assert {status for _, _, status, *_ in (t for t in told if len(t) == 6)} > {"COMPLETE"}
    assert histories(tmp_path / "often", seed, 29.0) == told
