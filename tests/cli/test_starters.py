"""What `kgo init` writes trains to its end over several sessions, as it is but for its length."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kaggle_orchestrator.localkaggle import background

SHORTER = {
    "notebook": "params = { epochs = 400, lr = 0.01 }",
    "pytorch": "params = { epochs = 8, size = 32, width = 16, samples = 1000, workers = 0 }",
}


@pytest.mark.soak
@pytest.mark.full_stack
@pytest.mark.timeout(600)
@pytest.mark.parametrize("starter", sorted(SHORTER))
def test_a_starter_over_several_legs(tmp_path: Path, starter: str) -> None:
    root, home = tmp_path / "training", tmp_path / "home"
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KAGGLE_", "KGO_"))} | {"KGO_HOME": str(home)}

    def kgo(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("kgo"), *arguments],
            env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=580, check=False,
        )  # fmt: skip

    assert kgo("init", str(root), "--starter", starter).returncode == 0
    toml = (root / "kgo.toml").read_text()
    toml = re.sub(r"params = .*", SHORTER[starter], toml)
    toml = re.sub(r'session_limit = "12h"', 'session_limit = "24s"', toml)
    toml = re.sub(r'stop_before = "10m"', 'stop_before = "14s"', toml)
    (root / "kgo.toml").write_text(toml)
    try:
        ran = kgo("run", "--local", str(root))
        shown = kgo("status", "--local", "--json", str(root))
    finally:
        background.stop(home)
    assert ran.returncode == 0, ran.stderr
    (chain,) = json.loads(shown.stdout)["chains"]
    legs = [leg for leg in chain["legs"] if leg["outcome"] in ("continue", "done")]
    assert len(legs) >= 3
    assert {leg["resume_verified"]["mismatch"] for leg in legs[1:]} == {""}
    assert (root / "outputs/final/model.pt").exists()
