"""Each kind of scripted fault over real HTTP or in-process: what the client sees, how often, and how long."""

import time
from pathlib import Path
from typing import Any

import pytest
import requests

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from tests.localkaggle.client import Client, until
from tests.localkaggle.stage import plain, staged

LIST = {"rpc": "ListKernels"}


def statuses(client: Client, count: int) -> list[int]:
    return [client.post("ListKernels", {}).status_code for _ in range(count)]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({}, [500, 200, 200, 200, 200, 200]),
        ({"number": 3}, [200, 200, 500, 200, 200, 200]),
        ({"every": 2}, [200, 500, 200, 500, 200, 500]),
        ({"first": 2}, [500, 500, 200, 200, 200, 200]),
        ({"chance": 1}, [500] * 6),
        ({"chance": 0}, [200] * 6),
    ],
)
def test_which_calls_fail(tmp_path: Path, when: dict[str, Any], expected: list[int]) -> None:
    with staged(tmp_path, faults=[{**LIST, **when}]) as stage:
        assert statuses(stage.client, 6) == expected


def test_chance_is_the_seed_s(tmp_path: Path) -> None:
    seen = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        with staged(tmp_path / name, knobs={"seed": seed}, faults=[{**LIST, "chance": 0.5}]) as stage:
            seen.append(statuses(stage.client, 40))
    assert seen[0] == seen[1] != seen[2]
    assert 8 < seen[0].count(500) < 32


def test_a_fault_may_pass(tmp_path: Path) -> None:
    with staged(tmp_path, faults=[{**LIST, "every": 1, "for_s": 60, "status": 503}]) as stage:
        assert statuses(stage.client, 2) == [503, 503]
        stage.later(60)
        assert statuses(stage.client, 2) == [200, 200]


@pytest.mark.parametrize(
    ("form", "status", "text"),
    [
        ({"status": 200, "body": "html"}, 200, "<!DOCTYPE html>"),
        ({"status": 200, "body": "text"}, 200, "upstream connect error"),
        ({"status": 200, "body": "empty"}, 200, ""),
        ({"status": 200, "body": "cut"}, 200, '{"ref": "/co'),
        ({"status": 200, "body": "list"}, 200, "[1]"),
        ({"status": 429, "body": "nested"}, 429, '{"error":{"code":429'),
        ({"status": 502, "body": "html"}, 502, "<!DOCTYPE html>"),
    ],
)
def test_answers_that_are_none(tmp_path: Path, form: dict[str, Any], status: int, text: str) -> None:
    with staged(tmp_path, faults=[{**LIST, **form}]) as stage:
        answer = stage.client.post("ListKernels", {})
        assert answer.status_code == status
        assert answer.text.startswith(text)


def test_a_refusal_comes_as_200(tmp_path: Path) -> None:
    with staged(
        tmp_path, faults=[{"rpc": "SaveKernel", "refuse": "Maximum batch GPU session count of 2 reached."}]
    ) as stage:
        answer = stage.client.rpc("SaveKernel", **stage.client.request("refused-one", "pass"))
        assert answer == {"error": "Maximum batch GPU session count of 2 reached."}
        assert stage.client.rpc("ListKernels", group="PROFILE") == {"kernels": []}


def test_throttling_by_script_tells_the_wait(tmp_path: Path) -> None:
    with staged(tmp_path, faults=[{"rpc": "*", "status": 429, "retry_after": 7}]) as stage:
        assert stage.client.post("ListKernels", {}).headers["retry-after"] == "7"


@pytest.mark.parametrize("landing", [True, False])
def test_a_connection_is_cut(server: LocalServer, client: Client, landing: bool) -> None:
    admin.add_faults(server.url, [{"rpc": "SaveKernel", "reset": True, "after_landing": landing}])
    with pytest.raises(requests.ConnectionError):
        client.post("SaveKernel", client.request("cut-off", "pass"))
    found = client.post("GetKernel", {"userName": client.user, "kernelSlug": "cut-off"})
    assert found.status_code == (200 if landing else 403)


