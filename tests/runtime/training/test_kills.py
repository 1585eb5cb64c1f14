"""SIGKILL at any moment costs the steps since the last save, and nothing else."""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import METRICS, Variable
from tests.runtime.training.legs import Zygote, assert_same

FindStraight = Callable[..., Path]
TRAINING = "tests.runtime.training.trainings:epochs"
OTHERS = [("phases", 24), ("zipped", 6), ("scaled", 6), ("steps", 14), ("stream", 15)]


def assert_metrics_are_whole(folder: Path, steps: int) -> None:
    """Each step once, in order."""
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, steps + 1))
    assert [line["step"] for line in lines if "spread" in line] == [5, 10, 15]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("save_every", ["0", ""])
def test_killed_at_some_steps(
    zygote: Zygote, tmp_path: Path, straight: FindStraight, workers: int, save_every: str
) -> None:
    for step in (3, 6, 7, 10, 13):
        environ = {Variable.SAVE_EVERY: save_every}
        ended = zygote.run(TRAINING, tmp_path, environ=environ, workers=workers, kill_at=step)
        assert ended.code == -signal.SIGKILL
    ended = zygote.run(TRAINING, tmp_path, workers=workers)
    assert ended.code == 0, ended.log
    assert_same(straight("epochs"), tmp_path)
    assert_metrics_are_whole(tmp_path, 15)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_at_every_step(zygote: Zygote, tmp_path: Path, straight: FindStraight, workers: int) -> None:
    for step in range(1, 16):
        folder = tmp_path / str(step)
        for kill_at in (step, min(step + 1, 15), min(step + 4, 15)):
            zygote.run(TRAINING, folder, environ={Variable.SAVE_EVERY: "0"}, workers=workers, kill_at=kill_at)
        assert zygote.run(TRAINING, folder, workers=workers).code == 0
        assert_same(straight("epochs"), folder)
        assert_metrics_are_whole(folder, 15)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("training", "steps"), OTHERS)
def test_other_trainings_killed_at_every_step(
    zygote: Zygote, tmp_path: Path, straight: FindStraight, training: str, steps: int
) -> None:
    name = f"tests.runtime.training.trainings:{training}"
    for step in range(1, steps + 1):
        folder = tmp_path / str(step)
        for kill_at in (step, min(step + 2, steps)):
            zygote.run(name, folder, environ={Variable.SAVE_EVERY: "0"}, kill_at=kill_at)
        assert zygote.run(name, folder).code == 0
        assert_same(straight(training), folder)


def kill_while_saving(folder: Path, delay_s: float) -> Callable[[int], None]:
    """Kill once a temporary folder is there, ``delay_s`` later."""

    def meanwhile(pid: int) -> None:
        give_up = time.monotonic() + 20
        while not list((folder / "checkpoints").glob("tmp-step-*")):
            if time.monotonic() > give_up or not Path(f"/proc/{pid}").exists():
                return
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)

    return meanwhile


def hammer(zygote: Zygote, folder: Path, straight: Path, kills: int) -> int:
    """Kill in the midst of saves, again and again; returns how many left a half-written folder behind."""
    chance, torn = random.Random(5), 0
    for _ in range(kills):
        meanwhile = kill_while_saving(folder, chance.uniform(0, 0.02))
        ended = zygote.run(TRAINING, folder, environ={Variable.SAVE_EVERY: "0"}, meanwhile=meanwhile, total=3)
        assert ended.code in (-signal.SIGKILL, 0), ended.log
        assert "set aside" not in ended.log
        torn += bool(list((folder / "checkpoints").glob("tmp-step-*")))
    ended = zygote.run(TRAINING, folder)
    assert ended.code == 0, ended.log
    assert not list((folder / "checkpoints").glob("tmp-*"))
    assert_same(straight, folder)
    assert_metrics_are_whole(folder, 15)
    return torn


def test_killed_in_mid_save(zygote: Zygote, tmp_path: Path, straight: FindStraight) -> None:
    assert hammer(zygote, tmp_path, straight("epochs"), 12) > 0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_killed_in_mid_save_a_hundred_times(zygote: Zygote, tmp_path: Path, straight: FindStraight) -> None:
    torn = sum(hammer(zygote, tmp_path / str(i), straight("epochs"), 12) for i in range(9))
    assert torn >= 30


def test_interrupted_by_ctrl_c(zygote: Zygote, tmp_path: Path, straight: FindStraight) -> None:
    """The first one saves and leaves; loader workers, which the terminal interrupts too, don't spoil it."""
    for step in (2, 8):
        ended = zygote.run(TRAINING, tmp_path, workers=2, stop_at=step)
        assert ended.code == 128 + signal.SIGINT
        assert "SIGINT" in ended.log
        assert "Traceback" not in ended.log
    assert zygote.run(TRAINING, tmp_path, workers=2).code == 0
    assert_same(straight("epochs"), tmp_path)
