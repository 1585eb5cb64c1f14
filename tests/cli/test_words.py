"""What a person reads of an event."""

import pytest

from kaggle_orchestrator.chain.events import Waiting
from kaggle_orchestrator.chain.model import Wait, Why
from kaggle_orchestrator.cli import words
from kaggle_orchestrator.cli.status import lines
from kaggle_orchestrator.protocol import ResumeCheck
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


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ResumeCheck(10, 10, complete=True), "resume verified 10/10 bitwise"),
        (ResumeCheck(3, 3, bitwise=False, complete=True), "resume verified 3/3"),
        (ResumeCheck(0, 0, complete=True), ""),
        (ResumeCheck(2, 10), ""),
        (ResumeCheck(2, 10, mismatch="at step 3 loss is 1, before 2."), "not exact: at step 3 loss is 1, before 2."),
    ],
)
def test_whether_a_leg_went_on_exactly(found: ResumeCheck, said: str) -> None:
    assert words.resume(found) == said


@pytest.mark.parametrize("why", Why)
def test_each_wait_has_words(why: Why) -> None:
    assert words.WAITS[why] in words.waiting(Wait(NOW, why))
