"""`kgo demo`, as far as it goes before it trains; `make demo` shows the rest."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kaggle_orchestrator.cli import main


def test_without_torch_it_says_so_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    refused = CliRunner().invoke(main, ["demo", "--dir", str(tmp_path / "demo")])
    assert refused.exit_code == 2
    assert "The demo trains with torch" in refused.stderr
    assert "pip install" in refused.stderr
    assert not (tmp_path / "demo").exists()
