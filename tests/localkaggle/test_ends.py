"""What a session leaves behind, however awkward, is settled: the server goes on, and nothing outside is touched."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.localkaggle import admin, keeper, spec
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.knobs import Knobs
from kaggle_orchestrator.localkaggle.outputs import make_read_only, read_listing, remove_tree, settle_output
from kaggle_orchestrator.localkaggle.spec import End, Ending, SessionFolder
from tests.localkaggle.client import SLEEPS, Client, processes, until

DEEP = """
    import os
    open("shallow", "w").close()
    for _ in range(1500):
        os.mkdir("deeper"); os.chdir("deeper")
    open("bottom", "w").close()
"""
AWKWARD = """
    import os, socket
    open(b"not \\xff utf-8", "w").close()
    os.mkdir(b"nor \\xfe this"); open(b"nor \\xfe this/in", "w").close()
    open("two\\nlines\\n", "w").write("lines")
    open("%2e%2e? #é", "w").write("signs")
    os.symlink("/", "root"); os.symlink(".", "itself"); os.symlink("/etc/passwd", "passwd"); os.symlink("gone", "dead")
    os.mkfifo("pipe"); socket.socket(socket.AF_UNIX).bind("socket")
    os.mkdir("shut"); open("shut/in", "w").write("in"); os.chmod("shut", 0)
    open("unreadable", "w").write("none"); os.chmod("unreadable", 0)
    open("as-owner", "w").close(); os.chmod("as-owner", 0o6755)
    for name in ("__results__.html", "__output__.json"):
        os.symlink("/etc/passwd", name)
"""
LEFT = {"two\nlines\n": b"lines", "%2e%2e? #é": b"signs", "shut/in": b"in", "unreadable": b"none", "as-owner": b""}
FLEETING = """
    import os, time
    lives = {lives!r}
    open(lives, "w").close()
    until = time.time() + 12  # in the end, of themselves
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            while time.time() < until:  # each is soon gone, and has left another
                if os.fork():
                    os._exit(0)
                time.sleep(0.002)
                os.utime(lives)
            os._exit(0)
    time.sleep(600)
"""


@pytest.fixture(params=["boxed", "unboxed"])
def account(request: pytest.FixtureRequest) -> Client:
    """A user on a server with boxes, as far as they are allowed here, and on one without."""
    server: LocalServer = request.getfixturevalue("server" if request.param == "boxed" else "unboxed")
    return Client(server.url, f"kgo-local-user-{uuid4().hex[:8]}")


def working(account: Client, slug: str) -> Path:
    """The working folder of a kernel's only session."""
    (folder,) = (s.output for s in admin.sessions(account.url) if s.kernel == f"{account.user}/{slug}")
    return folder


def test_folders_deeper_than_a_path_may_be_long(account: Client) -> None:
    account.ran("deep-folders", DEEP)
    assert account.files("deep-folders") == {"shallow": b""}
    account.ran("the-reader", "pass", kernelDataSources=[f"{account.user}/deep-folders"])
    folder = working(account, "deep-folders")
    assert account.rpc("DeleteKernel", userName=account.user, kernelSlug="deep-folders") == {}
    assert not folder.exists()


def test_names_links_and_permissions(account: Client) -> None:
    account.ran("awkward-one", AWKWARD)
    assert account.files("awkward-one") == LEFT
    folder = working(account, "awkward-one")
    assert (folder / "as-owner").stat().st_mode & 0o7000 == 0, "it doesn't run as who runs the server"
    assert (folder / "__results__.html").readlink() == Path("/etc/passwd"), "no extra is written through a link"
    assert account.rpc("DeleteKernel", userName=account.user, kernelSlug="awkward-one") == {}
    assert not folder.exists()


def test_processes_that_never_stay_the_same(unboxed: LocalServer, tmp_path: Path) -> None:
    """Whoever looks for them finds others by then, so what shows them is what they do."""
    account, lives = Client(unboxed.url, f"kgo-local-user-{uuid4().hex[:8]}"), tmp_path / "lives"
    account.push("fleeting-ones", FLEETING.format(lives=str(lives)), sessionTimeoutSeconds=2)
    until(lives.exists)
    before = lives.stat().st_mtime_ns
    until(lambda: lives.stat().st_mtime_ns != before)
    assert account.wait("fleeting-ones")["status"] == "CANCEL_ACKNOWLEDGED"
    before = lives.stat().st_mtime_ns
    with pytest.raises(AssertionError):
        until(lambda: lives.stat().st_mtime_ns != before, 0.5)


def test_thousands_of_files_hold_nobody_up(tmp_path: Path) -> None:
    folder = SessionFolder(tmp_path)
    folder.working.mkdir(parents=True)
    for number in range(4_000):
        (folder.working / f"{number:04}").touch()
    began = os.times()
    settle_output(folder, Knobs(), keep=True, lost=None)
    assert sum(os.times()[:2]) - sum(began[:2]) < 2, "each name is looked up among all others"
    assert len(read_listing(folder)) == 500
    assert len(list(folder.working.iterdir())) == 500


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("place", ["working", "kaggle"])
def test_a_working_folder_that_leads_elsewhere(tmp_path: Path, place: str, keep: bool) -> None:
    """Only without a box can a session put something in its place; whoever settles it doesn't follow."""
    outside = tmp_path / "outside"
    (outside / "working").mkdir(parents=True)
    for path in (outside / "kept", outside / "working" / "kept"):
        path.write_text("as it was")
        path.chmod(0o600)
    folder = SessionFolder(tmp_path / "session")
    target = folder.working if place == "working" else folder.root
    target.parent.mkdir(parents=True)
    target.symlink_to(outside)
    settle_output(folder, Knobs(), keep=keep, lost=None)
    assert read_listing(folder) == {}
    assert {path.stat().st_mode & 0o777 for path in outside.rglob("kept")} == {0o600}
    assert len(list(outside.rglob("kept"))) == 2


