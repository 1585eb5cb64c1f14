"""The local Kaggle without sockets is the same to its client: answers, errors, threads; and it needs no real time."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from kaggle_orchestrator.client import connect
from kaggle_orchestrator.clock import FakeClock, SystemClock
from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.inprocess import LocalKaggle
from kaggle_orchestrator.localkaggle.scripted import Scene, Script, Write
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.models import KernelRef, PushRequest, SessionStatus
from tests.localkaggle.client import KERNELS, Client, until
from tests.localkaggle.stage import plain, staged

REF = KernelRef("me", "some-thing")
PUSH = PushRequest(ref=REF, title="Some Thing", source="pass")
OFFER: dict[str, Any] = {"after_s": 0, "output": {"a.bin": "x" * 100_000, "empty": "", "deep/é ü.txt": "y"}}


def heads(answer: requests.Response) -> dict[str, str]:
    """Headers that say something of the answer."""
    names = ("content-type", "content-length", "content-range", "accept-ranges", "location")
    return {name: answer.headers[name] for name in names if name in answer.headers}


def told(call: Callable[[], requests.Response], base: str) -> tuple[Any, ...]:
    """An answer, or the exception there was, without what differs between two servers."""
    try:
        answer = call()
        body = answer.content if len(answer.content) > 10_000 else answer.text.replace(base, "")
        seen = {name: value.split("?")[0].replace(base, "") for name, value in heads(answer).items()}
        if body not in (answer.text, answer.content):
            del seen["content-length"]  # it counts the address, too
        return answer.status_code, answer.reason, answer.encoding, seen, body
    except requests.RequestException as error:
        inner = error.args[0]
        return type(error), type(inner), type(inner.args[-1]) if isinstance(inner, Exception) else None


def conversation(client: Client) -> list[tuple[Any, ...]]:
    """Ask for all sorts of things."""
    url, http = client.url, client.http

    def post(rpc: str, **fields: Any) -> tuple[Any, ...]:
        return told(lambda: client.post(rpc, fields), url)

    def get(address: str, method: str = "GET", **headers: str) -> tuple[Any, ...]:
        return told(lambda: http.request(method, address, headers=headers, timeout=10, allow_redirects=False), url)

    heard = [post("SaveKernel", **client.request("some-thing", "pass"))]
    until(lambda: client.status("some-thing")["status"] == "COMPLETE")
    files = {f["fileName"]: f["url"] for f in client.output("some-thing")["files"]}
    heard += [(name, *get(files[name])[1:]) for name in sorted(files)]
    heard += [get(files["a.bin"], Range="bytes=99990-"), get(files["a.bin"], Range="bytes=100000-")]
    heard += [get(files["a.bin"], "HEAD"), get(files["a.bin"] + "0"), get(f"{url}/v1/nothing?x=1")]
    heard += [get(f"{url}/v1/kernels/logs/stream/me/some-thing"), get(f"{url}/", "PUT"), get(f"{url}/%2e%2e/x")]
    named = {"ownerSlug": "me", "kernelSlug": "some-thing", "filePath": "deep/é ü.txt"}
    heard += [post("DownloadKernelOutput", **named)]
    heard += [post("GetKernelSessionStatus", userName="me", kernelSlug="some-thing", versionLabel="1")]
    heard += [told(lambda: http.post(f"{url}/v1/{KERNELS}/ListKernels", data=b"{", timeout=10), url)]
    pieces = [b'{"userName": "me", ', b'"kernelSlug": "some-thing"}']
    status = f"{url}/v1/{KERNELS}/GetKernelSessionStatus"
    heard += [told(lambda: http.post(status, data=iter(pieces), timeout=10), url)]
    return heard


def failures(client: Client, add: Callable[[list[dict[str, Any]]], None]) -> list[tuple[Any, ...]]:
    """Have things go wrong."""
    url = {f["fileName"]: f["url"] for f in client.output("some-thing")["files"]}["a.bin"]
    heard = []
    calls: list[dict[str, Any]] = [{"silence": True}, {"reset": True}, {"status": 503}, {"status": 520, "body": "html"}]
    for form in calls:
        add([{"rpc": "GetKernel", **form}])
        address = f"{client.url}/v1/{KERNELS}/GetKernel"
        heard.append(told(lambda: client.http.post(address, json={}, timeout=0.5), client.url))  # noqa: B023
    downloads: list[dict[str, Any]] = [{"silence": True}, {"break_at": 0.6}, {"break_at": 0.0}, {"status": 500}]
    for form in [*downloads, {"expire": True}]:
        add([{"download": "a.bin", **form}])
        heard.append(told(lambda: client.http.get(url, timeout=0.5), client.url))
        add([{"download": "a.bin", **form}])
        heard.append(told(lambda: _streamed(client, url), client.url))
    return heard


def _streamed(client: Client, url: str) -> requests.Response:
    with client.http.get(url, stream=True, timeout=0.5) as answer:
        answer._content = b"".join(answer.iter_content(1000))
        return answer


def test_it_answers_and_fails_as_over_a_socket(tmp_path: Path, fresh: Callable[[], LocalServer]) -> None:
    server = fresh()
    admin.add_scripts(server.url, [OFFER])
    over_sockets = Client(server.url)
    said = conversation(over_sockets)
    went_wrong = failures(over_sockets, lambda faults: admin.add_faults(server.url, faults))
    writes = tuple(Write(0, name, text.encode()) for name, text in OFFER["output"].items())
    with staged(tmp_path / "in-process", Script(0.0, writes=writes)) as stage:
        assert conversation(stage.client) == said
        assert failures(stage.client, stage.kaggle.add_faults) == went_wrong
    kinds = {entry[0] for entry in went_wrong}
    assert {requests.ReadTimeout, requests.ConnectionError, requests.exceptions.ChunkedEncodingError} <= kinds


def test_many_threads_at_once(tmp_path: Path) -> None:
    output = {f"file-{n:03}": str(n) * 1000 for n in range(200)}
    with staged(tmp_path, plain(60, **output)) as stage:
        stage.client.push("some-thing", "pass")
        stage.later(60)
        files = {f["fileName"]: f["url"] for f in stage.client.output("some-thing", pageSize=200)["files"]}
        ready = threading.Barrier(32)

        def fetch(part: int) -> dict[str, str]:
            client = Client(stage.kaggle.url, adapter=stage.kaggle.adapter)
            ready.wait(30)
            return {name: client.get(url).text for name, url in list(files.items())[part::32]}

        with ThreadPoolExecutor(32) as pool:
            found = {name: text for part in pool.map(fetch, range(32)) for name, text in part.items()}
        assert found == output


def test_the_client_of_kgo_and_days_without_waiting(tmp_path: Path) -> None:
    clock, began = FakeClock(), time.monotonic()

    def actor(scene: Scene) -> Script:
        return plain(scene.limit_s - 600, final="x")

    with (
        LocalKaggle(tmp_path, clock=clock, actor=actor, knobs={"queue_s": 60}) as local,
        connect(local.url, environ={}, clock=clock, adapter=local.adapter) as kaggle,
    ):
        for number in range(1, 11):
            answer = kaggle.push(PUSH)
            assert answer.version == number
            assert kaggle.status(REF, number).status is SessionStatus.QUEUED
            clock.sleep(60)
            assert kaggle.status(REF, number).status is SessionStatus.RUNNING
            clock.sleep(12 * 3600)
            assert kaggle.status(REF, number).status is SessionStatus.COMPLETE
            assert kaggle.read(REF, number, "final") == b"x"
        ended = [session.ended for session in local.sessions()]
    assert ended[-1] is not None
    assert clock.now() - 3600 < ended[-1] < clock.now(), "five days went by"
    assert time.monotonic() - began < 60


@pytest.mark.usefixtures("full_box")
def test_a_session_that_the_actor_leaves_is_a_real_process(tmp_path: Path) -> None:
    with LocalKaggle(tmp_path, clock=SystemClock(), actor=lambda scene: None) as local:
        client = Client(local.url, adapter=local.adapter)
        assert client.ran("really-runs", "print(6 * 7)") == "42\n"


def test_an_actor_s_mistake_is_told_to_who_asked_and_the_session_waits(tmp_path: Path) -> None:
    mistakes = [ZeroDivisionError("the actor's own")]

    def actor(scene: Scene) -> Script:
        if mistakes:
            raise mistakes.pop()
        return plain(60, a="x")

    with staged(tmp_path, actor, knobs={"queue_s": 10}) as stage:
        stage.client.push("some-thing", "pass")
        stage.later(10)
        with pytest.raises(ZeroDivisionError, match="the actor's own"):
            stage.client.status("some-thing")
        stage.later(60)
        assert stage.client.status("some-thing") == {"status": "COMPLETE"}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [({"knobs": {"no_knob": 1}}, "no knob 'no_knob'"), ({"faults": [{"rpc": "Nonsense"}]}, "is not one of")],
)
def test_a_wrong_beginning_leaves_nothing_open(tmp_path: Path, wrong: dict[str, Any], complaint: str) -> None:
    before = threading.active_count()
    with pytest.raises(UsageError, match=complaint), LocalKaggle(tmp_path, clock=FakeClock(), **wrong):
        pass
    assert threading.active_count() == before
    world = World(tmp_path)
    assert world.faults() == []
    world.close()
    with LocalKaggle(tmp_path, clock=FakeClock()) as local:
        assert local.sessions() == []
