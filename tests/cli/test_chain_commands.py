"""`push`, `run`, `status`, `pull`: exit codes, what goes to stdout, what to stderr."""

import hashlib
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kaggle_orchestrator import client
from kaggle_orchestrator.chain import Finish, Options, Push
from kaggle_orchestrator.chain.lock import steering
from kaggle_orchestrator.cli.chains import steered
from kaggle_orchestrator.cli.context import connect
from kaggle_orchestrator.cli.run import Drive, _still_there, worst
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.models import KernelRef, PushRequest, SessionStatus
from tests.chain.local import state_after
from tests.cli.conftest import Kgo, document

SLOW = "steps = 30, step_s = 0.05"


def test_run_reaches_the_target_and_prints_verified_artifacts(kgo: Kgo) -> None:
    root = kgo.experiment()
    ran = kgo("run", root)
    assert ran.exit_code == 0, ran.output
    artifacts = {path: sha256 for sha256, path in (line.split("  ") for line in ran.stdout.splitlines())}
    assert str(root / "outputs/final/state.txt") in artifacts
    for path, sha256 in artifacts.items():
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == sha256
    assert (root / "outputs/final/state.txt").read_text() == state_after(30)
    # Not a terminal: a line an event, all of them ours.
    told = ran.stderr.splitlines()
    assert 4 <= len(told) <= 8
    assert all(line.startswith("kgo: ") for line in told)
    # Called again there is nothing to do but to have the files.
    again = kgo("run", root, "--json")
    assert again.exit_code == 0
    (chain,) = document(again)["chains"]
    assert chain["status"] == "done"
    assert {a["path"] for a in chain["artifacts"]} == artifacts.keys()
    assert all(a["verified"] for a in chain["artifacts"])
    assert len(kgo.sessions(root)) == 1


def test_push_starts_one_session_and_refuses_while_it_lives(kgo: Kgo) -> None:
    root = kgo.experiment(params=SLOW)
    pushed = kgo("push", root, "--json")
    assert pushed.exit_code == 0, pushed.output
    (push,) = document(pushed)["pushed"]
    assert (push["version"], push["leg"], push["attempt"], push["resumed_from"]) == (1, 1, 1, None)
    refused = kgo("push", root)
    assert refused.exit_code == 4
    assert "still running" in refused.stderr
    assert refused.stdout == ""
    assert len(kgo.sessions(root)) == 1
    assert document(kgo("status", root, "--json"))["chains"][0]["status"] == "running"
    assert kgo("run", root).exit_code == 0
    done = kgo("push", root)
    assert (done.exit_code, done.stdout) == (0, "")
    assert len(kgo.sessions(root)) == 1


def test_run_once_looks_and_returns(kgo: Kgo) -> None:
    root = kgo.experiment(params=SLOW)
    assert kgo("run", root, "--once").exit_code == 0
    looked = kgo("run", root, "--once", "--exit-code")
    assert looked.exit_code == 4
    assert looked.stdout == ""
    until = time.monotonic() + 60
    while (code := kgo("run", root, "--once", "--exit-code").exit_code) == 4 and time.monotonic() < until:
        time.sleep(0.2)
    assert code == 0
    assert (root / "outputs/final/state.txt").exists()
    assert len(kgo.sessions(root)) == 1


def test_a_failure_exits_3_and_says_what_failed_and_what_to_do(kgo: Kgo) -> None:
    root = kgo.experiment(params="steps = 30, step_s = 0.0, fail_at = 15")
    failed = kgo("run", root)
    assert failed.exit_code == 3
    assert "bad batch at step 15" in failed.stderr
    assert "--accept-changes" in failed.stderr
    assert failed.stdout == ""
    shown = kgo("status", root)
    assert shown.exit_code == 0
    assert "failed" in shown.stdout
    assert kgo("push", root).exit_code == 3
    kgo.experiment(slug=(root / "kgo.toml").read_text().split('"')[1], params="steps = 30, step_s = 0.0")
    edited = kgo("run", root)
    assert edited.exit_code == 3
    assert "train.params.fail_at (gone)" in edited.stderr
    assert kgo("run", root, "--accept-changes").exit_code == 0


def test_a_source_that_nothing_stands_in_for_is_said_with_what_to_do(kgo: Kgo) -> None:
    root = kgo.experiment()
    toml = root / "kgo.toml"
    toml.write_text(toml.read_text().replace("[train]", 'datasets = ["someone/nothing-here"]\n[train]'))
    failed = kgo("run", root)
    assert failed.exit_code == 3
    assert "without its sources someone/nothing-here" in failed.stderr
    assert "`[local] sources`" in failed.stderr