def test_a_server_that_says_nothing(server: LocalServer, client: Client) -> None:
    admin.add_faults(server.url, [{"rpc": "ListKernels", "silence": True}])
    began = time.monotonic()
    with pytest.raises(requests.ReadTimeout):
        client.http.post(f"{server.url}/v1/kernels.KernelsApiService/ListKernels", json={}, timeout=0.5)
    assert time.monotonic() - began >= 0.5
    assert client.post("ListKernels", {}).status_code == 200


def test_a_late_answer(server: LocalServer, client: Client) -> None:
    admin.add_faults(server.url, [{"rpc": "ListKernels", "delay_s": 0.4}])
    began = time.monotonic()
    assert client.post("ListKernels", {}).status_code == 200
    assert time.monotonic() - began >= 0.4


def test_in_process_faults_are_the_same_exceptions(tmp_path: Path) -> None:
    faults = [{**LIST, "number": 1, "silence": True}, {**LIST, "number": 2, "reset": True}]
    with staged(tmp_path, faults=faults) as stage:
        with pytest.raises(requests.ReadTimeout):
            stage.client.post("ListKernels", {})
        with pytest.raises(requests.ConnectionError):
            stage.client.post("ListKernels", {})
        assert stage.client.post("ListKernels", {}).status_code == 200


def output(client: Client, server: LocalServer) -> str:
    """The address of an output of 1 MB."""
    client.push("has-output", "open('data.bin', 'wb').write(bytes(range(250)) * 4000)")
    assert client.wait("has-output")["status"] == "COMPLETE"
    (file,) = client.output("has-output")["files"]
    return str(file["url"])


def test_a_download_breaks_off(server: LocalServer, client: Client) -> None:
    url = output(client, server)
    admin.add_faults(server.url, [{"download": "data.bin", "break_at": 0.6}])
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        client.get(url)
    admin.add_faults(server.url, [{"download": "*.bin", "break_at": 0.6}])
    got = b""
    with requests.get(url, stream=True, timeout=30) as response:
        try:
            for block in response.iter_content(10_000):
                got += block
        except requests.exceptions.ChunkedEncodingError:
            pass
    assert 0 < len(got) <= 600_000
    rest = client.get(url, Range=f"bytes={len(got)}-", **{"If-Range": response.headers["etag"]})
    assert rest.status_code == 206
    assert got + rest.content == bytes(range(250)) * 4000


def test_a_file_is_replaced_on_its_way(server: LocalServer, client: Client) -> None:
    url = output(client, server)
    admin.add_faults(server.url, [{"download": "**", "swap": True}])
    with requests.get(url, stream=True, timeout=30) as response:
        etag = response.headers["etag"]
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            response.content  # noqa: B018
    again = client.get(url, Range="bytes=1000-", **{"If-Range": etag})
    assert again.status_code == 200, "not the rest of another file"
    assert again.headers["etag"] != etag
    assert again.content != bytes(range(250)) * 4000
    assert len(again.content) == 1_000_000


@pytest.mark.parametrize(("form", "status"), [({"status": 503}, 503), ({"expire": True}, 403)])
def test_a_download_is_refused(server: LocalServer, client: Client, form: dict[str, Any], status: int) -> None:
    url = output(client, server)
    admin.add_faults(server.url, [{"download": "data.bin", **form}])
    assert client.get(url).status_code == status
    assert client.get(url).status_code == 200


def test_one_byte_differs(server: LocalServer, client: Client) -> None:
    url = output(client, server)
    admin.add_faults(server.url, [{"download": "data.bin", "flip": True}])
    wrong, right = client.get(url), client.get(url)
    assert wrong.headers["etag"] == right.headers["etag"]
    assert sum(a != b for a, b in zip(wrong.content, right.content, strict=True)) == 1


def test_a_download_is_not_answered(server: LocalServer, client: Client) -> None:
    url = output(client, server)
    admin.add_faults(server.url, [{"download": "data.bin", "silence": True}])
    with pytest.raises(requests.ReadTimeout):
        requests.get(url, timeout=0.5)


