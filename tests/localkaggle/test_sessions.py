"""Sessions are real processes with Kaggle's surroundings, rules and endings."""

import json
import time
import venv
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.sessions import TOO_LONG
from tests.localkaggle.client import WAITS, Client, processes, until

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", "{marker}"])
    os._exit(0)
print("ready")
"""


def test_a_good_end_keeps_output_and_log(client: Client) -> None:
    log = client.ran(
        "good-end",
        """
        import os, sys
        print("out")
        print("err", file=sys.stderr)
        os.makedirs("sub/deep")
        open("sub/deep/a b+é.txt", "w").write("nested")
        os.symlink("/etc/passwd", "link")
        """,
    )
    assert sorted(log.splitlines()) == ["err", "out"]
    assert client.log("good-end", stream="stderr") == "err\n"
    assert client.files("good-end") == {"sub/deep/a b+é.txt": b"nested"}
    listed = client.rpc("ListKernelFiles", userName=client.user, kernelSlug="good-end")["files"]
    assert [(f["name"], f["size"]) for f in listed] == [("sub/deep/a b+é.txt", 6)]


def test_a_bad_end_is_an_error_and_drops_the_output(client: Client) -> None:
    client.push("bad-end", "open('a', 'w').write('x'); raise SystemExit(3)")
    client.push("dead-end", "import os; os.kill(os.getpid(), 9)")
    assert client.wait("bad-end") == {"status": "ERROR"}
    assert client.wait("dead-end") == {"status": "ERROR"}
    assert client.files("bad-end") == {}


def test_status_and_output_are_exact_to_the_version(client: Client) -> None:
    for text in ("one", "two"):
        client.push("exact-version", f"open('{text}', 'w').write('{text}')")
        client.wait("exact-version")
    assert client.push("exact-version", "raise SystemExit(1)") == 3
    client.wait("exact-version", 3)
    assert [client.status("exact-version", v)["status"] for v in (1, 2, 3)] == ["COMPLETE", "COMPLETE", "ERROR"]
    assert client.status("exact-version")["status"] == "ERROR"
    assert client.files("exact-version", 1) == {"one": b"one"}
    assert client.files("exact-version", 2) == {"two": b"two"}
    assert client.files("exact-version") == {}
    names = {"userName": client.user, "kernelSlug": "exact-version"}
    source = client.rpc("GetKernel", **names, versionLabel="v1")
    assert source["blob"]["source"] == "open('one', 'w').write('one')"
    assert source["metadata"]["currentVersionNumber"] == 3
    for label in ("2", "v9", "v0", "vv1"):
        assert client.post("GetKernelSessionStatus", names | {"versionLabel": label}).status_code == 404


def test_the_surroundings_are_kaggles(client: Client, full_box: None) -> None:
    log = client.ran(
        "inside-view",
        """
        import json, os, sys
        print(json.dumps({"cwd": os.getcwd(), "env": dict(os.environ), "stdin": sys.stdin.read(), "name": __name__,
                          "root": sorted(os.listdir("/kaggle")), "file": __file__, "uid": os.getuid()}))
        """,
        machineShape="NvidiaTeslaT4",
        sessionTimeoutSeconds=300,
    )
    inside = json.loads(log)
    assert inside["cwd"] == "/kaggle/working"
    assert inside["root"] == ["input", "src", "working"]
    assert inside["file"] == "/kaggle/src/script.py"
    assert (inside["stdin"], inside["name"], inside["uid"]) == ("", "__main__", 0)
    environment = inside["env"]
    assert environment["KAGGLE_KERNEL_RUN_TYPE"] == "Batch"
    assert environment["HOME"] == "/root"
    assert environment["KGO_SIMULATED_ACCELERATOR"] == "NvidiaTeslaT4"
    assert environment["KGO_SESSION_LIMIT_S"] == "300"
    assert abs(float(environment["KGO_SESSION_START"]) - time.time()) < 60
    assert "KGO_KAGGLE_ROOT" not in environment


def test_nothing_outlives_the_time_limit(client: Client) -> None:
    marker = f"kgo-test-{uuid4().hex}"
    source = DAEMON.format(marker=marker) + "open('saved', 'w').close()\ntime.sleep(600)\n"
    client.push("too-long", source, sessionTimeoutSeconds=2)
    until(lambda: processes(marker))
    assert client.wait("too-long") == {"status": "CANCEL_ACKNOWLEDGED", "failureMessage": TOO_LONG}
    assert processes(marker) == []
    assert client.files("too-long") == {}
    assert client.log("too-long") == "ready\n"


def test_nothing_outlives_the_script(client: Client) -> None:
    marker = f"kgo-test-{uuid4().hex}"
    client.ran("left-over", DAEMON.format(marker=marker) + "time.sleep(0.3)")
    assert processes(marker) == []


def test_a_cancel_by_the_session_s_own_number(client: Client, server: LocalServer) -> None:
    client.push("cancel-me", "import os, time; print(os.environ['KAGGLE_CONTAINER_NAME']); time.sleep(600)")
    number = next(s.id for s in admin.sessions(server.url) if s.kernel == f"{client.user}/cancel-me")
    stranger = Client(server.url, "kgo-local-stranger")
    assert stranger.post("CancelKernelSession", {"kernelSessionId": number}).status_code == 403
    assert client.rpc("CancelKernelSession", kernelSessionId=number) == {}
    assert client.wait("cancel-me") == {"status": "CANCEL_ACKNOWLEDGED"}
    assert client.post("CancelKernelSession", {"kernelSessionId": 1 << 50}).status_code == 404


def test_a_deleted_kernel_takes_its_session_and_output_with_it(client: Client, server: LocalServer) -> None:
    marker = f"kgo-test-{uuid4().hex}"
    client.push("delete-me", DAEMON.format(marker=marker) + "time.sleep(600)")
    until(lambda: processes(marker))
    folder = next(s.output for s in admin.sessions(server.url) if s.kernel == f"{client.user}/delete-me")
    names = {"userName": client.user, "kernelSlug": "delete-me"}
    assert client.rpc("DeleteKernel", **names) == {}
    assert processes(marker) == []
    assert not folder.exists()
    assert client.post("GetKernelSessionStatus", names).status_code == 403
    assert client.post("DeleteKernel", names).status_code == 403


def test_another_interpreter(client: Client, server: LocalServer, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="doesn't run"):
        admin.configure_kernel(server.url, f"{client.user}/other-python", "/nowhere/python")
    venv.create(tmp_path, symlinks=True)
    admin.configure_kernel(server.url, f"{client.user}/other-python", tmp_path / "bin" / "python")
    assert client.ran("other-python", "import sys; print(sys.prefix)") == f"{tmp_path}\n"


def test_the_live_log_streams_from_the_start_and_ends_with_its_mark(client: Client) -> None:
    client.push("live-log", f"print('first')\n{WAITS}print('last')")
    url = f"{client.url}/v1/kernels/logs/stream/{client.user}/live-log"
    for connection in (1, 2):  # the second replays
        response = client.http.get(url, stream=True, timeout=30, params={"versionLabel": "v1"})
        assert response.headers["Content-Type"].startswith("text/event-stream")
        lines = (line.removeprefix("data: ") for line in response.iter_lines(decode_unicode=True) if line)
        assert json.loads(next(lines))["data"] == "first\n"
        if connection == 2:
            client.let_go("live-log")
            rest = list(lines)
            assert json.loads(rest[0])["data"] == "last\n"
            assert rest[-1] == "END_OF_LOG"
        response.close()
    client.wait("live-log")
    whole = client.http.get(url, timeout=30)
    assert whole.headers["Content-Type"].startswith("application/json")
    assert [r["data"] for r in whole.json()] == ["first\n", "last\n"]
    assert {r["stream_name"] for r in whole.json()} == {"stdout"}
