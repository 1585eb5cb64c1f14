"""`kgo` as a subprocess drives the digits example with real torch sessions over two legs or more."""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kaggle_orchestrator.localkaggle import background

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
CONFIG = """
[kernel]
slug = "digits-short"
accelerator = "T4x2"
[train]
entry = "train.py"
params = { epochs = 4, batch_size = 64, lr = 0.01 }
include = ["*.py", "data/**"]
[chain]
session_limit = "28s"
stop_before = "16s"
max_legs = 12
[pull]
patterns = ["final/**", "best/**", "kgo/**"]
"""


@pytest.mark.full_stack
@pytest.mark.timeout(240)
def test_the_digits_over_several_legs(tmp_path: Path) -> None:
    root, home = tmp_path / "digits", tmp_path / "home"
    shutil.copytree(DIGITS, root, ignore=shutil.ignore_patterns("__pycache__", ".kgo", "outputs"))
    (root / "kgo.toml").write_text(CONFIG)
    # However fast the machine, no session has the time for all of it.
    train = root / "train.py"
    train.write_text(
        train.read_text().replace("run.step(loss=loss)", "run.step(loss=loss); __import__('time').sleep(0.12)")
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KAGGLE_", "KGO_"))} | {"KGO_HOME": str(home)}

    def kgo(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("kgo"), *arguments],
            env=environ, cwd=root, capture_output=True, text=True, timeout=230, check=False,
        )  # fmt: skip

    try:
        ran = kgo("run", "--local")
        assert ran.returncode == 0, ran.stderr
        shown = kgo("status", "--local", "--json")
    finally:
        background.stop(home)
    (chain,) = json.loads(shown.stdout)["chains"]
    assert chain["status"] == "done"
    assert chain["progress"]["step"] == chain["progress"]["target"]
    legs = [leg for leg in chain["legs"] if leg["outcome"] in ("continue", "done")]
    assert len(legs) >= 2
    for before, after in itertools.pairwise(legs):
        assert before["kernel"] != after["kernel"]
        assert after["resumed_from"]["step"] == before["step_end"] == after["step_start"]
        assert after["resume_verified"]["mismatch"] == ""
    assert sum(leg["resume_verified"]["agreed"] for leg in legs[1:]) >= len(legs) - 1
    for line in ran.stdout.splitlines():
        sha256, path = line.split("  ")
        assert hashlib.sha256((root / path).read_bytes()).hexdigest() == sha256
    assert (root / "outputs/final/model.pt").exists()
