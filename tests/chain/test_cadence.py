"""How often Kaggle is asked: soon for short sessions, rarely for long ones, and never so late that it costs much."""

from dataclasses import replace

import pytest

from kaggle_orchestrator.chain.cadence import fault_interval, landing_interval, session_interval
from kaggle_orchestrator.chain.decide import ABSENT_S
from kaggle_orchestrator.chain.model import Attempt
from tests.chain.facts import NOW, live

HOUR = 3600.0
LONG = replace(live(), running_since=NOW, session_limit_s=12 * HOUR, leave_after_s=11.8 * HOUR)
SHORT = replace(live(), running_since=NOW, session_limit_s=20.0, leave_after_s=15.0)


@pytest.mark.parametrize("age", [0.0, 5.0, 14.0, 16.0, 60.0])
def test_a_short_session_is_looked_at_each_second(age: float) -> None:
    assert 0.2 <= session_interval(SHORT, NOW + age) <= 1.0


@pytest.mark.parametrize("age", [11.7 * HOUR, 11.8 * HOUR, 11.9 * HOUR])
def test_a_long_one_twice_a_minute_near_its_expected_end(age: float) -> None:
    assert session_interval(LONG, NOW + age) == 30


@pytest.mark.parametrize("age", [2 * HOUR, 6 * HOUR, 11 * HOUR])
def test_and_every_few_minutes_in_its_middle(age: float) -> None:
    assert session_interval(LONG, NOW + age) == 300


@pytest.mark.parametrize("attempt", [LONG, SHORT, replace(LONG, leave_after_s=None)])
def test_an_end_is_noticed_within_a_twentieth_of_the_age(attempt: Attempt) -> None:
    for age in range(1, 43200, 97):
        assert session_interval(attempt, NOW + age) <= max(1.0, age / 20)


def test_a_whole_long_session_takes_few_calls() -> None:
    calls, age = 0, 0.0
    while age < 12 * HOUR:
        calls, age = calls + 1, age + session_interval(LONG, NOW + age)
    assert calls < 400


def test_a_push_that_doesnt_show_up_is_looked_for_ever_more_rarely() -> None:
    assert [landing_interval(s) for s in (0, 1, 8, 100, ABSENT_S)] == [1, 1, 8, 60, 60]


def test_network_faults_back_off() -> None:
    assert [fault_interval(n) for n in (1, 2, 3, 9, 10, 1000)] == [1, 2, 4, 256, 300, 300]
