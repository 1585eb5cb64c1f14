"""`kgo status` for a person."""

from typing import Any

from kaggle_orchestrator.cli import words
from kaggle_orchestrator.cli.status import lines
from kaggle_orchestrator.protocol import Outcome
from tests.chain.facts import NOW, ended


def told(**facts: Any) -> list[str]:
    """What follows a chain's first line."""
    chain: dict[str, Any] = {
        "kernel": "me/x",
        "status": "done",
        "reason": None,
        "waiting_for": None,
        "hint": None,
        "progress": {"step": 0, "target": None, "fraction": None},
        "legs": [],
    }
    return lines(chain | facts, NOW)[1:]


def leg(**facts: Any) -> dict[str, Any]:
    return {
        "leg": 1,
        "attempt": 1,
        "kernel": "me/x",
        "version": 1,
        "session_status": "COMPLETE",
        "outcome": "done",
        "reason": "exit 0",
        "step_start": 0,
        "step_end": 0,
        "started_at": NOW - 9,
        "ended_at": NOW,
        "resume_verified": None,
    } | facts


def test_a_script_that_counts_no_steps_is_not_said_to_have_done_none() -> None:
    assert told(legs=[leg()]) == ["  leg 1  attempt 1  me/x v1  done (exit 0)  no steps counted  9s"]
    assert "step 0 → 7" in told(legs=[leg(step_end=7)])[0]
    assert "step 0 → 0" in told(legs=[leg(outcome="killed")])[0]
    assert words.verdict(ended(outcome=Outcome.DONE)) == "done"
    assert "step 0 → 7" in words.verdict(ended(outcome=Outcome.DONE, step=7))
    assert "step 0 → 0" in words.verdict(ended(outcome=Outcome.USER_ERROR))


def test_each_line_of_a_reason_is_indented() -> None:
    shown = told(reason="It failed:\nKeyError: 1", hint="Mend it.")
    assert shown == ["  It failed:", "  KeyError: 1", "  Mend it."]
