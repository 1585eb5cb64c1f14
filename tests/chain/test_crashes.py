"""Controllers killed at any moment, again and again: the chain still ends right, and each attempt ran once."""

import random
import signal
import subprocess
import sys

import pytest

from kaggle_orchestrator.chain import Finish
from kaggle_orchestrator.chain.events import Stranger
from tests.chain.conftest import Lab
from tests.chain.local import state_after

CONTROLLER = """
import os, signal, sys
from pathlib import Path
from kaggle_orchestrator.chain import Chain, Journal, decide
from kaggle_orchestrator.client import connect
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.experiment import load

root, url, writes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.modules["kaggle_orchestrator.chain.decide"].ABSENT_S = 2.0  # a local push lands at once or never

class Doomed(Journal):
    def _tell(self, *arguments):
        global writes
        super()._tell(*arguments)
        writes -= 1
        if writes == 0:
            self._db.execute("COMMIT")
            os.kill(os.getpid(), signal.SIGKILL)

with Doomed.of(root) as journal:
    Chain(load(root), connect(url, environ={}), journal, SystemClock()).drive()
"""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("after", ["some time", "some writes"])
def test_killed_controllers_run_nothing_twice(lab: Lab, seed: int, after: str) -> None:
    rng, kills = random.Random(seed), 0
    experiment = lab.experiment(
        params="steps = 200, step_s = 0.02", chain='session_limit = "6s", stop_before = "4s", max_legs = 40'
    )
    while True:
        writes = rng.randint(1, 3) if after == "some writes" else 0
        process = subprocess.Popen([sys.executable, "-c", CONTROLLER, str(experiment.root), lab.url, str(writes)])
        try:
            code = process.wait(60.0 if writes else 0.5 + rng.random() * 1.5)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            code = process.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        assert kills < 300
    assert kills >= 2
    chain = lab.chain(experiment)
    finish = chain.drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert lab.state(experiment, finish.attempt) == state_after(200)
    sessions = [(s.kernel, s.version) for s in lab.sessions(experiment)]
    attempts = [(str(chain.book.ref(a)), a.version) for a in chain.book.attempts]
    assert sorted(sessions) == sorted(attempts)
    assert not lab.told(Stranger)
