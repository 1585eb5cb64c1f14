"""Scripts that know nothing of kgo: the plain one-off, and a chain of a script's own files."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from kaggle_orchestrator.protocol import LEG_RESULT, Outcome, Parent, attempt_token
from tests.runtime.supervisor.conftest import CHAIN, Ended, Session
from tests.runtime.supervisor.test_leg import check_result

SHOW = """
import json, os, sys
import helper
print(json.dumps({
    "argv": sys.argv, "name": __name__, "cwd": os.getcwd(), "stdin": sys.stdin.read(), "helper": helper.__file__,
    "file": __file__, "env": {k: v for k, v in os.environ.items() if k.startswith(("KGO_", "KAGGLE_", "PYTHON"))},
}))
"""


def shown(ended: Ended) -> dict[str, object]:
    line = next(line for line in ended.out.splitlines() if line.startswith('{"argv"'))
    found: dict[str, object] = json.loads(line)
    return found


def test_a_script_runs_as_it_would_by_hand(session: Session) -> None:
    session.one_off().script(SHOW).set(entry="code/train.py", args=("--lr", "0.1", "--name", "a b'c\"{x}"))
    (session.src / "code").mkdir()
    (session.src / "train.py").rename(session.src / "code" / "train.py")
    (session.src / "helper.py").write_text("")
    session.set(params={"lr": 0.1}, sources=("digits",))
    (session.input / "datasets" / "me" / "digits").mkdir(parents=True)
    (session.input / "datasets" / "me" / "digits" / "x.csv").write_text("1")
    ended = session.run(KAGGLE_KERNEL_RUN_TYPE="Batch", KGO_RESUME="stale", KGO_DEADLINE="1")
    result = check_result(ended)
    assert (ended.code, result.outcome, result.reason, result.step_end) == (0, Outcome.DONE, "exit 0", 0)
    facts = shown(ended)
    assert facts["argv"] == [str(session.src / "code" / "train.py"), "--lr", "0.1", "--name", "a b'c\"{x}"]
    assert facts["name"] == "__main__"
    assert facts["cwd"] == str(session.working)
    assert facts["stdin"] == ""
    assert facts["helper"] == str(session.src / "helper.py")
    env = facts["env"]
    assert isinstance(env, dict)
    assert env["KAGGLE_KERNEL_RUN_TYPE"] == "Batch"
    assert env["KGO_PARAMS"] == '{"lr": 0.1}'
    assert env["KGO_KAGGLE_ROOT"] == str(session.folder / "kaggle")
    assert env["PYTHONPATH"].split(":")[:2] == [str(session.bundle / "lib"), str(session.src)]
    assert not {"KGO_RESUME", "KGO_DEADLINE", "KGO_BUDGET_S", "KGO_SAVE_EVERY_S", "KGO_DETERMINISTIC"} & set(env)
    assert ended.files == {LEG_RESULT}


def test_the_variables_of_a_chain(session: Session) -> None:
    session.script(SHOW).set(save_every_s=90.0, deterministic=True, keep=3)
    (session.src / "helper.py").write_text("")
    ended = session.run()
    env = shown(ended)["env"]
    assert isinstance(env, dict)
    started = float(env["KGO_SESSION_START"])
    assert float(env["KGO_DEADLINE"]) == pytest.approx(started + 50, abs=1)
    assert float(env["KGO_BUDGET_S"]) == pytest.approx(49, abs=2)
    expected = {"KGO_LEG": "1", "KGO_ATTEMPT": "1", "KGO_CHAIN": CHAIN, "KGO_TOKEN": attempt_token(CHAIN, 1, 1)}
    expected |= {"KGO_KEEP": "3", "KGO_SAVE_EVERY_S": "90", "KGO_DETERMINISTIC": "1", "PYTHONUNBUFFERED": "1"}
    assert expected.items() <= env.items()


def test_the_script_s_exit_code_is_told(session: Session) -> None:
    ended = session.one_off().script("import sys; print('so far', file=sys.stderr); sys.exit(7)").run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.reason) == (1, Outcome.USER_ERROR, "exit 7")
    assert "so far" in result.message


def test_a_signal_that_we_did_not_send_is_told(session: Session) -> None:
    ended = session.one_off().script("import os; os.kill(os.getpid(), 9)").run()
    assert (ended.code, ended.result.outcome, ended.result.reason) == (1, Outcome.USER_ERROR, "SIGKILL")
    assert "memory" in ended.result.message


def test_a_gpu_without_memory_is_oom(session: Session) -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
    ended = session.one_off().script(f"import sys; sys.exit({text!r})").run()
    assert (ended.code, ended.result.outcome) == (1, Outcome.OOM)
    assert text in ended.result.message


def test_a_keyboard_is_never_waited_for(session: Session) -> None:
    ended = session.one_off().script("input('your name: ')").run()
    assert (ended.code, ended.result.outcome) == (1, Outcome.USER_ERROR)
    assert "EOFError" in ended.result.message


def test_processes_left_behind_end_with_the_session(session: Session) -> None:
    session.one_off().script(
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-c', 'import time; time.sleep(600)', os.getcwd()]\n"
        "subprocess.Popen(command, start_new_session=True)\n"
    )
    ended = session.run()
    assert (ended.code, ended.result.outcome) == (0, Outcome.DONE)
    assert "left 1 process behind" in ended.out
    assert not session.processes()


def test_a_flood_is_bounded_and_said(session: Session) -> None:
    session.one_off().script(
        "import sys\n"
        "for i in range(60_000):\n"
        "    print('line', i, 'x' * 100)\n"
        "print('y' * 1_000_000)\n"
        "for i in range(2000):\n"
        "    print(f'\\r{i}', end='', flush=i % 100 == 0)\n"
        "print()\n"
        "print('last words', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    ended = session.run()
    assert len(ended.out) < 2_000_000
    assert "line 0 x" in ended.out
    assert ended.out.count("kgo: the script prints more than a log can hold") == 1
    assert "bytes of output left out" in ended.out
    assert "last words" in check_result(ended).message
    pieces = [line for line in ended.out.splitlines() if "kgo:" in line and not line.startswith("kgo:")]
    assert all("of this line left out" in line for line in pieces)


def test_a_live_token_is_not_printed(session: Session) -> None:
    session.one_off().script(
        "import os; print('all:', dict(os.environ)); print(os.environ['KAGGLE_USER_SECRETS_TOKEN'][:4])"
    )
    ended = session.run(KAGGLE_USER_SECRETS_TOKEN="eyJhbGciOi-secret", KAGGLE_KERNEL_RUN_TYPE="Batch")
    assert "eyJhbGciOi-secret" not in ended.out
    assert "[KAGGLE_USER_SECRETS_TOKEN]" in ended.out
    assert "\neyJh\n" in ended.out  # it is there for kaggle_secrets all the same


def test_a_one_off_is_ended_before_the_session_is(session: Session) -> None:
    session.one_off().set(session_limit_s=2.5)
    session.script("import time; open('half.txt', 'w').write('x'); time.sleep(600)")
    ended = session.run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.reason) == (1, Outcome.USER_ERROR, "session limit")
    assert "half.txt" in result.outputs
    assert result.ended_at is not None
    assert result.ended_at - result.started_at < 2.5


def test_a_script_that_starts_no_python_is_refused_by_name(session: Session) -> None:
    (session.src / "train.py").unlink()
    ended = session.one_off().run()
    assert (ended.code, ended.result.outcome) == (1, Outcome.USER_ERROR)
    assert "train.py" in ended.result.message


COUNT = """
import json, os, sys, time
from pathlib import Path
last, steps = Path("out/last.json"), int(sys.argv[1])
start = json.loads(Path(sys.argv[3]).read_text())["n"] if len(sys.argv) > 2 else 0
last.parent.mkdir(exist_ok=True)
for n in range(start + 1, start + steps + 1):
    time.sleep(0.3)
    last.write_text(json.dumps({"n": n}))
    print("saved", n, sys.argv[2:], flush=True)
