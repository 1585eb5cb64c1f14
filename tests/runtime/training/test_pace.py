"""When to save and when to leave."""

import random
from itertools import pairwise

from kaggle_orchestrator.runtime.training.pace import COST, FIRST_S, FIRST_STEPS, Pace


def run(pace: Pace, *, until: float, step_s: float, save_s: float) -> list[float]:
    """Train with steady steps; returns the times at which it saved."""
    now, steps, saves = pace.started, 0, []
    while now < until:
        now += step_s
        steps += 1
        pace.reached_point(now)
        if pace.save_due(now, steps):
            saves.append(now)
            now += save_s
            pace.saved(now, save_s)
    return saves


def test_the_first_save_comes_early() -> None:
    assert run(Pace(None, None, 0), until=20, step_s=0.01, save_s=0.001)[0] <= (FIRST_STEPS + 1) * 0.01
    assert run(Pace(None, None, 0), until=100, step_s=4, save_s=0.1)[0] <= FIRST_S + 4
    assert run(Pace(3600, None, 0), until=100, step_s=4, save_s=0.1)[0] <= FIRST_S + 4


def test_saves_cost_about_one_percent() -> None:
    for save_s in (0.001, 0.02, 0.5, 3, 20):
        hours = 12 * 3600
        saves = run(Pace(None, None, 0), until=hours, step_s=0.5, save_s=save_s)
        assert len(saves) * save_s <= 1.1 * COST * hours + save_s
        gaps = [b - a for a, b in pairwise(saves)]
        assert max(gaps) <= max(0.011 * hours, 101 * save_s) + 1


def test_a_fixed_interval_is_kept() -> None:
    saves = run(Pace(60, None, 0), until=600, step_s=1, save_s=0.5)
    assert all(60 <= b - a <= 62 for a, b in pairwise(saves))
    assert len(saves) == 10


def test_it_leaves_before_the_deadline_whatever_the_evaluations_take() -> None:
    """Steps of about a second, an evaluation of a minute after every 50th, saves of five seconds."""
    chance = random.Random(1)
    for deadline in range(300, 4000, 37):
        pace, now, steps = Pace(1e9, float(deadline), 0), 0.0, 0
        while True:
            now += chance.uniform(0.9, 1.0) + (60 if steps % 50 == 49 else 0)
            steps += 1
            pace.reached_point(now)
            if pace.leave_due(now, now):
                break
            if pace.save_due(now, steps):
                now += 5
                pace.saved(now, 5)
        assert now + 5 <= deadline
        assert now + 5 >= deadline - 140  # and not much too early


def test_a_save_isn_t_part_of_a_step() -> None:
    pace = Pace(None, None, 0)
    pace.reached_point(10)
    pace.saved(15, 5)
    pace.reached_point(16)
    assert (pace.slowest_step_s, pace.slowest_save_s) == (1, 5)


def test_the_first_step_warms_up() -> None:
    pace = Pace(None, None, 0)
    pace.reached_point(100)
    assert pace.slowest_step_s == 0


def test_behind_the_last_batch_only_the_rest_counts() -> None:
    """A step that is known to take ten seconds and began nine seconds ago ends in one."""
    pace = Pace(None, 1000.0, 0)
    for now in (0, 10, 20):
        pace.reached_point(now)
    assert pace.leave_due(20, 990)
    assert not pace.leave_due(29, 998.5)
    assert pace.leave_due(29, 999)


def test_no_deadline_never_leaves() -> None:
    assert not Pace(None, None, 0).leave_due(1e9, 1e12)