def test_a_status_that_lies(tmp_path: Path) -> None:
    faults = [
        {"lie": "COMPLETE", "kernel": "me/early-lie", "for_s": 90, "from": "start"},
        {"lie": "RUNNING", "kernel": "me/late-lie", "for_s": 7200, "from": "end"},
    ]
    with staged(tmp_path, plain(600), faults=faults) as stage:
        stage.client.push("early-lie", "pass")
        stage.client.push("late-lie", "pass")
        assert stage.client.status("early-lie") == {"status": "COMPLETE"}
        stage.later(90)
        assert stage.client.status("early-lie") == {"status": "RUNNING"}
        stage.later(510 + 7199)
        assert stage.client.status("late-lie") == {"status": "RUNNING"}
        stage.later(1)
        assert stage.client.status("late-lie") == {"status": "COMPLETE"}


def test_a_session_without_its_gpu_its_mounts_or_its_output(tmp_path: Path) -> None:
    faults: list[dict[str, Any]] = [
        {"no_gpu": {"number": 2}},
        {"no_mount": {"kernel": "me/the-reader"}},
        {"lose_output": {"number": 2, "names": "a*"}},
    ]
    gpu = {"machineShape": "NvidiaTeslaT4"}
    with staged(tmp_path, plain(60, abc="x", bcd="y"), faults=faults) as stage:
        stage.client.push("the-source", "pass", **gpu)
        stage.later(60)
        for _ in range(2):
            stage.client.push("the-reader", "pass", kernelDataSources=["me/the-source"], **gpu)
            stage.later(60)
        assert [scene.gpu for scene in stage.scenes] == [True, False, True]
        assert [len(scene.mounts) for scene in stage.scenes] == [0, 0, 2]
        assert sorted(stage.client.files("the-source")) == ["abc", "bcd"]
        assert sorted(stage.client.files("the-reader", 1)) == ["bcd"]
        assert sorted(stage.client.files("the-reader", 2)) == ["abc", "bcd"]


def test_a_fault_s_count_outlives_the_server(tmp_path: Path) -> None:
    with staged(tmp_path, faults=[{**LIST, "number": 3}]) as stage:
        assert statuses(stage.client, 2) == [200, 200]
    with staged(tmp_path) as stage:
        assert statuses(stage.client, 2) == [500, 200]


def test_a_session_that_needs_too_much_memory(fresh: Any) -> None:
    server = fresh()
    admin.set_knobs(server.url, {"memory_bytes": 200 << 20})
    client = Client(server.url)
    client.push("greedy-one", "x = bytearray(400 << 20)\nimport time; time.sleep(60)")
    status = client.wait("greedy-one")
    assert status["status"] == "ERROR"
    assert "tried to allocate more memory" in status["failureMessage"]


def test_a_warning_before_the_kill(fresh: Any) -> None:
    server = fresh()
    admin.set_knobs(server.url, {"sigterm_before_kill_s": 2, "output_after_kill": "keep"})
    client = Client(server.url)
    source = """
        import os, signal, time
        signal.signal(signal.SIGTERM, lambda *_: open("warned", "w").close())
        while True: time.sleep(0.05)
    """
    client.push("warned-one", source, sessionTimeoutSeconds=3)
    until(lambda: client.status("warned-one")["status"] == "CANCEL_ACKNOWLEDGED")
    assert client.files("warned-one") == {"warned": b""}


def test_no_warning_as_a_rule(server: LocalServer, client: Client, turn: Any) -> None:
    turn(output_after_kill="keep")
    source = """
        import os, signal, time
        signal.signal(signal.SIGTERM, lambda *_: open("warned", "w").close())
        while True: time.sleep(0.05)
    """
    client.push("unwarned-one", source, sessionTimeoutSeconds=1)
    until(lambda: client.status("unwarned-one")["status"] == "CANCEL_ACKNOWLEDGED")
    assert client.files("unwarned-one") == {}


def test_each_answer_takes_its_time(fresh: Any) -> None:
    server = fresh()
    admin.set_knobs(server.url, {"latency_ms": 300})
    client, began = Client(server.url), time.monotonic()
    client.post("ListKernels", {})
    assert time.monotonic() - began >= 0.3
    began = time.monotonic()
    assert client.get(f"{server.url}/_kgo/output/1/x?expires=1&signature=x").status_code == 403
    assert time.monotonic() - began >= 0.3, "downloads too"
