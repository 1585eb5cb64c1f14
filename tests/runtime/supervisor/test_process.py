"""The tree of training: found however far it has strayed, gone after the kill, and nothing else touched."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kaggle_orchestrator.runtime.supervisor.heartbeat import Heartbeat
from kaggle_orchestrator.runtime.supervisor.process import Training, process_table, writes_open

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

STRAYED = """
import os, sys, time
for depth in range(4):
    if os.fork():
        break
    os.setsid()
    if depth < 3 and os.fork():
        os._exit(0)
print(os.getpid(), flush=True)
time.sleep(600)
"""


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Training]]:
    made: list[Training] = []

    def begin(text: str) -> Training:
        made.append(Training([sys.executable, "-c", text], cwd=tmp_path, env=os.environ))
        return made[-1]

    yield begin
    for training in made:
        training.close()
        for pipe in training.pipes:
            pipe.close()


def test_what_left_its_group_session_and_parent_is_killed_too(start: Callable[[str], Training]) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    bystander, training = subprocess.Popen(sleep), start(STRAYED)
    later = subprocess.Popen(sleep)
    training.leave_alone(later.pid)
    try:
        until(lambda: len(training.tree()) >= 5)
        pids = {p.pid for p in training.tree()}
        assert bystander.pid not in pids
        assert training.kill_tree() == 0
        assert training.tree() == []
        assert not pids & process_table().keys()  # not even as zombies
        assert (bystander.poll(), later.poll()) == (None, None)
    finally:
        for process in (bystander, later):
            process.kill()
            process.wait()


def test_a_frozen_tree_stands_still_and_goes_on(start: Callable[[str], Training], tmp_path: Path) -> None:
    training = start("import time\nwhile True:\n    open('n', 'a').write('x'); time.sleep(0.001)")
    until((tmp_path / "n").exists)
    frozen = training.freeze()
    assert [p.state for p in training.tree()] == ["T"]
    size = (tmp_path / "n").stat().st_size
    time.sleep(0.1)
    assert (tmp_path / "n").stat().st_size == size
    training.signal_tree(18, frozen)
    until(lambda: (tmp_path / "n").stat().st_size > size)


def test_files_open_for_writing(start: Callable[[str], Training], tmp_path: Path) -> None:
    (tmp_path / "r").write_text("x")
    training = start(
        "import time; a = open('w', 'w'); b = open('r'); c = open('u', 'r+b' if 0 else 'w+b'); time.sleep(600)"
    )
    until((tmp_path / "u").exists)
    (process,) = training.tree()
    assert {p for p in writes_open(process) if p.parent == tmp_path} == {tmp_path / "w", tmp_path / "u"}


def test_the_exit_code_is_not_lost_to_reaping(start: Callable[[str], Training]) -> None:
    training = start("raise SystemExit(7)")
    until(lambda: training.tree() == [])
    training.reap()
    training.kill_tree()
    assert training.wait(5) == 7


def test_a_busy_script_in_silence_is_alive_and_a_waiting_one_is_not(start: Callable[[str], Training]) -> None:
    waiting, busy = start("import time; time.sleep(600)"), start("while True: pass")
    waiting.leave_alone(busy.pid)
    until(lambda: bool(waiting.tree() and busy.tree()))
    began = time.monotonic()
    hearts = {training: Heartbeat(0.7, training) for training in (waiting, busy)}
    silent = set[Training]()
    while time.monotonic() - began < 1.1:
        silent |= {training for training, heart in hearts.items() if heart.silent(began, reports=False)}
        time.sleep(0.05)
    assert silent == {waiting}
    assert Heartbeat(None, waiting).silent(-1e9, reports=True) is False
