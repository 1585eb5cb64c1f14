"""What a person reads of an event."""

import pytest

from kaggle_orchestrator.chain.events import Waiting
from kaggle_orchestrator.chain.model import Wait, Why
from kaggle_orchestrator.cli import words
from kaggle_orchestrator.cli.status import lines
from tests.chain.facts import NOW


def test_a_late_result_is_told_once_with_what_is_waited_for_and_until_when() -> None:
    line = words.line(Waiting(Wait(NOW + 5, Why.RESULT, "Its session ended.", NOW + 600)))
    assert line == f"Waiting for the result until {words.clock_time(NOW + 600)}. Its session ended."


def test_status_says_so_too() -> None:
    chain = {
        "kernel": "me/x",
        "status": "waiting",
        "reason": "Its session ended.",
        "waiting_for": Why.RESULT.value,
        "next_action_at": NOW + 600,
        "hint": None,
        "progress": {"step": 0, "target": None, "fraction": None},
        "legs": [],
    }
    assert f"  waits for: result, until about {words.clock_time(NOW + 600)}" in lines(chain, NOW)


@pytest.mark.parametrize("why", Why)
def test_each_wait_has_words(why: Why) -> None:
    assert words.WAITS[why] in words.waiting(Wait(NOW, why))
