"""Sessions without a process: what they leave, when they end, and that only the world's clock matters."""

import json
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.inprocess import LocalKaggle
from kaggle_orchestrator.localkaggle.scripted import parse_casting
from tests.localkaggle.client import Client, until
from tests.localkaggle.stage import plain, staged


def test_a_session_ends_at_its_time_with_its_output_and_log(tmp_path: Path) -> None:
    with staged(tmp_path, plain(3600, final__model="weights")) as stage:
        client = stage.client
        client.push("long-one", "pass")
        stage.later(3599)
        assert client.status("long-one") == {"status": "RUNNING"}
        assert client.output("long-one") == {"files": []}
        stage.later(1)
        assert client.status("long-one") == {"status": "COMPLETE"}
        assert client.files("long-one") == {"final/model": b"weights"}
        assert client.log("long-one") == "hello\nbye\n"


def test_its_end_does_not_depend_on_who_looks_when(tmp_path: Path) -> None:
    with staged(tmp_path, plain(3600)) as stage:
        stage.client.push("gpu-user", "pass", machineShape="NvidiaTeslaT4")
        began = stage.clock.now()
        stage.later(50 * 3600)
        (session,) = stage.kaggle.sessions()
        assert (session.started, session.ended) == (began, began + 3600)
        quota = stage.client.rpc("GetAcceleratorQuotaStatistics")["gpuQuota"]
        assert quota["timeUsed"] in ("3600s", "0s")  # a week may have ended in between


def test_what_was_not_written_yet_is_not_in_a_killed_session_s_output(tmp_path: Path) -> None:
    def fault(after_s: float) -> dict[str, Any]:
        return {"kill_session": {"number": 1, "after_s": after_s}}

    for name, after_s, kept in (("before", 20.0, set()), ("behind", 40.0, {"a"})):
        with staged(
            tmp_path / name, plain(60, a="x"), knobs={"output_after_kill": "keep"}, faults=[fault(after_s)]
        ) as stage:
            stage.client.push("killed-one", "pass")
            stage.later(60)
            assert stage.client.status("killed-one")["status"] == "CANCEL_ACKNOWLEDGED"
            assert set(stage.client.files("killed-one")) == kept
            assert stage.client.log("killed-one") == "hello\n"


def test_a_kill_that_waits_for_an_output(tmp_path: Path) -> None:
    fault = {"kill_session": {"when_output": "deep/*/file", "after_s": 5, "as": "error"}}
    with staged(tmp_path, plain(60, deep__er__file="x"), faults=[fault]) as stage:
        stage.client.push("killed-one", "pass")
        began = stage.clock.now()
        stage.later(60)
        (session,) = stage.kaggle.sessions()
        assert session.ended == began + 35
        assert session.status == "ERROR"


def test_the_limit_comes_first(tmp_path: Path) -> None:
    with staged(tmp_path, plain(3600)) as stage:
        stage.client.push("too-long", "pass", sessionTimeoutSeconds=600)
        stage.later(600)
        status = stage.client.status("too-long")
        assert status["status"] == "CANCEL_ACKNOWLEDGED"
        assert "exceeded the max allowed execution duration" in status["failureMessage"]


def test_a_cancel_takes_what_is_there(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60, a="x"), knobs={"output_after_cancel": "keep"}) as stage:
        stage.client.push("called-off", "pass")
        stage.later(45)
        (session,) = stage.kaggle.sessions()
        stage.client.rpc("CancelKernelSession", kernelSessionId=session.id)
        assert stage.client.status("called-off") == {"status": "CANCEL_ACKNOWLEDGED"}
        assert stage.client.files("called-off") == {"a": b"x"}