def test_a_bad_configuration_exits_2_before_anything_is_pushed(kgo: Kgo) -> None:
    root = kgo.experiment()
    (root / "kgo.toml").write_text('[kernel]\nslug = "x y"\ncolour = "red"\n[train]\nentry = "none.py"\n')
    for command in ("run", "push", "status", "pull"):
        refused = kgo(command, root)
        assert refused.exit_code == 2
        assert "kernel.colour" in refused.stderr
        assert "Traceback" not in refused.output


def test_status_without_kaggle_shows_what_the_journal_knows(kgo: Kgo) -> None:
    root = kgo.experiment()
    kgo("run", root)
    online = document(kgo("status", root, "--json"))
    # The same local Kaggle by its address, as `kgo local serve` prints it.
    assert document(kgo("status", root, "--json", KGO_LOCAL="", KGO_ENDPOINT=kgo.url)) == online
    offline = kgo("status", root, "--json", KGO_LOCAL="", KGO_ENDPOINT="http://127.0.0.1:9")
    assert offline.exit_code == 0
    assert "journal" in offline.stderr
    told = document(offline)
    assert told["quota"] is None
    assert told["chains"][0] | {"url": None} == online["chains"][0] | {"url": None}
    assert online.keys() == told.keys() == {"schema", "chains", "quota"}
    assert online["schema"] == 1


def test_status_makes_no_journal_and_pushes_nothing(kgo: Kgo) -> None:
    root = kgo.experiment()
    shown = kgo("status", root, "--json")
    assert shown.exit_code == 0, shown.output
    assert document(shown)["chains"][0]["status"] == "pending"
    assert not (root / ".kgo").exists()
    assert kgo.sessions(root) == []


def test_pull_fetches_a_leg_or_any_kernel(kgo: Kgo, tmp_path: Path) -> None:
    root = kgo.experiment()
    nothing = kgo("pull", root)
    assert nothing.exit_code == 2
    assert "nothing to pull" in nothing.stderr
    kgo("run", root)
    pulled = kgo("pull", root, "--leg", "1", "-o", tmp_path / "leg", "--pattern", "checkpoints/**", "--json")
    assert pulled.exit_code == 0, pulled.output
    names = {a["name"] for a in document(pulled)["artifacts"]}
    assert names
    assert all(name.startswith("checkpoints/") for name in names)
    kernel = kgo.sessions(root)[0].kernel
    whole = kgo("pull", kernel, "-o", tmp_path / "kernel", "--json")
    assert whole.exit_code == 0, whole.output
    assert document(whole)["version"] == 1
    assert (tmp_path / "kernel/final/state.txt").read_text() == state_after(30)
    beyond = kgo("pull", root, "--leg", "9")
    assert beyond.exit_code == 2
    assert "There is no leg 9: the newest is leg 1." in beyond.stderr
    none = kgo("pull", root, "-o", tmp_path / "none", "--pattern", "weights/*")
    assert none.exit_code == 0
    assert "0 files" in none.stderr
    assert "matches weights/*" in none.stderr
    assert "without a recorded sha256" not in kgo("pull", kernel, "-o", tmp_path / "kernel").stderr
    with client.connect(kgo.url, environ={}) as kaggle:
        plain = KernelRef("me", "plain-kernel")
        kaggle.push(PushRequest(plain, plain.slug, "open('a', 'w'), open('b', 'w')"))
        until = time.monotonic() + 60
        while not kaggle.status(plain, 1).status.terminal and time.monotonic() < until:
            time.sleep(0.05)
    unverified = kgo("pull", str(plain), "-o", tmp_path / "plain")
    assert "2 files of me/plain-kernel v1, 2 of them without a recorded sha256" in unverified.stderr
    assert kgo("pull", "me/no-such-kernel").exit_code == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupting_run_leaves_the_session_running(kgo: Kgo, number: signal.Signals, code: int) -> None:
    root = kgo.experiment(params="steps = 30, step_s = 0.1")
    process = kgo.process("run", root)
    until = time.monotonic() + 60
    while not any(s.status is SessionStatus.RUNNING for s in kgo.sessions(root)) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)  # so that the push's answer is in
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code, stderr
    assert stdout == ""
    assert "goes on running" in stderr
    assert "Traceback" not in stderr
    assert [s.status for s in kgo.sessions(root)] == [SessionStatus.RUNNING]
    assert kgo("run", root).exit_code == 0
    assert len(kgo.sessions(root)) == 1


