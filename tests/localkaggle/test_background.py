"""One server a folder, however many ask; found again, stopped whole, gone when idle."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.errors import LocalKaggleError, UsageError
from kaggle_orchestrator.localkaggle import background, server, spawn
from kaggle_orchestrator.localkaggle.address import lock_path
from kaggle_orchestrator.localkaggle.context import Context
from kaggle_orchestrator.localkaggle.records import Settings
from kaggle_orchestrator.localkaggle.server import Options, serve
from kaggle_orchestrator.localkaggle.spec import End, Ending
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.models import KernelRef
from tests.localkaggle.client import SLEEPS, WAITS, Client, processes, until


def test_eight_at_once_get_one_server(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kaggle_orchestrator.localkaggle import background as b; "
        "s = b.ensure(Path(sys.argv[1])); print(s.pid, s.url)"
    )
    started = time.monotonic()
    try:
        with ThreadPoolExecutor(8) as pool:
            command = [sys.executable, "-c", code, str(tmp_path)]
            answers = set(pool.map(lambda _: subprocess.check_output(command, timeout=60), range(8)))
        assert time.monotonic() - started < 30, "a caller that waits for its output must not wait for the server"
        assert len(answers) == 1
        found = background.running(tmp_path)
        assert found
        assert answers == {f"{found.pid} {found.url}\n".encode()}
        assert len(processes(str(background.root_of(tmp_path)))) == 1
    finally:
        assert background.stop(tmp_path)
    assert background.running(tmp_path) is None
    assert not background.stop(tmp_path)


def test_stop_ends_sessions_too_also_those_of_a_killed_server(tmp_path: Path) -> None:
    for killed in (False, True):
        server = background.ensure(tmp_path)
        marker = f"kgo-test-{uuid4().hex}"
        Client(server.url).push(f"is-stopped-{killed}", SLEEPS.format(marker=marker))
        until(partial(processes, marker))
        if killed:
            os.kill(server.pid, 9)
        background.stop(tmp_path)
        assert processes(marker) == []
        assert processes(str(server.root)) == []
    try:
        status = Client(background.ensure(tmp_path).url).status("is-stopped-False")
    finally:
        background.stop(tmp_path)
    assert status == {"status": "ERROR"}, "a stop of the local Kaggle isn't a cancel by hand"


def test_an_idle_server_ends_but_not_under_a_session(tmp_path: Path) -> None:
    server = background.ensure(tmp_path, idle_s=0.3)
    client = Client(server.url)
    client.push("keeps-awake", WAITS)
    time.sleep(1)
    assert background.running(tmp_path) == server
    client.let_go("keeps-awake")
    until(lambda: background.running(tmp_path) is None)
    until(lambda: not processes(str(server.root)), 5)


def test_a_server_that_can_not_start_says_why(tmp_path: Path) -> None:
    root = background.root_of(tmp_path)
    root.mkdir()
    (root / "world.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(LocalKaggleError, match="not a database"):
        background.ensure(tmp_path)
    assert background.running(tmp_path) is None


def test_a_stale_record_is_not_believed(tmp_path: Path) -> None:
    server = background.ensure(tmp_path)
    try:
        record = (server.root / "server.json").read_text()
        (server.root / "server.json").write_text(record.replace('"nonce": "', '"nonce": "x'))
        assert background.running(tmp_path) is None
        (server.root / "server.json").write_text(record)
        assert background.running(tmp_path) == server
    finally:
        background.stop(tmp_path)


def test_one_that_is_starting_or_ending_is_waited_for(tmp_path: Path) -> None:
    """Its lock is held, but there is nothing yet, or no more, that says where it is."""
    root = background.root_of(tmp_path)
    root.mkdir()
    with ThreadPoolExecutor(1) as pool:
        with spawn.locked(lock_path(root)):
            found = pool.submit(background.ensure, tmp_path)
            time.sleep(0.2)
            assert not found.done()
            assert processes(str(root)) == [], "a second one has no business here"
        try:
            assert found.result(30) == background.running(tmp_path)
        finally:
            background.stop(tmp_path)
        with spawn.locked(lock_path(root)):
            stopped = pool.submit(background.stop, tmp_path)
            time.sleep(0.2)
            assert not stopped.done()
        assert stopped.result(30)


def test_a_world_that_can_not_be_written_for_a_while_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_AFTER_TROUBLE", 0.02)
    monkeypatch.setattr(server, "_TICK", 0.02)
    world = World(tmp_path)
    world._db.execute("PRAGMA busy_timeout = 0")
    context = Context(world, SystemClock(), False, "", "nonce")
    kernel = world.add_kernel(KernelRef("me", "some-kernel"), "Some Kernel", True, 0.0)
    settings = Settings("python", "script", False, False, None, None, (), (), ())
    session = world.add_session(kernel, world.add_version(kernel, "pass", settings, 0.0), False, 60.0, 0.0)
    folder = context.sessions.folder(session)
    folder.working.mkdir(parents=True)
    folder.write_end(End(Ending.EXIT, 3, 0.0, 1.0))
    other = sqlite3.connect(tmp_path / "world.sqlite")
    other.execute("BEGIN IMMEDIATE")

    async def scenario() -> None:
        serving = asyncio.create_task(asyncio.sleep(60))
        waiting = asyncio.create_task(server._until_done(context, None, serving))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        other.rollback()
        while world.sessions(live=True):
            await asyncio.sleep(0.01)
        context.stopping = True
        await waiting
        serving.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 20))
    other.close()
    world.close()


def test_only_loopback_without_a_flag(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "example.com"):
        with pytest.raises(UsageError, match="not loopback") as caught:
            serve(Options(root=tmp_path, host=host), lambda serving: None)
        assert "--public" in (caught.value.hint or "")


def test_a_server_that_goes_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(module: str, arguments: list[str], output: Path) -> "subprocess.Popen[bytes]":
        output.touch()  # as on a full disk
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])

    monkeypatch.setattr(spawn, "start_module", start)
    with pytest.raises(LocalKaggleError, match=r"did not start:\nit said nothing \(exit code 3\)"):
        background.ensure(tmp_path)