if os.environ.get("WAIT"):
    time.sleep(600)
"""


def test_a_chain_of_a_script_s_own_files(session: Session, request: pytest.FixtureRequest) -> None:
    session.script(COUNT).set(args=("3", "--resume", "{resume}"), paths=("out/*.json",), session_limit_s=4.0)
    session.set(leave_after_s=2.0)
    first = session.run(WAIT="1")
    result = check_result(first)
    assert (first.code, result.outcome, result.reason) == (0, Outcome.CONTINUE, "deadline")
    assert "saved 1 []" in first.out
    assert result.checkpoint is not None
    assert result.step_end >= 1
    wrapped = first.working / result.checkpoint.path / "files" / "out" / "last.json"
    assert json.loads(wrapped.read_text()) == {"n": 3}

    output = session.mount("x-b")
    for part in ("checkpoints", "kgo"):
        shutil.copytree(first.working / part, output / part)
    shutil.rmtree(first.working)
    token, ref = attempt_token(CHAIN, 2, 2), result.checkpoint
    parent = Parent("me/x-b", 1, ref.token, ref.step, ref.sha256)
    session.set(header=replace(session.header, leg=2, attempt=2, token=token, parent=parent), sources=("x-b",))
    second = session.set(session_limit_s=60.0, leave_after_s=50.0).run()
    again = check_result(second)
    resumed = session.working / "out" / "last.json"
    assert f"saved 4 ['--resume', '{resumed}']" in second.out
    assert (second.code, again.outcome, again.step_start) == (0, Outcome.DONE, result.step_end)
    assert again.step_end > again.step_start
    assert json.loads(resumed.read_text()) == {"n": 6}


def test_an_unchanged_file_is_no_progress(session: Session) -> None:
    session.script("import time; time.sleep(600)").set(session_limit_s=3.0, leave_after_s=1.0, paths=("*.pt",))
    (session.working / "old.txt").write_text("not a checkpoint")
    ended = session.run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.checkpoint) == (1, Outcome.NO_PROGRESS, None)


def test_a_script_is_not_ended_in_the_middle_of_its_save(session: Session) -> None:
    session.script(
        "import time\n"
        "while True:\n"
        "    with open('last.pt', 'w') as file:\n"
        "        for _ in range(8):\n"
        "            file.write('z' * 1000); file.flush(); time.sleep(0.06)\n"
        "    time.sleep(0.3)\n"
    )
    session.set(session_limit_s=4.5, leave_after_s=1.2, paths=("last.pt",))
    ended = session.run()
    result = check_result(ended)
    assert (ended.code, result.outcome) == (0, Outcome.CONTINUE)
    assert "SIGTERM" in ended.out or "SIGKILL" in ended.out, "it never leaves by itself"
    assert (ended.working / "last.pt").stat().st_size == 8000
    assert result.checkpoint is not None
    assert (ended.working / result.checkpoint.path / "files" / "last.pt").stat().st_size == 8000


@pytest.mark.parametrize(("exists", "outcome"), [(True, Outcome.DONE), (False, Outcome.NO_PROGRESS)])
def test_the_done_file_decides(session: Session, exists: bool, outcome: Outcome) -> None:
    session.script("open('final.pt', 'w').close()" if exists else "").set(done="final.pt", paths=("out/*",))
    ended = session.run()
    assert (ended.code, ended.result.outcome) == (0 if exists else 1, outcome)


def _can_mount() -> bool:
    try:
        probe = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
        return subprocess.run(probe, capture_output=True, timeout=10).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not (sys.platform == "linux" and _can_mount()), reason="needs a small file system of its own")
@pytest.mark.parametrize("fill", [False, True])
def test_a_full_disk_still_gives_the_result(session: Session, fill: bool) -> None:
    copy = session.folder / "copy"
    run = (
        f'mount -t tmpfs -o size=256k tmpfs {session.working} && "$@"; rc=$?; cp -r {session.working} {copy}; exit $rc'
    )
    session.prefix = ("unshare", "-rm", "sh", "-c", run, "sh")
    if fill:  # no room even for the result
        session.one_off().script("with open('big', 'wb', 0) as f:\n    while True: f.write(b'z' * 100)")
    else:
        session.params(steps=100, every=5, bytes=80_000)
    ended = session.run()
    line = ended.log_result
    assert line.outcome is Outcome.DISK_FULL
    assert ended.code == (1 if fill else 0)
    assert line.step_end == (0 if fill else 15)
    assert (copy / "checkpoints" / "step-00000015").is_dir() is not fill
