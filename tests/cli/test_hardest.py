"""The digits in a chain of real torch sessions end bit for bit as one session does, at a Kaggle in its worst moods."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.localkaggle import admin, background

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
CONFIG = """
[kernel]
slug = "digits-hard"
accelerator = "T4x2"
[train]
entry = "train.py"
params = { epochs = 4, batch_size = 64, lr = 0.01 }
include = ["*.py", "data/**"]
[pull]
patterns = ["final/**"]
"""
CHAIN = """
[chain]
session_limit = "26s"
stop_before = "16s"
min_leg = "1s"
max_legs = 12
"""
HARDEST: dict[str, tuple[dict[str, object], list[dict[str, Any]]]] = {
    "killed while saving, outputs dropped": (
        {"output_after_kill": "drop", "mount_layout": "owner"},
        [{"kill_session": {"number": 2, "when_output": "checkpoints/*/manifest.json", "after_s": 0.05, "as": "limit"}}],
    ),
    "pushes land unseen, and sources come late": (
        {"first_mount": "empty", "denied_s": 1},
        [
            {"rpc": "SaveKernel", "number": 1, "reset": True, "after_landing": True},
            {"rpc": "SaveKernel", "number": 3, "status": 500, "after_landing": True},
        ],
    ),
    "downloads break, expire and differ": (
        {"url_ttl_s": 4, "mount_layout": "flat"},
        [
            {"download": "**", "chance": 0.3, "break_at": 0.6},
            {"download": "**", "chance": 0.1, "expire": True},
            {"download": "final/model.pt", "number": 1, "flip": True},
        ],
    ),
    "the status lies, late and early": (
        {"stale_status_s": 3, "status_lag_s": 2, "output_lag_s": 2, "queue_s": 1},
        [{"lie": "COMPLETE", "every": 1, "for_s": 3, "from": "start"}],
    ),
    "throttled, cut off and answered by web pages": (
        {"error_body": "nested", "calls_per_minute": 200},
        [
            {"rpc": "*", "every": 5, "status": 429, "retry_after": 1},
            {"rpc": "ListKernelSessionOutput", "every": 3, "reset": True},
            {"rpc": "GetKernel", "every": 4, "reset": True},
            {"rpc": "GetKernelSessionStatus", "every": 4, "status": 200, "body": "html"},
        ],
    ),
    "lost with its output kept, then without its GPU": (
        {"output_after_error": "keep", "output_after_kill": "keep", "quick_save": "mask", "self_mount": "mount"},
        [{"kill_session": {"number": 2, "after_s": 9, "as": "error"}}, {"no_gpu": {"number": 3}}],
    ),
}


def train(folder: Path, config: str, knobs: dict[str, object], faults: list[dict[str, Any]]) -> tuple[str, int]:
    """sha256 of the final weights as `kgo run --local` pulls them, and how many sessions it took."""
    root, home = folder / "digits", folder / "home"
    shutil.copytree(DIGITS, root, ignore=shutil.ignore_patterns("__pycache__", ".kgo", "outputs"))
    (root / "kgo.toml").write_text(config)
    script = root / "train.py"  # however fast the machine, a session hasn't the time for all of it
    script.write_text(
        script.read_text().replace("run.step(loss=loss)", "run.step(loss=loss); __import__('time').sleep(0.2)")
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KAGGLE_", "KGO_"))} | {"KGO_HOME": str(home)}
    try:
        server = background.ensure(home, idle_s=600)
        admin.set_knobs(server.url, knobs)
        admin.add_faults(server.url, faults)
        ran = subprocess.run(
            [Path(sys.executable).with_name("kgo"), "run", "--local"],
            env=environ, cwd=root, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        sessions = admin.sessions(background.ensure(home).url)
        status = subprocess.run(
            [Path(sys.executable).with_name("kgo"), "status", "--local", "--json"],
            env=environ, cwd=root, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        background.stop(home)
    (chain,) = json.loads(status.stdout)["chains"]
    attempts = [(leg["kernel"], leg["version"]) for leg in chain["legs"]]
    assert sorted(attempts) == sorted((s.kernel, s.version) for s in sessions)
    return hashlib.sha256((root / "outputs/final/model.pt").read_bytes()).hexdigest(), len(sessions)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """sha256 of the weights after one session."""
    sha256, sessions = train(tmp_path_factory.mktemp("straight"), CONFIG, {}, [])
    assert sessions == 1
    return sha256


@pytest.mark.soak
@pytest.mark.full_stack
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", HARDEST)
def test_bit_for_bit(name: str, uninterrupted: str, tmp_path: Path) -> None:
    knobs, faults = HARDEST[name]
    sha256, sessions = train(tmp_path, CONFIG + CHAIN, knobs, faults)
    assert sha256 == uninterrupted
    assert sessions >= 3
