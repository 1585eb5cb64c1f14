"""When a session began, and that what makes training leave comes in its order and in time."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaggle_orchestrator.protocol import Header, Plan
from kaggle_orchestrator.runtime.supervisor.times import Limits, Schedule, session_start
from kaggle_orchestrator.runtime.supervisor.watch import Move, next_move

PLAN = Plan(Header("c", 1, 1, "t", None, "", "", ""), "train.py", (), "python", 43200.0, 42600.0, 2, None, None, 0)


def proc(folder: Path, first_age_s: float, own_age_s: float) -> Path:
    """A ``/proc`` in which PID 1 and this process are as old as that."""
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    for pid, age in ((1, first_age_s), (os.getpid(), own_age_s)):
        ticks = int((boot - age) * os.sysconf("SC_CLK_TCK"))
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "stat").write_text(f"{pid} (a b) c) S {' '.join(['0'] * 18)} {ticks} 0\n")
    return folder


def test_the_first_process_s_start_is_the_session_s(tmp_path: Path) -> None:
    now = time.time()
    assert session_start({}, now, 3600, proc(tmp_path, 90, 1)) == pytest.approx(now - 90, abs=0.1)


def test_a_first_process_that_is_too_old_is_not_believed(tmp_path: Path) -> None:
    now = time.time()
    assert session_start({}, now, 3600, proc(tmp_path, 86400, 1)) == pytest.approx(now - 1, abs=0.1)


def test_what_is_told_counts_unless_it_lies_ahead(tmp_path: Path) -> None:
    now = time.time()
    place = proc(tmp_path, 90, 1)
    assert session_start({"KGO_SESSION_START": f"{now - 7}"}, now, 3600, place) == pytest.approx(now - 7)
    assert session_start({"KGO_SESSION_START": f"{now + 70}"}, now, 3600, place) == pytest.approx(now - 1, abs=0.1)
    assert session_start({"KGO_SESSION_START": "soon"}, now, 3600, place) == pytest.approx(now - 1, abs=0.1)


def test_without_proc_it_is_now(tmp_path: Path) -> None:
    assert session_start({}, 1000.0, 3600, tmp_path) == 1000.0


def test_the_smaller_limit_counts() -> None:
    assert Limits.of(PLAN, {}, 0.0) == Limits(0.0, 43200.0, 42600.0, True)
    limits = Limits.of(PLAN, {"KGO_SESSION_LIMIT_S": "100"}, 0.0)
    assert limits.kill_at == 100
    assert limits.leave_at < 100
    one_off = Limits.of(replace(PLAN, leave_after_s=None), {"KGO_SESSION_LIMIT_S": "nonsense"}, 0.0)
    assert (one_off.kill_at, one_off.chained) == (43200.0, False)
    assert 43200 - 200 < one_off.leave_at < 43200


seconds = st.floats(0.1, 43200)


@given(
    limit=seconds, part=st.floats(0.01, 1), save=st.floats(0, 2000), step=st.floats(0, 2000), tail=st.floats(0.3, 900)
)
def test_the_order_holds_and_the_end_is_before_the_kill(
    limit: float, part: float, save: float, step: float, tail: float
) -> None:
    limits = Limits.of(replace(PLAN, session_limit_s=limit, leave_after_s=limit * part), {}, 0.0)
    schedule = Schedule.of(limits, save_s=save, step_s=step, tail_s=tail)
    assert limits.start <= schedule.ask_at <= schedule.term_at <= schedule.kill_at <= schedule.last_at
    assert schedule.ask_at <= limits.leave_at
    assert schedule.last_at <= max(limits.kill_at - tail, schedule.ask_at)
    assert schedule.last_at - schedule.ask_at <= max(600, 4 * (save + step)) + 1e-6


def test_the_usual_session() -> None:
    schedule = Schedule.of(Limits.of(PLAN, {}, 0.0), save_s=20, step_s=2, tail_s=30)
    assert schedule.ask_at == 42600 - 50
    assert 42600 < schedule.term_at < schedule.kill_at < schedule.last_at < 43200 - 30


@given(
    now=st.floats(0, 100),
    ask=st.floats(0, 50),
    gaps=st.tuples(st.floats(0, 20), st.floats(0, 20), st.floats(0, 20)),
    busy=st.booleans(),
    done=st.sampled_from(list(Move)),
)
def test_a_signal_comes_only_after_the_request_and_in_a_save_only_at_last(
    now: float, ask: float, gaps: tuple[float, float, float], busy: bool, done: Move
) -> None:
    term = ask + gaps[0]
    schedule = Schedule(ask, term, term + gaps[1], term + gaps[1] + gaps[2])
    move = next_move(now, schedule, done, busy)
    if move in (Move.TERM, Move.KILL):
        assert done is not Move.NONE
        assert not busy or now >= schedule.last_at
    if move is Move.ASK:
        assert done is Move.NONE
    if now < ask:
        assert move is Move.NONE


def test_training_that_never_leaves_is_killed_in_three_moves() -> None:
    schedule, done, moves = Schedule(10, 16, 18.5, 20), Move.NONE, []
    for tenth in range(300):
        move = next_move(tenth / 10, schedule, done, busy=False)
        if move is not Move.NONE:
            done = move
            moves.append((move, tenth / 10))
        if done is Move.KILL:
            break
    assert moves == [(Move.ASK, 10.0), (Move.TERM, 16.0), (Move.KILL, 18.5)]
