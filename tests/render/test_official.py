"""The official client takes a rendered folder as it is, and the kernel it pushes runs and leaves its output."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.protocol import LegResult, Outcome
from kaggle_orchestrator.render import write_folder
from tests.experiment.trees import experiment, tree
from tests.render.attempts import rendered

OFFICIAL = Path(__file__).with_name("official.py")

TOML = """
[kernel]
slug = "digits-cnn"
title = "Digits CNN"
accelerator = "T4x2"
internet = false
datasets = ["me/numbers"]
[train]
entry = "train.py"
args = ["--word", "{params.word}"]
params = { word = "größer" }
"""
TRAIN = """
import os, sys
from pathlib import Path
numbers = next(Path(os.environ["KGO_KAGGLE_ROOT"], "input").rglob("numbers.txt"))
Path("final.txt").write_text(f"{sys.argv[1:]} {numbers.read_text()}", encoding="utf-8")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    home = tmp_path_factory.mktemp("kgo-home")
    yield background.ensure(home)
    background.stop(home)


@pytest.fixture
def kaggle(server: LocalServer, tmp_path: Path) -> Callable[..., str]:
    """The official command, as ``me`` of the local Kaggle, with nothing of this machine's account."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "NO_PROXY": "127.0.0.1",
        "KAGGLE_API_TOKEN": "kgo-local",
        "PYTHONIOENCODING": "utf-8",
    }

    def run(*arguments: str) -> str:
        command = [sys.executable, str(OFFICIAL), server.url, *arguments]
        ran = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return run


def test_push_status_and_output(server: LocalServer, kaggle: Callable[..., str], tmp_path: Path) -> None:
    admin.put_dataset(server.url, "me/numbers", tree(tmp_path / "data", {"numbers.txt": "1 2 3"}))
    write_folder(rendered(experiment(tmp_path / "exp", TOML, {"train.py": TRAIN})), tmp_path / "k")

    said = kaggle("kernels", "push", "-p", str(tmp_path / "k"))
    assert "Kernel version 1 successfully pushed" in said
    assert "does not resolve" not in said, "the title gives the slug"
    assert "are not valid" not in said, "no source was dropped"

    end = time.monotonic() + 30
    while "COMPLETE" not in (status := kaggle("kernels", "status", "me/digits-cnn")).upper():
        assert "ERROR" not in status.upper(), kaggle("kernels", "output", "me/digits-cnn", "-p", str(tmp_path / "out"))
        assert time.monotonic() < end, status
        time.sleep(0.2)

    kaggle("kernels", "output", "me/digits-cnn", "-p", str(tmp_path / "out"))
    assert (tmp_path / "out/final.txt").read_text(encoding="utf-8") == "['--word', 'größer'] 1 2 3"
    result = LegResult.loads((tmp_path / "out/kgo/leg.json").read_bytes())
    assert result.outcome is Outcome.DONE

    kaggle("kernels", "pull", "me/digits-cnn", "-m", "-p", str(tmp_path / "pulled"))
    metadata = json.loads((tmp_path / "pulled/kernel-metadata.json").read_text())
    assert metadata["machine_shape"] == "NvidiaTeslaT4"
    assert metadata["dataset_sources"] == ["me/numbers"]
    assert (metadata["enable_gpu"], metadata["enable_internet"], metadata["is_private"]) == (True, False, True)
    pulled = [p.read_text() for p in (tmp_path / "pulled").iterdir() if p.suffix == ".py"]
    assert pulled == [(tmp_path / "k/kgo_kernel.py").read_text()], "the source came through whole"
