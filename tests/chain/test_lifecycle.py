"""docs/lifecycle.md says what the code does."""

import re
from pathlib import Path

import pytest

from kaggle_orchestrator.chain.budget import RULES
from kaggle_orchestrator.chain.model import Bound, Phase, Why
from kaggle_orchestrator.protocol import Outcome

DOCUMENT = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def tables() -> dict[str, dict[str, list[str]]]:
    """Each table by its first heading, its rows by their first cell."""
    found: dict[str, dict[str, list[str]]] = {}
    rows: dict[str, list[str]] = {}
    previous = ""
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if re.fullmatch(r"\|( --- \|)+", line):
            rows = found.setdefault(previous.split("|")[1].strip(), {})
        elif line.startswith("|") and previous.startswith("|"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            rows[cells[0].strip("`")] = cells[1:]
        previous = line
    return found


def row(outcome: Outcome) -> list[str]:
    rule = RULES[outcome]
    retries = "" if rule.budget is None else "`chain.retries`" if rule.tries is None else str(rule.tries)
    return [rule.turn.value, rule.budget or "", retries, f"{rule.wait_s:.0f} s" if rule.wait_s else ""]


@pytest.mark.parametrize(("heading", "enum"), [("phase", Phase), ("wait", Why), ("bound", Bound)])
def test_the_tables_name_every_value(heading: str, enum: type[Phase] | type[Why] | type[Bound]) -> None:
    assert list(tables()[heading]) == [value.value for value in enum]


def test_the_outcomes_and_their_budgets() -> None:
    assert tables()["outcome"] == {outcome.value: row(outcome) for outcome in RULES}
    assert RULES.keys() == set(Outcome)
