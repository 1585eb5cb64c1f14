"""Going on from a checkpoint: walking back over damaged ones, and refusing what isn't the same training."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from kaggle_orchestrator.protocol import METRICS, ProgressState, Variable, open_checkpoint
from kaggle_orchestrator.runtime.training import Run
from kaggle_orchestrator.runtime.training.pace import Pace
from tests.runtime.training.legs import Chain, Zygote, assert_same, newest

MakeChain = Callable[..., Chain]
FindStraight = Callable[..., Path]
TRAINING = "tests.runtime.training.trainings:epochs"


@pytest.fixture
def half(zygote: Zygote, tmp_path: Path) -> Path:
    """The folder of a training that was interrupted at step 8 and holds checkpoints of steps 7 and 8."""
    folder = tmp_path / "half"
    assert zygote.run(TRAINING, folder, environ={Variable.SAVE_EVERY: "0"}, stop_at=8).code == 130
    assert sorted(p.name for p in folder.glob("checkpoints/step-*")) == ["step-00000007", "step-00000008"]
    return folder


def test_a_damaged_newest_checkpoint_costs_its_steps_only(zygote: Zygote, half: Path, straight: FindStraight) -> None:
    victim = half / "checkpoints/step-00000008/model.pt"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1  # torch.load wouldn't notice
    victim.write_bytes(data)
    ended = zygote.run(TRAINING, half)
    assert ended.code == 0, ended.log
    assert "model.pt: content differs from its recorded sha256: damaged, set aside" in ended.log
    assert "going on from step 7" in ended.log
    assert (half / "checkpoints/damaged-step-00000008/model.pt").is_file()
    assert_same(straight("epochs"), half)


def test_with_no_whole_checkpoint_it_stops_instead_of_starting_over(zygote: Zygote, half: Path) -> None:
    for folder in half.glob("checkpoints/step-*"):
        (folder / "manifest.json").unlink()
    ended = zygote.run(TRAINING, half)
    assert ended.code == 1
    assert "kgo: none of the 2 checkpoints in" in ended.log
    assert "kgo: To start from the beginning, move that folder away." in ended.log


def test_metrics_and_best_are_carried_over_to_the_next_leg(chain: MakeChain, straight: FindStraight) -> None:
    chained = chain("epochs")
    for stop in (3, 7, 12, None):
        assert chained.leg(stop_at=stop).code == 0
    last, whole = chained.legs[-1], straight("epochs")

    def numbers(folder: Path) -> list[dict[str, float]]:
        lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
        return [{k: v for k, v in line.items() if k != "time"} for line in lines]

    assert numbers(last) == numbers(whole)
    assert (last / "best/model.pt").read_bytes() == (whole / "best/model.pt").read_bytes()
    assert (last / "best/best.json").read_text() == (whole / "best/best.json").read_text()


def test_metrics_of_lost_steps_are_cut(zygote: Zygote, tmp_path: Path, chain: MakeChain) -> None:
    """A killed attempt trained on behind its last save; the next one writes those steps again."""
    chained = chain("epochs", kill_at=9)
    assert chained.leg().code == -9
    lines = (chained.legs[0] / METRICS).read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 9
    assert chained.leg(kill_at=None).code == 0
    steps = [json.loads(line)["step"] for line in (chained.legs[1] / METRICS).read_text().splitlines()]
    assert steps == sorted([*range(1, 16), 5, 10, 15])


def test_lost_best_weights_are_named_and_found_again(chain: MakeChain) -> None:
    chained = chain("epochs")
    chained.leg(stop_at=12)
    shutil.rmtree(chained.legs[0] / "best")
    ended = chained.leg()
    assert "doesn't hold the best weights so far" in ended.log
    assert (chained.legs[1] / "best/model.pt").is_file()


def test_the_manifest_says_where_it_comes_from(chain: MakeChain) -> None:
    chained = chain("epochs")
    chained.leg(stop_at=3)
    chained.leg(stop_at=7)
    first, second = (open_checkpoint(found) for leg in chained.legs if (found := newest(leg)))
    assert (first.manifest.token, first.manifest.parent, first.manifest.epoch) == ("token1", None, 0)
    assert (second.manifest.token, second.manifest.parent) == ("token2", first.sha256)
    assert (second.manifest.step, second.manifest.epoch) == (7, 1)
    assert set(second.manifest.digests) >= {"model", "optimizer", "scheduler", "average", "rng", "loader", "best"}
    assert second.manifest.environment["threads"] == 1
    assert second.manifest.environment["cpu_capability"]
    assert "deadline" not in (second.folder / "run.json").read_text()


def test_a_later_leg_without_a_checkpoint_is_refused(zygote: Zygote, tmp_path: Path) -> None:
    ended = zygote.run(TRAINING, tmp_path, environ={Variable.LEG: "2", Variable.CONTROL: str(tmp_path)})
    assert ended.code == 1
    assert "this is leg 2, but KGO_RESUME names no checkpoint" in ended.log
    assert not (tmp_path / "checkpoints").exists()


def test_a_damaged_named_checkpoint_is_an_error(chain: MakeChain) -> None:
    """In a session walking back is the supervisor's: it knows the other checkpoints."""
    chained = chain("epochs")
    chained.leg(stop_at=3)
    found = newest(chained.legs[0])
    assert found is not None
    (found / "rng.pt").write_bytes(b"")
    ended = chained.leg()
    assert ended.code == 1
    assert "kgo: the checkpoint to go on from can't be used:" in ended.log
    assert "rng.pt: 0 bytes where" in ended.log


def test_a_finished_training_has_nothing_left_to_do(zygote: Zygote, tmp_path: Path) -> None:
    assert zygote.run(TRAINING, tmp_path).code == 0
    first = (tmp_path / "final.json").read_text()
    ended = zygote.run(TRAINING, tmp_path)
    assert ended.code == 0
    assert "done at step 15" in ended.log
    assert (tmp_path / "final.json").read_text() == first


def test_progress_reports(chain: MakeChain) -> None:
    chained = chain("epochs")
    chained.leg(stop_at=7)
    left = chained.progress
    assert (left.state, left.step, left.saved_step, left.epoch, left.target_step) == (ProgressState.LEFT, 7, 7, 1, 15)
    assert left.loss is not None
    assert left.save_s > 0
    assert left.step_s > 0
    assert left.buckets is not None
    assert set(left.buckets) == {"restore", "data", "train", "save", "replay"}
    assert left.environment is not None
    assert left.environment["threads"] == 1
    chained.leg(kill_at=9)
    assert (chained.progress.state, chained.progress.saved_step) == (ProgressState.RUNNING, None)
    assert not (chained.legs[1] / "control/saving").exists()


def test_no_save_falls_between_two_loaders_side_by_side(
    started: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has given out its next batch by then: after a resume nobody would train on it."""
    with started() as run:
        run.track(model=nn.Linear(1, 1))
        left, right = (run.loader(TensorDataset(torch.arange(6.0)), batch_size=2) for _ in range(2))
        monkeypatch.setattr(Pace, "save_due", lambda *_: left.position > right.position)
        for _ in run.epochs(1):
            for _ in zip(left, right, strict=True):
                run.step()
    assert [p.name for p in tmp_path.glob("checkpoints/step-*")] == ["step-00000003"]
