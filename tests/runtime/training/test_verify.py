"""A new process can load the checkpoint, or says why not."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kaggle_orchestrator.runtime.training import verify
from kaggle_orchestrator.runtime.training.checkpoints import Checkpoints, Snapshot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Checkpoints(tmp_path / "checkpoints", keep=2)
    states = {"model": {"w": torch.ones(2)}, "rng": {"n": 1}}
    return store.write(Snapshot(step=3, epoch=None, states=states, document={})).folder


def test_a_fresh_process(folder: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "kaggle_orchestrator.runtime.training.verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (
        0,
        "kgo: checkpoint step-00000003 verified: 2 states load and are what was saved\n",
    )


def test_a_good_one(folder: Path) -> None:
    assert verify.main([str(folder)]) == 0


def test_damage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (folder / "model.pt").read_bytes()
    (folder / "model.pt").write_bytes(data[:-1] + b"!")
    assert verify.main([str(folder)]) == 1
    assert "kgo: checkpoint not usable: " in capsys.readouterr().out


def test_a_state_that_is_another_although_the_files_agree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = folder / "manifest.json"
    text = manifest.read_text()
    digest = text.split('"model": "')[1][:64]
    manifest.write_text(text.replace(digest, "0" * 64))
    assert verify.main([str(folder)]) == 1
    assert "model.pt: the loaded state isn't the saved one" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["/nowhere"]])
def test_wrong_calls(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(arguments) == 1
    assert capsys.readouterr().out.startswith("kgo: ")
