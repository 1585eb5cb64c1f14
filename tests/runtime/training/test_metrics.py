"""The metrics file: each step once, in order, and never too long."""

import json
from pathlib import Path

import pytest
import torch

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.runtime.training.metrics import Metrics, number


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    metrics = Metrics(tmp_path / "parent/metrics.jsonl")
    metrics.open(None, lines=0, step=0)
    for step in (1, 2, 2, 3, 4):
        metrics.write(step, 0, 100.0, 0.0, {"loss": 1 / step})
    metrics.close()
    return tmp_path / "parent/metrics.jsonl"


def test_a_line(written: Path) -> None:
    line = json.loads(written.read_text().splitlines()[1])
    assert line == {"step": 2, "epoch": 0, "time": 100.0, "loss": 0.5}


def test_it_goes_on_from_its_length_at_the_checkpoint(written: Path, tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert metrics.open(written, lines=3, step=2)
    metrics.write(3, 0, 0, 0, {})
    metrics.close()
    assert steps(tmp_path / "metrics.jsonl") == [1, 2, 2, 3]
    assert steps(written) == [1, 2, 2, 3, 4]


def test_it_can_be_the_same_file(written: Path) -> None:
    metrics = Metrics(written)
    assert metrics.open(written, lines=2, step=2)
    metrics.close()
    assert steps(written) == [1, 2]


@pytest.mark.parametrize("end", ["", '{"step": 3, "lo', "not json\n", '{"step": 9}\n'])
def test_a_torn_or_strange_file_is_cut_where_it_stops_making_sense(written: Path, tmp_path: Path, end: str) -> None:
    written.write_text("".join(written.read_text().splitlines(keepends=True)[:2]) + end)
    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert not metrics.open(written, lines=3, step=3)
    metrics.close()
    assert steps(tmp_path / "metrics.jsonl") == [1, 2]


def test_a_missing_file_is_an_empty_one(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    assert not metrics.open(tmp_path / "gone", lines=3, step=3)
    assert metrics.open(None, lines=0, step=0)
    metrics.close()


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.open(None, lines=0, step=0)
    metrics.write(1, None, 0, 0, {"a": float("nan"), "b": float("inf"), "c": 1})
    metrics.close()
    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)
    assert (line["a"], line["b"], line["c"]) == (None, None, 1)


def test_twelve_hours_of_fast_steps_stay_readable(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.open(None, lines=0, step=0)
    for step in range(1, 1001):
        assert metrics.wanted(step, step / 20)
    wanted = 0
    for step in range(1001, 12 * 3600 * 20):
        if metrics.wanted(step, step / 20):
            metrics._last = step / 20
            wanted += 1
    metrics.close()
    assert 12 * 3600 / 10 <= wanted < 8000


def test_number() -> None:
    assert number("x", torch.tensor(0.5)) == 0.5
    assert number("x", torch.tensor([[3]])) == 3
    assert number("x", 4) == 4
    for bad in (torch.zeros(2), "a", None, True, torch.tensor(True)):
        with pytest.raises(KgoError, match="metric 'x'"):
            number("x", bad)