@pytest.mark.parametrize("what", ["file", "nothing"])
def test_a_working_folder_that_is_none(tmp_path: Path, what: str) -> None:
    folder = SessionFolder(tmp_path)
    if what == "file":
        folder.root.mkdir()
        folder.working.touch()
    settle_output(folder, Knobs(), keep=True, lost=None)
    assert read_listing(folder) == {}
    assert folder.working.is_dir()


def test_a_file_with_another_name_elsewhere_keeps_its_permissions(tmp_path: Path) -> None:
    folder = SessionFolder(tmp_path / "session")
    folder.working.mkdir(parents=True)
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o600)
    (folder.working / "linked").hardlink_to(tmp_path / "key")
    settle_output(folder, Knobs(), keep=True, lost=None)
    make_read_only(folder.working)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_what_is_removed_is_only_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    for name in ("tree", "link", "none"):
        remove_tree(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (tmp_path / "outside" / "kept").exists()


def test_a_session_that_removes_its_own_script(account: Client) -> None:
    source = """
        import os
        try:
            os.remove(__file__)
        except OSError:  # in a box it's read-only
            pass
        open("left", "w").close()
    """
    account.ran("no-script", source)
    assert account.files("no-script") == {"left": b""}


@pytest.mark.parametrize(
    ("knob", "source", "status"),
    [
        ("output_after_error", "open('a', 'w').close(); raise ValueError('bad')", "ERROR"),
        ("output_after_error", "import os; open('a', 'w').close(); os.kill(os.getpid(), 9)", "ERROR"),
        ("output_after_kill", "import time; open('a', 'w').close(); time.sleep(60)", "CANCEL_ACKNOWLEDGED"),
    ],
    ids=["raised", "killed", "too long"],
)
def test_what_a_bad_end_leaves(client: Client, turn: Callable[..., None], knob: str, source: str, status: str) -> None:
    turn(**{knob: "keep"})
    client.push("kept-end", source, sessionTimeoutSeconds=2)
    assert client.wait("kept-end")["status"] == status
    assert client.files("kept-end") == {"a": b""}
    turn(**{knob: "drop"})
    client.push("kept-end", source, sessionTimeoutSeconds=2)
    assert client.wait("kept-end", 2)["status"] == status
    assert client.files("kept-end", 2) == {}
    assert client.files("kept-end", 1) == {"a": b""}, "what was kept stays"


def test_a_keeper_that_is_killed_takes_its_session_with_it(client: Client) -> None:
    marker = f"kgo-test-{uuid4().hex}"
    client.push("lost-keeper", SLEEPS.format(marker=marker))
    until(lambda: processes(marker))
    pids = processes(f"{working(client, 'lost-keeper').parents[1]}\0")
    (first,) = (pid for pid in pids if parent(pid) not in pids)
    os.kill(first, 9)
    assert client.wait("lost-keeper") == {"status": "ERROR"}
    until(lambda: not processes(marker))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_session_that_has_filled_the_disk_can_be_ended(account: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"kgo-test-{uuid4().hex}"
    account.push("fills-the-disk", SLEEPS.format(marker=marker))
    until(lambda: processes(marker))
    folder = SessionFolder(working(account, "fills-the-disk").parents[1])
    monkeypatch.setattr(spec, "write_atomic", no_room)
    for ending in (Ending.LIMIT, Ending.CANCEL):  # it's asked twice, maybe
        folder.ask_to_end(ending)
    assert folder.asked_to_end() is Ending.CANCEL
    assert account.wait("fills-the-disk") == {"status": "CANCEL_ACKNOWLEDGED"}
    assert not processes(marker)


def test_a_keeper_that_is_stopped_does_not_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "write_atomic", no_room)
    started = time.monotonic()
    keeper._say_ended(SessionFolder(tmp_path), End(Ending.STOP, None, 1.0, 2.0))
    assert time.monotonic() - started < 0.4


def test_a_live_log_ends_with_the_deletion_of_its_kernel(account: Client) -> None:
    account.push("is-deleted", "import time; print('hello', flush=True); time.sleep(600)")
    url = f"{account.url}/v1/kernels/logs/stream/{account.user}/is-deleted"
    until(lambda: account.status("is-deleted") == {"status": "RUNNING"})
    with account.http.get(url, stream=True, timeout=20) as response:
        lines = response.iter_lines(decode_unicode=True)
        assert "hello" in next(lines)
        assert account.rpc("DeleteKernel", userName=account.user, kernelSlug="is-deleted") == {}
        assert [line for line in lines if line][-1] == "data: END_OF_LOG"
