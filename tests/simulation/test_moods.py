"""A chain ends the same under each knob by itself, and under sets of knobs that hold every pair of settings."""

from dataclasses import fields
from pathlib import Path

import pytest
from allpairspy import AllPairs

from kaggle_orchestrator.localkaggle.knobs import Knobs
from kaggle_orchestrator.profile import Profile, QueuedStatus
from kaggle_orchestrator.protocol import Outcome
from tests.simulation.lab import Lab
from tests.simulation.moods import MOODS, NOT_MOODS

GPU = 'accelerator = "T4x2"'
OMITTED = Profile(queued_status=QueuedStatus.OMITTED)
"""What a probe finds under that knob: a missing status isn't taken for anything without it."""


def profile_for(knobs: dict[str, object]) -> Profile | None:
    return OMITTED if knobs.get("queued_status") == "omitted" else None


def test_every_knob_is_turned_or_says_why_not() -> None:
    assert sorted([*MOODS, *NOT_MOODS]) == sorted(f.name for f in fields(Knobs))
    for name, values in MOODS.items():
        for value in values:
            assert getattr(Knobs().changed({name: value}), name) != getattr(Knobs(), name)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in MOODS.items() for value in values])
def test_each_knob(name: str, value: object, tmp_path: Path) -> None:
    knobs = {name: value}
    told = Lab(tmp_path).run(knobs=knobs, profile=profile_for(knobs), kernel=GPU)
    if name != "first_mount":
        assert told.outcomes == {Outcome.CONTINUE: 3, Outcome.DONE: 1}


def rows() -> list[dict[str, object]]:
    """Sets of knobs that hold every pair of settings, defaults included."""
    names = list(MOODS)
    values = [[getattr(Knobs(), name), *MOODS[name]] for name in names]
    return [dict(zip(names, row, strict=True)) for row in AllPairs(values)]


@pytest.mark.parametrize("number", range(len(rows())))
def test_pairs_of_knobs(number: int, tmp_path: Path) -> None:
    knobs = rows()[number]
    Lab(tmp_path).run(knobs=knobs, profile=profile_for(knobs), kernel=GPU)
