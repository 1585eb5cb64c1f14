"""Pushes whose fate isn't known: read back, adopted, or repeated after ten minutes; never run twice."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kaggle_orchestrator.chain import Finish, Phase, Push, Wait, Why
from kaggle_orchestrator.chain.decide import ABSENT_S
from kaggle_orchestrator.chain.events import Adopted, Pushed, Stranger, Unclear
from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.models import KernelRef, PushAnswer, PushRequest
from kaggle_orchestrator.protocol import parse_header
from tests.chain.conftest import Lab

CONTROLLER = """
import os, signal, sys
from pathlib import Path
from kaggle_orchestrator.chain import Chain, Journal
from kaggle_orchestrator.client import Kaggle, connect
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.experiment import load

root, url, when = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

class Doomed(Kaggle):
    def push(self, request):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().push(request)
        os.kill(os.getpid(), signal.SIGKILL)

kaggle = connect(url, environ={})
kaggle.__class__ = Doomed
with Journal.of(root) as journal:
    Chain(load(root), kaggle, journal, SystemClock()).drive()
"""


def lose_answer(lab: Lab, *, landed: bool) -> None:
    """The next push gets HTTP 500, after it took effect or instead."""
    admin.add_faults(lab.url, [{"rpc": "SaveKernel", "number": 1, "status": 500, "after_landing": landed}])


def killed_controller(lab: Lab, root: Path, when: str) -> None:
    """A controller in a process of its own that is killed around its first push."""
    ended = subprocess.run([sys.executable, "-c", CONTROLLER, str(root), lab.url, when], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL


def test_a_push_that_landed_without_an_answer_is_found_and_run_once(lab: Lab) -> None:
    experiment = lab.experiment()
    lose_answer(lab, landed=True)
    finish = lab.chain(experiment).drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert len(lab.told(Unclear)) == len(lab.told(Adopted)) == 1
    assert not lab.told(Pushed)
    assert len(lab.sessions(experiment)) == 1


def test_a_push_that_never_landed_is_repeated_after_ten_minutes_under_its_token(lab: Lab) -> None:
    experiment, clock = lab.experiment(), FakeClock()
    lose_answer(lab, landed=False)
    chain = lab.chain(experiment, clock=clock)
    wait = chain.tick(lab.events.append)
    assert isinstance(wait, Wait)
    assert wait.why is Why.LANDING
    token = chain.book.attempts[0].token
    first_look = clock.now()
    while not lab.told(Pushed):
        action = chain.tick(lab.events.append)
        if isinstance(action, Wait):
            assert action.why is Why.LANDING
            assert action.until > clock.now()
            clock.sleep(action.until - clock.now())
    assert clock.now() - first_look == pytest.approx(ABSENT_S, abs=1)
    assert [a.token for a in chain.book.attempts] == [token]
    assert len(lab.sessions(experiment)) == 1
    version = lab.kaggle.version(KernelRef("me", experiment.kernel.slug), 1)
    assert version is not None
    header = parse_header(version.source)
    assert header is not None
    assert header.token == token


def test_absence_counts_only_looks_that_were_answered(lab: Lab) -> None:
    experiment, clock = lab.experiment(), FakeClock()
    lose_answer(lab, landed=False)
    chain = lab.chain(experiment, clock=clock)
    chain.tick()
    admin.add_faults(lab.url, [{"rpc": "GetKernel", "number": 1, "status": 503}])
    clock.sleep(3 * ABSENT_S)
    wait = chain.tick()
    assert isinstance(wait, Wait)
    assert wait.why is Why.NETWORK
    assert chain.book.attempts[0].absent_since is None
    chain.tick()
    assert chain.book.attempts[0].absent_since == clock.now()


def test_a_controller_killed_between_push_and_adoption_loses_nothing(lab: Lab) -> None:
    experiment = lab.experiment()
    killed_controller(lab, experiment.root, "after")
    chain = lab.chain(experiment)
    finish = chain.drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert len(lab.told(Adopted)) == 1
    assert (finish.attempt.number, finish.attempt.version) == (1, 1)
    assert len(lab.sessions(experiment)) == 1


def test_a_controller_killed_before_its_push_left_pushes_once_in_the_end(lab: Lab) -> None:
    experiment, clock = lab.experiment(), FakeClock()
    killed_controller(lab, experiment.root, "before")
    chain = lab.chain(experiment, clock=clock)
    wait = chain.tick()
    assert isinstance(wait, Wait)
    assert wait.why is Why.LANDING
    assert chain.book.attempts[0].phase is Phase.INTENDED
    clock.sleep(ABSENT_S)
    assert isinstance(chain.tick(), Push)
    assert len(lab.sessions(experiment)) == 1


def test_somebody_elses_version_is_named_and_left_alone(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 30, step_s = 0.03")
    chain = lab.chain(experiment)
    chain.tick()
    ref = KernelRef("me", experiment.kernel.slug)
    lab.kaggle.push(PushRequest(ref, experiment.kernel.title, "print('by hand')"))
    finish = lab.chain(experiment).drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert finish.attempt.version == 1
    assert lab.told(Stranger) == [Stranger(ref, 2, "wasn't pushed by kgo")]


def test_a_repeated_version_of_an_attempt_is_ignored_the_lowest_counts(lab: Lab) -> None:
    experiment, pushes = lab.experiment(), list[PushRequest]()

    class Recorded(Kaggle):
        def push(self, request: PushRequest) -> PushAnswer:
            pushes.append(request)
            return super().push(request)

    lab.kaggle.__class__ = Recorded
    lose_answer(lab, landed=True)
    first = lab.chain(experiment)
    first.tick()
    lab.kaggle.push(pushes[0])  # another controller, with the same attempt
    chain = lab.chain(experiment)
    finish = chain.drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert (finish.attempt.number, finish.attempt.version) == (1, 1)
    assert lab.told(Stranger) == [Stranger(pushes[0].ref, 2, "repeats attempt 1")]


def test_two_controllers_share_one_attempt(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 30, step_s = 0.03")
    twin = lab.experiment(folder="elsewhere", slug=experiment.kernel.slug, params="steps = 30, step_s = 0.03")
    here, there = lab.chain(experiment), lab.chain(twin)
    there.observe()  # both look while there is nothing
    assert isinstance(here.tick(), Push)
    assert isinstance(there.tick(lab.events.append), Wait)
    assert [a.token for a in there.book.attempts] == [a.token for a in here.book.attempts]
    for chain in (here, there):
        assert isinstance(chain.drive(), Finish)
    assert len(lab.sessions(experiment)) == 1


def test_a_push_that_surely_failed_leaves_no_attempt(lab: Lab) -> None:
    experiment = lab.experiment()
    admin.add_faults(lab.url, [{"rpc": "SaveKernel", "number": 1, "status": 429}])
    chain = lab.chain(experiment)
    wait = chain.tick()
    assert isinstance(wait, Wait)
    assert wait.why is Why.NETWORK
    assert chain.book.attempts == ()
    finish = chain.drive()
    assert isinstance(finish, Finish)
    assert finish.attempt.number == 1
