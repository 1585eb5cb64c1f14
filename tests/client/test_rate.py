"""Under Kaggle's limit on calls: kgo's own budget keeps it from being throttled, and throttled it waits as asked."""

import dataclasses
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.client import Policy, connect
from kaggle_orchestrator.client.policy import Pace
from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.errors import Refused, Throttled, UnclearPush
from kaggle_orchestrator.models import KernelRef, PushRequest, SessionStatus
from tests.client.faulty import FaultyServer, answer
from tests.client.staging import client_on

REF = KernelRef("me", "some-kernel")
PUSH = PushRequest(REF, "Some Kernel", "print(1)\n")
NEVER = Policy(attempts=1)
"""A client that repeats nothing, so that a throttled call shows."""


def test_a_budget_as_large_as_kaggle_s_is_never_throttled(tmp_path: Path) -> None:
    policy = dataclasses.replace(NEVER, calls_per_minute=20)
    with client_on(tmp_path, knobs={"calls_per_minute": 20}, policy=policy) as (kaggle, stage):
        kaggle.push(PUSH)
        for n in range(90):
            kaggle.status(REF, 1)
            stage.later(n % 5)


def test_without_a_budget_it_is_throttled(tmp_path: Path) -> None:
    with client_on(tmp_path, knobs={"calls_per_minute": 20}, policy=NEVER) as (kaggle, _):
        for _ in range(20):
            kaggle.quota()
        with pytest.raises(Throttled):
            kaggle.quota()


@pytest.mark.parametrize("form", ["seconds", "date", "none"])
@pytest.mark.parametrize("body", ["flat", "nested"])
def test_a_throttled_read_comes_through(tmp_path: Path, form: str, body: str) -> None:
    knobs = {"calls_per_minute": 3, "retry_after": form, "error_body": body}
    with client_on(tmp_path, knobs=knobs, policy=Policy(attempts=9, longest_wait_s=70)) as (kaggle, stage):
        kaggle.push(PUSH)
        began = stage.clock.now()
        for _ in range(12):
            assert kaggle.status(REF, 1).status in (SessionStatus.RUNNING, SessionStatus.COMPLETE)
        assert stage.clock.now() - began >= 180, "three calls a minute"
        asked = [seconds for seconds in stage.clock.slept if seconds >= 50]
        assert asked or form == "none", "it waited as it was asked to, not by guess"


NOT_JSON = ["html", "text", "empty", "cut", "list"]


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, body) for body in NOT_JSON] + [(n, body) for n in (429, 500, 503) for body in ("flat", "nested", *NOT_JSON)],
)
def test_no_form_of_an_error_is_taken_for_an_answer(tmp_path: Path, status: int, body: str) -> None:
    def fault(rpc: str, **more: Any) -> dict[str, Any]:
        return {"rpc": rpc, "first": 2, "status": status, "body": body, **more}

    rpcs = ("GetKernelSessionStatus", "GetKernel", "ListKernelSessionOutput", "ListKernels")
    quota = fault("GetAcceleratorQuotaStatistics", retry_after=5)
    faults = [*map(fault, rpcs), quota, fault("SaveKernel", after_landing=True)]
    with client_on(tmp_path, faults=faults) as (kaggle, stage):
        with pytest.raises(Throttled if status == 429 else UnclearPush):
            kaggle.push(PUSH)
        assert len(stage.kaggle.sessions()) == 1, "it was sent once"
        found = kaggle.version(REF)
        assert found is not None
        assert (found.source, found.current_version) == (PUSH.source, 1)
        stage.later(600)
        assert kaggle.status(REF, 1).status is SessionStatus.COMPLETE
        assert [file.name for file in kaggle.outputs(REF, 1).files] == ["result"]
        assert kaggle.kernels() == (REF,)
        assert kaggle.quota().total_s > 0


def test_a_refusal_is_no_throttling(tmp_path: Path) -> None:
    fault = {"rpc": "SaveKernel", "refuse": "Notebook not found"}
    with client_on(tmp_path, faults=[fault]) as (kaggle, stage):
        with pytest.raises(Refused, match="Notebook not found"):
            kaggle.push(PUSH)
        assert stage.kaggle.sessions() == []


def test_no_minute_has_more_than_its_budget(tmp_path: Path) -> None:
    clock, rng = FakeClock(), random.Random(0)
    pace, calls = Pace(Policy(calls_per_minute=7), clock), list[float]()
    for _ in range(300):
        pace.wait()
        calls.append(clock.now())
        clock.sleep(rng.choice([0, 0, 0, 1, 30]))
    assert all(later - earlier >= 60 for earlier, later in zip(calls, calls[7:], strict=False))


def test_pushes_and_threads_share_the_budget(server: FaultyServer, clock: FakeClock, tmp_path: Path) -> None:
    server.rpc("SaveKernel", answer({"versionNumber": 1, "ref": "/me/some-kernel"}))
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    policy, began = Policy(calls_per_minute=5), clock.now()
    with connect(server.url, environ={"HOME": str(tmp_path)}, policy=policy, clock=clock) as kaggle:

        def work() -> None:
            kaggle.push(PUSH)
            for _ in range(4):
                kaggle.status(REF, 1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.seen) == 20
    assert clock.now() - began == pytest.approx(180)
