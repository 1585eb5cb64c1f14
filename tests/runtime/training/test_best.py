"""``best/``: the weights always belong to the value beside them, whatever is killed when."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.runtime.training.best import Best


def weights(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((2,), value)}


@pytest.fixture
def best(tmp_path: Path) -> Best:
    found = Best(tmp_path / "best")
    found.write("accuracy", 0.5, "max", 10, 0, weights(0.5))
    return found


def loaded(output: Path) -> Any:
    return torch.load(output / "best/model.pt", weights_only=True)["w"][0].item()


def test_what_it_holds(best: Best, tmp_path: Path) -> None:
    assert loaded(tmp_path) == 0.5
    record = json.loads((tmp_path / "best/best.json").read_text())
    assert {k: record[k] for k in ("name", "value", "mode", "step", "epoch")} == {
        "name": "accuracy",
        "value": 0.5,
        "mode": "max",
        "step": 10,
        "epoch": 0,
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best"]


def test_which_is_better(best: Best, tmp_path: Path) -> None:
    assert best.offer("accuracy", 0.6, "max")
    assert not best.offer("accuracy", 0.5, "max")
    assert not best.offer("accuracy", float("nan"), "max")
    low = Best(tmp_path / "low")
    assert not low.offer("loss", float("nan"), "min")
    assert low.offer("loss", float("inf"), "min")
    low.write("loss", 0.5, "min", 1, None, weights(0))
    assert low.offer("loss", 0.4, "min")
    with pytest.raises(KgoError, match="the best is kept for loss, min"):
        low.offer("loss", 0.4, "max")


def test_it_is_carried_to_another_output(best: Best, tmp_path: Path) -> None:
    there = Best(tmp_path / "next/best")
    assert there.resume(tmp_path, best.record)
    assert there.record == best.record
    assert loaded(tmp_path / "next") == 0.5
    assert loaded(tmp_path) == 0.5


def test_one_from_lost_steps_is_kept_until_they_are_trained_again(best: Best, tmp_path: Path) -> None:
    stored = best.record
    best.write("accuracy", 0.9, "max", 30, 2, weights(0.9))
    again = Best(tmp_path / "best")
    assert again.resume(tmp_path, stored)
    assert again.offer("accuracy", 0.6, "max")


def test_killed_between_the_two_renames(best: Best, tmp_path: Path) -> None:
    (tmp_path / "best").rename(tmp_path / "best.old")
    shutil.copytree(tmp_path / "best.old", tmp_path / "best.new")
    again = Best(tmp_path / "best")
    assert again.resume(tmp_path, best.record)
    assert loaded(tmp_path) == 0.5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best"]


@pytest.mark.parametrize("harm", ["missing", "torn", "swapped", "older"])
def test_weights_that_aren_t_the_stored_ones_don_t_count(best: Best, tmp_path: Path, harm: str) -> None:
    stored = best.record
    assert stored is not None
    if harm == "missing":
        (tmp_path / "best/best.json").unlink()
    elif harm == "torn":
        (tmp_path / "best/model.pt").write_bytes(b"x")
    elif harm == "swapped":
        torch.save(weights(0.1), tmp_path / "best/model.pt")
    else:
        best.write("accuracy", 0.1, "max", 5, 0, weights(0.1))
    again = Best(tmp_path / "best")
    assert not again.resume(tmp_path, stored)
    assert again.record is None
    assert again.offer("accuracy", 0.01, "max")


def test_a_failed_write_leaves_the_one_before(best: Best, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        best.write("accuracy", 0.9, "max", 30, 2, weights(0.9))
    assert loaded(tmp_path) == 0.5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best"]
