"""A server, a keeper or a session's first process killed with SIGKILL loses nothing that it shouldn't."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.spec import is_locked
from kaggle_orchestrator.localkaggle.world import World
from tests.localkaggle.client import SLEEPS, WAITS, Client, processes, until


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}/stat").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def keeper_of(server: LocalServer, session: int) -> int:
    found = processes(str(server.root / "sessions" / str(session)))
    assert found
    return min(found)  # its first process is a fork of it, with the same command line


def test_a_session_outlives_its_server(fresh: Callable[[], LocalServer]) -> None:
    server = fresh()
    client = Client(server.url)
    client.push("goes-on", f"print('a')\n{WAITS}print('b'); open('done', 'w').write('1')")
    client.push("is-limited", "import time; time.sleep(600)", sessionTimeoutSeconds=1)
    kill(server.pid)
    again = fresh()
    assert again.pid != server.pid
    client = Client(again.url)
    assert client.status("goes-on") == {"status": "RUNNING"}
    client.let_go("goes-on")
    assert client.wait("goes-on") == {"status": "COMPLETE"}
    assert client.files("goes-on") == {"done": b"1", "go": b""}
    assert client.log("goes-on") == "a\nb\n"
    assert client.wait("is-limited")["status"] == "CANCEL_ACKNOWLEDGED"
    assert client.push("goes-on", "pass") == 2


def test_what_ended_while_no_server_ran_is_found_and_what_never_started_is_started(
    fresh: Callable[[], LocalServer], tmp_path: Path
) -> None:
    server = fresh()
    client = Client(server.url)
    client.push("ends-alone", "import time; time.sleep(0.4); open('done', 'w').write('1'); print('ran')")
    kill(server.pid)
    until(lambda: not is_locked(server.root / "sessions" / "1001" / "lock"))
    assert background.running(tmp_path / "home") is None
    world = World(server.root)  # as if the server had been killed right after noting another push
    kernel = world.kernels()[0]
    version = world.version(kernel, 1)
    assert version
    number = world.add_version(kernel, version.source, version.settings, 0.0)
    world.add_session(kernel, number, False, 60.0, 0.0)
    world.close()
    client = Client(fresh().url)
    assert client.status("ends-alone", 1) == {"status": "COMPLETE"}
    assert client.files("ends-alone", 1) == {"done": b"1"}
    assert client.wait("ends-alone", 2) == {"status": "COMPLETE"}
    assert client.log("ends-alone", 2) == "ran\n"


@pytest.mark.parametrize("mode", ["server", "unboxed"])
def test_a_killed_keeper_takes_its_session_with_it(request: pytest.FixtureRequest, mode: str) -> None:
    server: LocalServer = request.getfixturevalue(mode)
    client = Client(server.url, f"kgo-local-user-{uuid4().hex[:8]}")
    marker = f"kgo-test-{uuid4().hex}"
    client.push("loses-keeper", SLEEPS.format(marker=marker))
    until(lambda: processes(marker))
    number = next(s.id for s in admin.sessions(server.url) if s.kernel == f"{client.user}/loses-keeper")
    kill(keeper_of(server, number))
    assert client.wait("loses-keeper") == {"status": "ERROR"}
    until(lambda: not processes(marker), 3)


def test_faults_and_knobs_outlive_a_server(fresh: Callable[[], LocalServer]) -> None:
    server = fresh()
    admin.add_faults(server.url, [{"rpc": "ListKernels", "number": 2, "status": 500}])
    admin.set_knobs(server.url, {"gpu_sessions": 7})
    client = Client(server.url)
    assert client.post("ListKernels", {}).status_code == 200
    kill(server.pid)
    client = Client(fresh().url)
    assert [client.post("ListKernels", {}).status_code for _ in range(3)] == [500, 200, 200]
    assert admin.set_knobs(client.url, {})["gpu_sessions"] == 7


def test_what_another_version_of_kgo_noted_is_passed_over(fresh: Callable[[], LocalServer]) -> None:
    server = fresh()
    admin.set_knobs(server.url, {"gpu_sessions": 7})
    kill(server.pid)
    world = World(server.root)
    world.set_fact("knobs", {**world.fact("knobs"), "of_another_version": 1, "overflow": "explode"})
    world.add_faults([{"of_another_version": 1}], 0.0)
    world.close()
    client = Client(fresh().url)
    knobs = admin.set_knobs(client.url, {})
    assert (knobs["gpu_sessions"], knobs["overflow"]) == (7, "lose")
    assert client.ran("runs-all-the-same", "print('ran')") == "ran\n"
