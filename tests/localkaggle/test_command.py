"""``kgo local``: serve in the foreground, ps, stop."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
from click.testing import CliRunner

from kaggle_orchestrator.cli import main
from kaggle_orchestrator.cli.local import command
from kaggle_orchestrator.errors import LocalKaggleError
from kaggle_orchestrator.localkaggle import admin, background
from tests.localkaggle.client import SLEEPS, Client, processes, until

KGO = [sys.executable, "-c", "from kaggle_orchestrator.cli import main; main()"]


@contextmanager
def serving(home: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen(
        [*KGO, "local", "serve", *arguments],
        env=os.environ | {"KGO_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()
        background.stop(home)


def test_serve_prints_its_address_and_ends_cleanly_with_its_sessions(tmp_path: Path) -> None:
    marker = f"kgo-test-{uuid4().hex}"
    with serving(tmp_path, "--knob", "cpu_sessions=1") as (process, url):
        client = Client(url)
        client.push("in-front", SLEEPS.format(marker=marker))
        until(lambda: processes(marker))
        answer = client.rpc("SaveKernel", **client.request("one-too-many", "pass"))
        assert answer == {"error": "Maximum batch CPU session count of 1 reached."}
        found = background.running(tmp_path)
        assert found
        assert found.url == url, "the same server that --local finds"
        with serving(tmp_path) as (second, nothing):
            assert (nothing, second.wait(30)) == ("", 1)
            assert second.stderr
            said = second.stderr.read()
            assert "already serves" in said
            assert "Ctrl-C ends it" in said
            assert background.running(tmp_path) == found
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        assert process.stderr
        told = process.stderr.read()
        assert f"export KAGGLE_API_TOKEN=kgo-local KGO_ENDPOINT={url}" in told
        assert "kgo: sessions run" in told
        assert "Traceback" not in told
    assert processes(marker) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not JSON"),
        ("{}", "expected a list"),
        ('[{"rpc": "Nope"}]', "is not one of"),
        ("[[]]", "an object"),
        ('[{"rpc": ["SaveKernel"]}]', "is not one of"),
        ('[{"kill_session": {"as": {}}}]', "is not one of"),
    ],
)
def test_bad_faults_are_refused_before_anything_starts(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "faults.json").write_text(content)
    arguments = ["local", "serve", "--root", str(tmp_path / "root"), "--faults", str(tmp_path / "faults.json")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2, done
    assert complaint in done.stderr
    assert done.stdout == ""
    assert isinstance(done.exception, SystemExit), "a message, not a traceback"
    assert not (tmp_path / "root").exists()


def test_ps_and_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGO_HOME", str(tmp_path))
    runner = CliRunner()
    empty = runner.invoke(command, ["ps", "--json"])
    assert json.loads(empty.stdout) == {"schema": 1, "server": None, "sessions": []}
    server = background.ensure(tmp_path)
    try:
        Client(server.url).ran("is-listed", "pass")
        listed = json.loads(runner.invoke(command, ["ps", "--json"]).stdout)
        assert listed["server"] == {"url": server.url, "pid": server.pid, "root": str(server.root)}
        assert [(s["kernel"], s["version"], s["status"]) for s in listed["sessions"]] == [
            ("me/is-listed", 1, "COMPLETE")
        ]
        assert "me/is-listed  v1  COMPLETE" in runner.invoke(command, ["ps"]).stdout
        assert "kgo: stopped" in runner.invoke(command, ["stop"]).stderr
        assert background.running(tmp_path) is None
    finally:
        background.stop(tmp_path)
    assert "kgo: no local Kaggle runs" in runner.invoke(command, ["stop"]).stderr


def test_a_profile_and_courses_of_sessions(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text('{"schema": 1, "mount_layout": "flat", "self_mount": "mount"}')
    (tmp_path / "sessions.json").write_text('[{"after_s": 0, "output": {"a": "x"}}]')
    arguments = ["--profile", str(tmp_path / "profile.json"), "--sessions", str(tmp_path / "sessions.json")]
    with serving(tmp_path, *arguments, "--knob", "mount_layout=owner") as (_, url):
        knobs = admin.set_knobs(url, {})
        assert (knobs["mount_layout"], knobs["self_mount"]) == ("owner", "mount"), "--knob goes before"
        client = Client(url)
        client.push("is-played", "raise SystemExit(1)")
        assert client.wait("is-played") == {"status": "COMPLETE"}
        assert client.files("is-played") == {"a": b"x"}


@pytest.mark.parametrize("content", ["{", "{}", '[{"after_s": -1}]'])
def test_bad_courses_are_refused_before_anything_starts(tmp_path: Path, content: str) -> None:
    (tmp_path / "sessions.json").write_text(content)
    arguments = ["local", "serve", "--root", str(tmp_path / "root"), "--sessions", str(tmp_path / "sessions.json")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2, done
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("content", [b"not a database", None])
def test_a_world_that_can_not_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    root = tmp_path / "local-kaggle"
    root.mkdir()
    if content is None:
        (root / "world.sqlite").mkdir()
    else:
        (root / "world.sqlite").write_bytes(content)
    with serving(tmp_path) as (process, address):
        assert (address, process.wait(30)) == ("", 1)
        assert process.stderr
        told = process.stderr.read()
    assert "Traceback" not in told
    assert f"kgo: The world in {root} " in told
    assert ("Check the free space" if content is None else "Move the folder away") in told
    with pytest.raises(LocalKaggleError, match=f"did not start:\\nThe world in {root} ") as refused:
        background.ensure(tmp_path)
    assert "Traceback" not in refused.value.message


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\n{",
    ],
)
def test_whatever_else_listens_is_no_local_kaggle(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reply() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = Thread(target=reply)
        thread.start()
        with pytest.raises(LocalKaggleError):
            admin.health(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
