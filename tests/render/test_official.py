"""The official client takes a rendered folder as it is, and the kernel it pushes runs and leaves its output."""

import json
from pathlib import Path

from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.protocol import LegResult, Outcome
from kaggle_orchestrator.render import write_folder
from tests.experiment.trees import experiment, tree
from tests.localkaggle import official
from tests.localkaggle.client import Client
from tests.render.attempts import rendered

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


def test_push_status_and_output(local: LocalServer, tmp_path: Path) -> None:
    def kaggle(*arguments: str) -> str:
        ran = official.kaggle(local.url, tmp_path / "home", *arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    admin.put_dataset(local.url, "me/numbers", tree(tmp_path / "data", {"numbers.txt": "1 2 3"}))
    write_folder(rendered(experiment(tmp_path / "exp", TOML, {"train.py": TRAIN})), tmp_path / "k")

    said = kaggle("kernels", "push", "-p", str(tmp_path / "k"))
    assert "Kernel version 1 successfully pushed" in said
    assert "does not resolve" not in said, "the title gives the slug"
    assert "are not valid" not in said, "no source was dropped"

    Client(local.url).wait("digits-cnn")
    status = kaggle("kernels", "status", "me/digits-cnn")
    assert "COMPLETE" in status, status + kaggle("kernels", "logs", "me/digits-cnn")

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
