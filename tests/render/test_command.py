"""``kgo render`` and ``kgo init``: what they write, and what they say on which stream."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kaggle_orchestrator.cli import main
from tests.experiment.trees import CHAIN, tree


def kgo(*arguments: str | Path) -> Result:
    return CliRunner(env={"KAGGLE_USERNAME": None}).invoke(main, [str(a) for a in arguments])


def test_render(tmp_path: Path) -> None:
    tree(tmp_path, {"kgo.toml": CHAIN + 'session_limit = "6h"\n', "train.py": ""})
    result = kgo("render", tmp_path, "-o", tmp_path / "k")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [str(tmp_path / "k/kernel-metadata.json"), str(tmp_path / "k/kgo_kernel.py")]
    assert f"kaggle kernels push -p {tmp_path / 'k'} --timeout 21600" in result.stderr
    again = kgo("render", tmp_path, "-o", tmp_path / "k2")
    assert again.exit_code == 0
    assert (tmp_path / "k/kgo_kernel.py").read_bytes() == (tmp_path / "k2/kgo_kernel.py").read_bytes(), (
        "a kernel folder inside the experiment is not part of it"
    )


def test_init_makes_something_that_checks_and_renders(tmp_path: Path) -> None:
    folder = tmp_path / "my net"
    result = kgo("init", folder)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [str(folder / name) for name in (".gitignore", "kgo.toml", "train.py")]
    assert f"kgo check '{folder}'" in result.stderr
    checked = kgo("check", folder)
    assert checked.exit_code == 0
    assert "warning" not in checked.stdout
    assert kgo("render", folder, "-o", tmp_path / "k").exit_code == 0


def test_init_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert kgo("init", "--starter", "digits").exit_code == 0
    assert (tmp_path / "kgo.toml").is_file()
    assert kgo("check").exit_code == 0