def test_it_outlives_its_server(tmp_path: Path) -> None:
    clock = FakeClock()
    with LocalKaggle(tmp_path, clock=clock, actor=lambda scene: plain(60, a="x")) as kaggle:
        Client(kaggle.url, adapter=kaggle.adapter).push("goes-on", "pass")
        clock.sleep(30)
    clock.sleep(30)
    with LocalKaggle(tmp_path, clock=clock) as kaggle:
        client = Client(kaggle.url, adapter=kaggle.adapter)
        assert client.status("goes-on") == {"status": "COMPLETE"}
        assert client.files("goes-on") == {"a": b"x"}
        assert client.log("goes-on") == "hello\nbye\n"


def test_its_scene_is_what_a_process_would_find(tmp_path: Path) -> None:
    with staged(tmp_path, plain(60, a="x")) as stage:
        stage.client.push("first-one", "print(1)\n")
        stage.later(60)
        stage.client.push("second-one", "print(2)\n", kernelDataSources=["me/first-one"], machineShape="NvidiaTeslaT4")
        first, second = stage.scenes
        assert (first.source, first.gpu, first.mounts) == ("print(1)\n", False, ())
        assert second.gpu
        assert [m.target for m in second.mounts] == ["first-one", "notebooks/me/first-one"]
        assert (Path(second.mounts[0].source) / "a").read_text() == "x"


def test_scripts_for_a_server_in_another_process(server: LocalServer, client: Client) -> None:
    kernel = f"{client.user}/played-one"
    admin.add_scripts(
        server.url,
        [
            {"kernel": kernel, "number": 1, "after_s": 0.2, "code": 3, "log": "oh no\n"},
            {"kernel": kernel, "after_s": 0.1, "output": {"a/b.txt": "text", "early": {"at_s": 0, "text": "e"}}},
        ],
    )
    client.push("played-one", "raise SystemExit('never run')")
    assert client.wait("played-one") == {"status": "ERROR"}
    assert client.log("played-one") == "oh no\n"
    client.push("played-one", "raise SystemExit('never run')")
    assert client.wait("played-one", 2) == {"status": "COMPLETE"}
    assert client.files("played-one", 2) == {"a/b.txt": b"text", "early": b"e"}


def test_a_live_log_of_a_session_without_a_process(server: LocalServer, client: Client) -> None:
    said = [{"at_s": 0, "text": "one\n"}, {"at_s": 1.0, "text": "two\n"}]
    admin.add_scripts(server.url, [{"kernel": f"{client.user}/talker", "after_s": 1.5, "log": said}])
    client.push("talker", "pass")
    url = f"{server.url}/v1/kernels/logs/stream/{client.user}/talker?versionLabel=v1"
    with client.http.get(url, stream=True, timeout=30) as response:
        lines = [line[6:] for line in response.iter_lines(decode_unicode=True) if line]
    assert [json.loads(line)["data"] for line in lines[:-1]] == ["one\n", "two\n"]
    assert lines[-1] == "END_OF_LOG"
    until(lambda: client.status("talker")["status"] == "COMPLETE")


@pytest.mark.parametrize(
    ("casting", "complaint"),
    [
        ({}, "after_s: expected seconds"),
        ([], "is an object"),
        ({"after_s": 1, "then": 2}, "unknown key 'then'"),
        ({"after_s": 1, "as": "magic"}, "exit, limit, memory"),
        ({"after_s": 1, "as": ["exit"]}, "exit, limit, memory"),
        ({"after_s": 1, "code": 300}, "an exit code"),
        ({"after_s": 1, "number": 0}, "from 1"),
        ({"after_s": 1, "kernel": "x"}, "owner/slug"),
        ({"after_s": 1, "output": {"../x": "y"}}, "not a file below"),
        ({"after_s": 1, "output": {"/x": "y"}}, "not a file below"),
        ({"after_s": 1, "output": {"x": 3}}, "expected a text"),
        ({"after_s": 1, "output": {"x": {"at": 3}}}, "at_s and text"),
        ({"after_s": 1, "log": 3}, "expected a text"),
    ],
)
def test_scripts_that_can_not_be_meant(casting: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_casting(casting)
