"""A leg's first steps are compared with those that the leg before trained behind its last save."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.protocol import ProgressState, ResumeCheck, Variable
from kaggle_orchestrator.runtime.training.replay import REPLAY, STEPS
from tests.runtime.training.legs import Chain, assert_same, newest
from tests.runtime.training.test_exact import TRAININGS

MakeChain = Callable[..., Chain]
FindStraight = Callable[..., Path]
ON = {Variable.REPLAY: "30"}


@pytest.mark.parametrize(("training", "options", "total"), TRAININGS)
@pytest.mark.parametrize("first", [1, 2])
def test_every_resume_is_verified(
    chain: MakeChain, straight: FindStraight, training: str, options: dict[str, Any], total: int, first: int
) -> None:
    legs = chain(training, **options)
    compared = 0
    for stop_at in (first, first + 1, first + 3, None):
        ended = legs.leg(stop_at=stop_at, environ=ON)
        assert ended.code == 0, ended.log
        resume = legs.progress.resume
        if len(legs.legs) == 1:
            assert resume is None
            continue
        assert resume is not None
        assert (resume.mismatch, resume.bitwise) == ("", True)
        compared += resume.agreed
        if resume.complete:
            assert resume.agreed == resume.recorded <= STEPS
            said = f"resume verified {resume.agreed}/{resume.recorded} bitwise"
            assert (said in ended.log) == (resume.recorded > 0)
    assert compared
    assert legs.progress.state is ProgressState.DONE
    assert_same(straight(training, **options), *legs.legs)


def test_up_to_ten_steps_behind_the_last_save(chain: MakeChain, straight: FindStraight) -> None:
    legs = chain("steps", total=40)
    legs.leg(stop_at=3, environ=ON)
    assert (legs.progress.state, legs.progress.step, legs.progress.saved_step) == (ProgressState.LEFT, 3, 3)
    record = json.loads((legs.legs[0] / REPLAY).read_text())
    assert [step["step"] for step in record["steps"]] == list(range(4, 14))
    assert set(record["digests"]) == {"model", "optimizer", "scheduler", "average", "total", "rng", "loader", "best"}
    assert [p.name for p in (legs.legs[0] / "checkpoints").iterdir()] == ["step-00000003"]
    ended = legs.leg(environ=ON)
    assert "resume verified 10/10 bitwise" in ended.log
    assert_same(straight("steps", total=40), *legs.legs)


def test_the_end_is_the_end_also_behind_the_deadline(chain: MakeChain, straight: FindStraight) -> None:
    legs = chain("steps")
    ended = legs.leg(stop_at=9, environ=ON)
    assert ended.code == 0, ended.log
    assert legs.progress.state is ProgressState.DONE
    assert_same(straight("steps"), *legs.legs)


def test_without_time_there_is_no_replay(chain: MakeChain) -> None:
    legs = chain("steps")
    legs.leg(stop_at=3)
    assert not (legs.legs[0] / REPLAY).exists()
    legs.leg(stop_at=5)
    assert legs.progress.resume == ResumeCheck(0, 0, complete=True), "the loaded state is the saved one"


def test_a_kill_in_a_replayed_step_costs_nothing(chain: MakeChain, straight: FindStraight) -> None:
    legs = chain("steps")
    ended = legs.leg(stop_at=3, kill_at=6, environ=ON)
    assert ended.code < 0
    assert legs.progress.state is ProgressState.LEFT
    ended = legs.leg(environ=ON)
    assert "resume verified 3/3 bitwise" in ended.log
    assert_same(straight("steps"), *legs.legs)


def test_an_error_in_a_replayed_step_leaves_the_leg_as_it_is(chain: MakeChain) -> None:
    legs = chain("losing", what="nothing")
    ended = legs.leg(stop_at=3, fail_at=5, environ=ON)
    assert ended.code == 1
    assert (legs.progress.state, legs.progress.saved_step) == (ProgressState.LEFT, 3)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("momentum", r"at step 5 loss is [\d.e+-]+, before [\d.e+-]+, from the same batches.*isn't tracked"),
        ("average", r"behind step 13 the state of total differs"),
        ("rate", r"at step 4 the learning rates are 0.01, [\d.e-]+, before 0.01, [\d.e-]+\."),
        ("samples", r"at step 4 the batches are of other samples"),
        ("data", r"at step 4 the batches hold other values of the same samples"),
        ("numbers", r"at step 4 loss is .*"),
    ],
)
def test_what_is_lost_shows(chain: MakeChain, what: str, says: str) -> None:
    legs = chain("losing", what=what)
    legs.leg(stop_at=3, environ=ON)
    ended = legs.leg(environ=ON)
    assert ended.code == 0, "it goes on regardless"
    resume = legs.progress.resume
    assert resume is not None
    assert not resume.complete
    assert re.search(says, resume.mismatch), resume.mismatch
    assert f"this leg doesn't go on exactly: {resume.mismatch}" in ended.log


def test_a_leg_that_is_not_exact_can_be_stopped(chain: MakeChain) -> None:
    legs = chain("losing", what="average")
    legs.leg(stop_at=3, environ=ON)
    ended = legs.leg(environ={**ON, Variable.ON_MISMATCH: "stop", Variable.SAVE_EVERY: "0"})
    assert ended.code == 1
    resume = legs.progress.resume
    assert resume is not None
    assert resume == replace(resume, agreed=10, recorded=10, complete=False, stopped=True)
    assert "checkpoint.on_mismatch" in ended.log
    assert newest(legs.legs[-1]) is None, "nothing that isn't exact is saved"


def test_a_cause_that_is_known_is_named(chain: MakeChain) -> None:
    legs = chain("losing", what="numbers")
    legs.leg(stop_at=3, environ=ON)
    path = legs.legs[0] / REPLAY
    record = json.loads(path.read_text())
    record["environment"]["cpu_capability"] = "AVX1024"
    path.write_text(json.dumps(record))
    legs.leg(environ=ON)
    resume = legs.progress.resume
    assert resume is not None
    assert re.search(r"Likely cause: CPU capability is .*, it was AVX1024\.", resume.mismatch)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"checkpoint": 1}', "[" * 100_000])
def test_a_record_that_is_none_is_passed_over(chain: MakeChain, text: str) -> None:
    legs = chain("steps")
    legs.leg(stop_at=3, environ=ON)
    (legs.legs[0] / REPLAY).write_text(text)
    ended = legs.leg(environ=ON)
    assert ended.code == 0, ended.log
    assert legs.progress.resume == ResumeCheck(0, 0, complete=True)


def test_the_record_of_another_checkpoint_is_passed_over(chain: MakeChain) -> None:
    """As behind a newer checkpoint that was damaged, so that the one before it was restored."""
    legs = chain("steps")
    legs.leg(stop_at=3, environ=ON)
    path = legs.legs[0] / REPLAY
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"checkpoint": "0" * 64}))
    legs.leg(environ=ON)
    assert legs.progress.resume == ResumeCheck(0, 0, complete=True)


def test_what_training_changes_and_nobody_tracks_is_named_at_the_first_save(chain: MakeChain) -> None:
    legs = chain("losing", what="everything")
    ended = legs.leg(stop_at=3)
    found = ("AdamW", "Linear of 28 parameters", "OneCycleLR")
    assert legs.progress.untracked == found
    assert f"changed by training, but in no checkpoint: {', '.join(found)}" in ended.log


def test_a_frozen_model_needs_no_tracking(chain: MakeChain) -> None:
    legs = chain("losing", what="nothing")
    ended = legs.leg(stop_at=3)
    assert legs.progress.untracked == ()
    assert "in no checkpoint" not in ended.log
