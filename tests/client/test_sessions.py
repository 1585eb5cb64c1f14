"""What is done to sessions and kernels: cancelled, deleted, saved without running, followed."""

import dataclasses
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.client import Policy, connect
from kaggle_orchestrator.errors import BadAnswer, NotAccessible, Unavailable
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.scripted import Line, Script
from kaggle_orchestrator.models import KernelRef, PushRequest, SessionStatus
from kaggle_orchestrator.profile import Profile, QueuedStatus
from tests.client.staging import client_on
from tests.localkaggle.stage import plain

REF = KernelRef("me", "some-kernel")
PUSH = PushRequest(REF, "Some Kernel", "print(1)\n")


def test_a_session_is_cancelled_by_its_number(tmp_path: Path) -> None:
    with client_on(tmp_path, plain(600)) as (kaggle, stage):
        kaggle.push(PUSH)
        (session,) = stage.kaggle.sessions()
        kaggle.cancel(session.id)
        assert kaggle.status(REF, 1).status is SessionStatus.CANCEL_ACKNOWLEDGED
        kaggle.cancel(session.id)  # it's over: nothing happens


def test_a_session_of_nobody_can_not_be_cancelled(tmp_path: Path) -> None:
    with client_on(tmp_path) as (kaggle, _), pytest.raises(NotAccessible, match="session 77"):
        kaggle.cancel(77)


def test_a_cancel_is_repeated_like_a_read(tmp_path: Path) -> None:
    fault = {"rpc": "CancelKernelSession", "number": 1, "status": 503, "after_landing": True}
    with client_on(tmp_path, plain(600), faults=[fault]) as (kaggle, stage):
        kaggle.push(PUSH)
        kaggle.cancel(stage.kaggle.sessions()[0].id)
        assert kaggle.status(REF, 1).status is SessionStatus.CANCEL_ACKNOWLEDGED


def test_a_kernel_is_deleted_even_if_the_answer_is_lost(tmp_path: Path) -> None:
    fault = {"rpc": "DeleteKernel", "number": 1, "reset": True, "after_landing": True}
    with client_on(tmp_path, faults=[fault]) as (kaggle, _):
        kaggle.push(PUSH)
        kaggle.delete(REF)
        assert kaggle.kernels() == ()
        kaggle.delete(REF)


def test_a_version_is_saved_without_running(tmp_path: Path) -> None:
    with client_on(tmp_path) as (kaggle, stage):
        assert kaggle.push(dataclasses.replace(PUSH, run=False)).version == 1
        assert stage.kaggle.sessions() == []
        assert kaggle.status(REF, 1).status is SessionStatus.NEW_SCRIPT


def test_a_missing_status_is_queued_only_where_that_was_measured(tmp_path: Path) -> None:
    knobs = {"queue_s": 100, "queued_status": "omitted"}
    with client_on(tmp_path / "a", knobs=knobs, policy=Policy(attempts=1)) as (kaggle, _):
        kaggle.push(PUSH)
        with pytest.raises(BadAnswer, match="no status"):
            kaggle.status(REF, 1)
    measured = Profile(queued_status=QueuedStatus.OMITTED)
    with client_on(tmp_path / "b", knobs=knobs, profile=measured) as (kaggle, _):
        kaggle.push(PUSH)
        assert kaggle.status(REF, 1).status is SessionStatus.QUEUED


def test_a_log_that_is_dropped_and_replayed_is_told_once(tmp_path: Path) -> None:
    said = tuple(Line(float(n), f"line {n}\n", "stderr" if n % 3 else "stdout") for n in range(200))
    with client_on(tmp_path, Script(200.0, log=said)) as (kaggle, stage):
        kaggle.push(PUSH)
        stage.later(10)
        records = list(kaggle.follow(REF, 1))  # in this process each connection ends with what was said so far
        assert [record.data for record in records] == [line.text for line in said]
        assert (records[1].stream, records[1].time) == ("stderr", 1.0)
        assert [record.data for record in kaggle.follow(REF, 1)] == [line.text for line in said]


def test_a_live_log_comes_as_it_is_written(local: LocalServer) -> None:
    user = f"user-{uuid4().hex[:8]}"
    admin.set_knobs(local.url, {"log_drop_s": 0.5})
    try:
        environ = {"KAGGLE_API_TOKEN": f"kgo-local-{user}"}
        with connect(local.url, environ=environ, policy=Policy(first_wait_s=0.05)) as kaggle:
            ref = KernelRef(user, "talks-slowly")
            source = "import time\nfor n in range(6):\n    print(n, flush=True)\n    time.sleep(0.3)\n"
            kaggle.push(PushRequest(ref, "Talks Slowly", source))
            began, heard = time.monotonic(), []
            for record in kaggle.follow(ref, 1):
                heard.append((record.data, time.monotonic() - began))
    finally:
        admin.set_knobs(local.url, {"log_drop_s": 0})
    assert [data for data, _ in heard] == [f"{n}\n" for n in range(6)]
    assert heard[0][1] < heard[-1][1] - 1.0, "not all at the end"


def test_a_session_that_says_nothing_for_long_is_still_followed(local: LocalServer) -> None:
    user = f"user-{uuid4().hex[:8]}"
    policy = Policy(read_s=0.3, attempts=2, first_wait_s=0.01)
    with connect(local.url, environ={"KAGGLE_API_TOKEN": f"kgo-local-{user}"}, policy=policy) as kaggle:
        ref = KernelRef(user, "thinks-long")
        source = "import time\nprint('first', flush=True)\ntime.sleep(2.5)\nprint('last', flush=True)\n"
        kaggle.push(PushRequest(ref, "Thinks Long", source))
        assert [record.data for record in kaggle.follow(ref, 1)] == ["first\n", "last\n"]


@pytest.mark.parametrize("status", [403, 404])
def test_a_log_of_nobody(tmp_path: Path, status: int) -> None:
    with client_on(tmp_path) as (kaggle, _):
        if status == 404:
            kaggle.push(PUSH)
        with pytest.raises(NotAccessible, match=r"the log of me/some-kernel v9"):
            list(kaggle.follow(REF, 9))


def test_a_log_that_can_not_be_had_is_given_up(tmp_path: Path) -> None:
    policy = Policy(attempts=2, first_wait_s=0.01)
    with (
        connect("http://127.0.0.1:9", environ={}, policy=policy) as kaggle,
        pytest.raises(Unavailable, match="the log of me/some-kernel v1"),
    ):
        list(kaggle.follow(REF, 1))


def test_calls_keep_to_their_budget(tmp_path: Path) -> None:
    with client_on(tmp_path, policy=Policy(calls_per_minute=10)) as (kaggle, stage):
        began = stage.clock.now()
        threads = [threading.Thread(target=lambda: [kaggle.quota() for _ in range(7)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 120 <= stage.clock.now() - began <= 180
