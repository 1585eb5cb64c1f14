"""What a session can't do: write what isn't its own, see secrets, reach out without leave."""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.box import _EMPTY
from tests.localkaggle.client import Client

pytestmark = pytest.mark.usefixtures("full_box")


@pytest.fixture
def visible() -> Iterator[Path]:
    """A folder that a session would see if nothing hid it: neither in /tmp nor in the real HOME."""
    cache = Path(__file__).parents[2] / ".pytest_cache"
    cache.mkdir(exist_ok=True)
    hidden = [Path(place) for place in (*_EMPTY, str(Path.home()))]
    places = [p for p in (cache, Path("/srv")) if os.access(p, os.W_OK) and not any(map(p.is_relative_to, hidden))]
    if not places:
        pytest.skip("this checkout lies where sessions see nothing, and /srv can't be written")
    folder = Path(tempfile.mkdtemp(dir=places[0]))
    yield folder
    shutil.rmtree(folder)


def test_secrets_are_out_of_reach(
    fresh: Callable[[], LocalServer], visible: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = visible / "home"
    secret = home / ".kaggle" / "kaggle.json"
    secret.parent.mkdir(parents=True)
    secret.write_text("{}")
    (visible / "plain").write_text("seen")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KAGGLE_API_TOKEN", "KGAT_secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    client = Client(fresh().url)
    log = client.ran(
        "look-around",
        f"""
        import glob, json, os
        def environ(path):
            try:
                return open(path, "rb").read().decode()
            except OSError:
                return ""
        print(json.dumps({{
            "plain": os.path.exists({str(visible / "plain")!r}),
            "home": os.path.exists({str(secret)!r}),
            "listed": os.listdir({str(home)!r}),
            "own_home": os.listdir(os.path.expanduser("~")),
            "tmp": os.listdir("/tmp"),
            "environments": "".join(environ(p) for p in glob.glob("/proc/[0-9]*/environ")),
        }}))
        """,
    )
    seen = json.loads(log)
    assert seen["plain"], "the folder isn't visible at all, so the test shows nothing"
    assert not seen["home"]
    assert seen["listed"] == []
    assert not {".kaggle", ".netrc", ".ssh", ".config"} & set(seen["own_home"])
    assert "KGO_SESSION_START" in seen["environments"]
    assert "secret" not in seen["environments"]


def test_the_machine_and_the_input_are_read_only_for_root_too(
    client: Client, server: LocalServer, tmp_path: Path
) -> None:
    (tmp_path / "row.txt").write_text("data")
    admin.put_dataset(server.url, f"{client.user}/rows", tmp_path)
    log = client.ran(
        "write-about",
        """
        import ctypes, json, os
        libc = ctypes.CDLL(None, use_errno=True)
        def attempt(action):
            try:
                action()
                return "done"
            except OSError as error:
                return error.strerror
        def remount():
            if libc.mount(None, b"/kaggle/input", None, 32 | 4096, None):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        print(json.dumps({
            "append": attempt(lambda: open("/kaggle/input/rows/row.txt", "a")),
            "new": attempt(lambda: open("/kaggle/input/new", "w")),
            "remove": attempt(lambda: os.remove("/kaggle/input/rows/row.txt")),
            "etc": attempt(lambda: open("/etc/kgo-test", "w")),
            "sysctl": attempt(lambda: open("/proc/sys/kernel/core_pattern", "w")),
            "remount": attempt(remount),
            "working": attempt(lambda: open("/kaggle/working/x", "w")),
            "tmp": attempt(lambda: open("/tmp/x", "w")),
            "home": attempt(lambda: open(os.path.expanduser("~/x"), "w")),
            "shm": attempt(lambda: open("/dev/shm/x", "w")),
        }))
        """,
        datasetDataSources=[f"{client.user}/rows"],
    )
    did = json.loads(log)
    assert {did.pop(k) for k in ("working", "tmp", "home", "shm")} == {"done"}
    assert did.pop("remount") == "Operation not permitted"
    assert did.pop("append") in ("Read-only file system", "Permission denied")
    assert set(did.values()) == {"Read-only file system"}
    assert not Path("/dev/shm/x").exists()


def test_of_the_machine_s_devices_only_harmless_ones_are_there(client: Client) -> None:
    """Root could write to a disk or restart the machine without any capability; here it can't even open them."""
    log = client.ran(
        "open-devices",
        """
        import json, os, pty, stat, subprocess
        def attempt(path):
            try:
                os.close(os.open(path, os.O_WRONLY))
                return "opened"
            except OSError as error:
                return error.strerror
        def make(kind):
            try:
                os.mknod("node", kind | 0o666, os.makedev(1, 1))
                return "made"
            except OSError as error:
                return error.strerror
        disks = [n for n in os.listdir("/dev") if stat.S_ISBLK(os.lstat("/dev/" + n).st_mode)]
        open("/dev/null", "w").write("x")
        open("/dev/shm/x", "w").write("x")
        assert len(open("/dev/urandom", "rb").read(8)) == 8
        open("/dev/stderr", "w").write("said" + chr(10))
        main, other = pty.openpty()
        print(json.dumps({
            "disks": disks,
            "made": [make(stat.S_IFBLK), make(stat.S_IFCHR)],
            "terminals": sorted(os.listdir("/dev/pts")),
            "opened": [p for p in ("/dev/kmsg", "/dev/mem", "/dev/kvm", "/dev/fuse", "/dev/loop-control",
                                   "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/proc/irq/default_smp_affinity")
                       if attempt(p) == "opened"],
        }))
        """,
    )
    said, _, seen = log.partition("\n")
    assert said == "said"
    assert json.loads(seen) == {
        "disks": [],
        "made": ["Operation not permitted"] * 2,
        "terminals": ["0", "ptmx"],
        "opened": [],
    }


def test_other_sessions_are_out_of_reach(client: Client, server: LocalServer) -> None:
    client.ran("first-one", "open('mine', 'w').close()")
    (folder,) = (s.output for s in admin.sessions(server.url) if s.kernel == f"{client.user}/first-one")
    assert (folder / "mine").exists()
    world = folder.parents[3]
    assert (world / "world.sqlite").exists()
    log = client.ran(
        "second-one",
        f"""
        import json, os
        print(json.dumps([p for p in {[str(folder), str(world), str(world / "world.sqlite")]!r} if os.path.exists(p)]))
        print(json.dumps([p for p in os.listdir("/proc") if p.isdigit()]))
        """,
    )
    found, processes = map(json.loads, log.splitlines())
    assert found == []
    assert len(processes) == 2, "its first process and itself"
    assert world.stat().st_mode & 0o077 == 0, "nor can other users of the machine"


def test_the_network_is_there_only_when_asked_for(client: Client) -> None:
    source = """
        import json, os, socket
        def reach(port, host="127.0.0.1"):
            try:
                socket.create_connection((host, port), 5).close()
                return True
            except OSError:
                return False
        with socket.socket() as own:
            own.bind(("127.0.0.1", 0))
            own.listen()
            print(json.dumps([reach(PORT), reach(own.getsockname()[1], socket.gethostname())]))
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        source = source.replace("PORT", str(listener.getsockname()[1]))
        off = client.ran("net-off", source, enableInternet=False)
        on = client.ran("net-on", source, enableInternet=True)
    assert json.loads(off) == [False, True]
    assert json.loads(on)[0] is True


def test_only_what_the_interpreter_needs_comes_back_from_a_hidden_folder(client: Client) -> None:
    """The interpreter of these tests may itself lie in HOME or /tmp; it has to run with its packages."""
    assert client.ran("use-packages", "import click, sys; print(sys.prefix != '')") == "True\n"