def test_paths_below_the_current_folder_are_told_from_there(kgo: Kgo, monkeypatch: pytest.MonkeyPatch) -> None:
    root = kgo.experiment()
    monkeypatch.chdir(root.parent)
    ran = kgo("run", root.name, "--json")
    assert all(Path(a["path"]).is_absolute() for a in document(ran)["chains"][0]["artifacts"])
    pulled = kgo("pull", root.name, "--pattern", "final/*")
    assert pulled.stdout.split()[1] == "exp/outputs/final/state.txt"
    assert "kgo: 1 file of me/" in pulled.stderr


def test_a_one_off_whose_pull_failed_is_pulled_and_not_trained_again(kgo: Kgo) -> None:
    root = kgo.experiment(chain=None)
    (root / "outputs").write_text("a file where the folder should be")
    for _ in range(2):
        failed = kgo("run", root)
        assert failed.exit_code == 1, failed.output
        assert "`kgo pull`" in failed.stderr
        assert len(kgo.sessions(root)) == 1
    (root / "outputs").unlink()
    assert kgo("run", root).exit_code == 0
    assert (root / "outputs/final/state.txt").read_text() == state_after(30)
    assert len(kgo.sessions(root)) == 1
    # Its output is here: who calls again wants it trained anew.
    assert kgo("run", root).exit_code == 0
    assert len(kgo.sessions(root)) == 2


