"""Headers, plans and results survive the trip between the two sides, and what doesn't fit is refused by path."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaggle_orchestrator.protocol import (
    Header,
    LegRecord,
    LegResult,
    Outcome,
    Parent,
    Plan,
    Progress,
    ProgressState,
    attempt_token,
    parse_header,
    result_from_log,
)
from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable, to_jsonable
from kaggle_orchestrator.protocol.result import CheckpointRef, ResultState

HEADER = Header(
    chain="c0ffee",
    leg=2,
    attempt=3,
    token=attempt_token("c0ffee", 2, 3),
    parent=Parent("me/digits", 1, "0123456789abcdef", 120, "f" * 64),
    code_sha256="a" * 64,
    config_sha256="b" * 64,
    kgo_version="0.1.0",
)
RECORD = LegRecord(1, 1, "0123456789abcdef", Outcome.CONTINUE, 0, 120, 1.0, 2.5)
RESULT = LegResult(
    chain="c0ffee",
    leg=2,
    attempt=3,
    token=HEADER.token,
    state=ResultState.FINAL,
    step_start=120,
    step_end=240,
    started_at=3.0,
    ended_at=9.5,
    outcome=Outcome.CONTINUE,
    checkpoint=CheckpointRef("checkpoints/step-00000240", 240, "d" * 64, HEADER.token),
    lineage=(RECORD,),
)


def test_a_header_is_read_back_from_a_script() -> None:
    assert parse_header(f"#!/usr/bin/env python\n{HEADER.line()}\nprint(1)\n") == HEADER
    assert HEADER.line().isascii()


def test_a_header_is_read_back_from_a_notebook() -> None:
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": f"{HEADER.line()}\nprint(1)"}]})
    assert parse_header(notebook) == HEADER


@pytest.mark.parametrize("source", ["", "print(1)", "# kgo-header: ", "# kgo-header: {", '# kgo-header: {"leg": 1}'])
def test_a_source_without_a_whole_header_has_none(source: str) -> None:
    assert parse_header(source) is None


def test_a_token_names_one_attempt() -> None:
    tokens = {attempt_token(c, leg, attempt) for c in ("a", "b") for leg in range(1, 20) for attempt in range(1, 20)}
    assert len(tokens) == 2 * 19 * 19
    assert attempt_token("a", 1, 11) != attempt_token("a", 11, 1)


def test_a_result_is_read_back() -> None:
    assert LegResult.loads(RESULT.dumps()) == RESULT


def test_a_result_is_found_in_the_log_by_its_token() -> None:
    other = replace(RESULT, token="another")
    running = replace(RESULT, state=ResultState.RUNNING)
    log = ["noise", RESULT.log_line(), "KGO_RESULT {broken", other.log_line(), running.log_line()]
    assert result_from_log(log, RESULT.token) == replace(RESULT, lineage=())
    assert result_from_log(log, "unknown") is None


@given(st.text())
def test_no_text_is_mistaken_for_a_result(text: str) -> None:
    with pytest.raises(Malformed):
        LegResult.loads(text)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"leg": "2"}, "LegResult.leg"),
        ({"leg": True}, "LegResult.leg"),
        ({"outcome": "fine"}, "LegResult.outcome"),
        ({"checkpoint": {"path": "x"}}, "LegResult.checkpoint.step"),
        ({"lineage": {}}, "LegResult.lineage"),
        ({"lineage": [{"leg": None}]}, "LegResult.lineage[0].leg"),
        ({"outputs": {"a": {"sha256": "x"}}}, "LegResult.outputs.a.size"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(change: dict[str, object], path: str) -> None:
    with pytest.raises(Malformed, match=path.replace("[", r"\[").replace(".", r"\.")):
        from_jsonable(LegResult, {**to_jsonable(RESULT), **change})


def test_a_newer_writer_may_add_keys() -> None:
    assert from_jsonable(LegResult, {**to_jsonable(RESULT), "later": 1}) == RESULT


def test_a_plan_is_read_back(tmp_path: Path) -> None:
    plan = Plan(
        header=HEADER,
        entry="train.py",
        args=("--lr", "0.1", "{resume}"),
        launch="python",
        session_limit_s=43200,
        leave_after_s=42600.0,
        keep=2,
        save_every_s=None,
        accelerator="NvidiaTeslaT4",
        gpu_count=2,
        sources=("digits",),
        params={"lr": 0.1, "layers": [1, 2], "name": "葉"},
        lineage=(RECORD,),
    )
    (tmp_path / "plan.json").write_text(plan.dumps(), encoding="utf-8")
    assert Plan.load(tmp_path / "plan.json") == plan


def test_progress_is_read_back_and_never_half_written(tmp_path: Path) -> None:
    assert Progress.read(tmp_path) is None
    (tmp_path / "progress.json").write_text('{"state": "runn')
    assert Progress.read(tmp_path) is None
    progress = Progress(ProgressState.RUNNING, 7, loss=0.5, buckets={"train": 1.5}, environment={"threads": 2})
    progress.write(tmp_path)
    assert Progress.read(tmp_path) == progress
    assert [p.name for p in tmp_path.iterdir()] == ["progress.json"]


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_numbers_that_nothing_can_hold(digits: int, tmp_path: Path) -> None:
    number = "9" * digits
    for key in ("step_end", "started_at"):
        text = RESULT.log_line().replace(f'"{key}":{json.dumps(getattr(RESULT, key))}', f'"{key}":{number}')
        assert number in text
        with pytest.raises(Malformed):
            LegResult.loads(text.removeprefix("KGO_RESULT "))
        assert result_from_log([RESULT.log_line(), text], RESULT.token) is not None
    (tmp_path / "progress.json").write_text(f'{{"state": "running", "step": {number}}}')
    assert Progress.read(tmp_path) is None
    assert parse_header(HEADER.line().replace('"leg":2', f'"leg":{number}')) is None