def test_a_one_off_that_wasnt_pulled_is_trained_anew_when_pushed_or_edited(kgo: Kgo) -> None:
    root = kgo.experiment(chain=None)
    (root / "outputs").write_text("a file where the folder should be")
    assert kgo("run", root).exit_code == 1
    (root / "train.py").write_text((root / "train.py").read_text() + "# edited\n")
    assert kgo("run", root).exit_code == 1
    assert len(kgo.sessions(root)) == 2
    assert kgo("push", root).exit_code == 0
    assert len(kgo.sessions(root)) == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_a_display_that_cant_be_written_doesnt_stop_a_chain(kgo: Kgo, stderr: str) -> None:
    root = kgo.experiment()
    command = ["sh", "-c", f'"$0" "$@" {stderr}', str(Path(sys.executable).with_name("kgo")), "run", str(root)]
    ran = subprocess.run(command, env=kgo.environ, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ran.returncode == 0
    assert "final/state.txt" in ran.stdout


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_status_on_a_terminal_that_knows_few_letters(kgo: Kgo, encoding: str) -> None:
    root = kgo.experiment()
    assert kgo("run", root).exit_code == 0
    shown = subprocess.run(
        [Path(sys.executable).with_name("kgo"), "status", root],
        env=kgo.environ | {"PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    assert b"-> 30" in shown.stdout


@pytest.mark.parametrize("home", ["a file", "/proc/kgo"])
def test_a_home_that_cant_be_used_is_told(kgo: Kgo, home: str) -> None:
    root = kgo.experiment()
    if home == "a file":
        (kgo.folder / "file").write_text("")
        home = str(kgo.folder / "file")
    for command in ("run", "push", "status", "pull"):
        refused = kgo(command, root, KGO_HOME=home)
        assert refused.exit_code == 2, refused.output
        assert f"kgo's home {home} can't be used" in refused.stderr
        assert "KGO_HOME" in refused.stderr


def test_on_a_terminal_run_shows_lines_and_leaves_it_as_it_was(kgo: Kgo) -> None:
    root = kgo.experiment()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("kgo"), "run", root],
        env=kgo.environ | {"TERM": "xterm", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # how a pseudo-terminal says that its other end was closed
        while block := os.read(ours, 1 << 16):
            shown += block
    os.close(ours)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert b"kgo: Target reached in leg 1" in shown
    assert b"step 30/30" in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), "the cursor is left hidden"
    assert b"\x1b" not in stdout
    assert b"final/state.txt" in stdout


def test_on_a_terminal_the_artifacts_come_below_what_was_shown(kgo: Kgo) -> None:
    root = kgo.experiment()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [Path(sys.executable).with_name("kgo"), "run", root],
        env=kgo.environ | {"TERM": "xterm", "COLUMNS": "200"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):
        while block := os.read(ours, 1 << 16):
            shown += block
    os.close(ours)
    assert process.wait(60) == 0, shown
    artifacts = shown[shown.rindex(b"\x1b") :]
    assert b"final/state.txt" in artifacts
    assert shown.count(b"  " + bytes(root)) == artifacts.count(b"  " + bytes(root)), "in the midst of the bars"


def test_an_experiment_that_is_named_twice_is_one(kgo: Kgo) -> None:
    root = kgo.experiment()
    assert kgo("run", root, root / "kgo.toml").exit_code == 0
    assert len(kgo.sessions(root)) == 1


def test_several_experiments_run_side_by_side(kgo: Kgo) -> None:
    one, two = kgo.experiment("one", params=SLOW), kgo.experiment("two", params=SLOW)
    bad = kgo.experiment("bad", params="steps = 9, step_s = 0.0, fail_at = 5")
    ran = kgo("run", one, bad, two)
    assert ran.exit_code == 3
    for root in (one, two):
        assert (root / "outputs/final/state.txt").exists()
    first, second = kgo.sessions(one)[0], kgo.sessions(two)[0]
    assert first.started is not None
    assert first.ended is not None
    assert second.started is not None
    assert second.started < first.ended
    slugs = {(root / "kgo.toml").read_text().split('"')[1] for root in (one, two, bad)}
    assert {line.split(":")[1].strip() for line in ran.stderr.splitlines()} == slugs


def test_a_chain_that_is_steered_already_is_left_alone(kgo: Kgo) -> None:
    root = kgo.experiment()
    slug = (root / "kgo.toml").read_text().split('"')[1]
    with steering(root / ".kgo", "me", slug):
        for command in ("run", "push"):
            refused = kgo(command, root)
            assert refused.exit_code == 4
            assert "is steering" in refused.stderr
        assert kgo("status", root).exit_code == 0
    assert kgo.sessions(root) == []


def test_local_sources_and_interpreter_are_given_to_the_local_kaggle(kgo: Kgo) -> None:
    root = kgo.experiment(chain=None)
    (root / "sample").mkdir()
    (root / "sample/data.txt").write_text("three")
    config = (root / "kgo.toml").read_text()
    config = config.replace("[train]", 'datasets = ["me/some-data"]\n[train]')
    (root / "kgo.toml").write_text(config + '[local.sources]\n"me/some-data" = "sample"\n')
    (root / "train.py").write_text(
        "import os, shutil, sys, pathlib\n"
        "kaggle = pathlib.Path(os.environ['KGO_KAGGLE_ROOT'])\n"
        "found = next((kaggle / 'input').rglob('data.txt'))\n"
        "pathlib.Path('said.txt').write_text(found.read_text() + sys.prefix)\n"
    )
    ran = kgo("run", root)
    assert ran.exit_code == 0, ran.output
    assert (root / "outputs/said.txt").read_text() == f"three{kgo.python.parent.parent}"
    (root / "kgo.toml").write_text(config + '[local.sources]\n"me/some-data" = "elsewhere"\n')
    assert kgo("run", root).exit_code == 2


def test_a_local_kaggle_that_went_away_is_started_again(kgo: Kgo, monkeypatch: pytest.MonkeyPatch) -> None:
    home = kgo.folder / "home"
    monkeypatch.setenv("KGO_HOME", str(home))
    root = kgo.experiment(params="steps = 30, step_s = 0.1")  # still running when its server goes
    experiment = load(root)
    kaggle = connect(True, [experiment])
    try:
        with steered(experiment, kaggle, Options()) as chain:
            assert isinstance(chain.tick(), Push)
            background.stop(home)
            assert _still_there([Drive(experiment, chain)], kaggle).endpoint == background.ensure(home).url
            # The session went with its server, and the chain knows what to make of that.
            finish = chain.drive()
            assert isinstance(finish, Finish)
            assert finish.attempt.number == 2
    finally:
        background.stop(home)


def test_the_worst_exit_code_counts() -> None:
    assert worst([]) == 0
    assert worst([0, 4]) == 4
    assert worst([4, 1, 0]) == 1
    assert worst([3, 1]) == 3
    assert worst([2, 3]) == 2


def test_status_shows_the_journal_while_kaggle_fails(kgo: Kgo) -> None:
    root = kgo.experiment()
    assert kgo("run", root).exit_code == 0
    admin.add_faults(kgo.url, [{"rpc": "IntrospectToken", "first": 5, "status": 503}])
    done = kgo("status", root, "--json", "--local", KGO_LOCAL="")
    assert [leg["outcome"] for leg in document(done)["chains"][0]["legs"]] == ["done"]
