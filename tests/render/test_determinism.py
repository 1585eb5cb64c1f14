"""The same experiment gives the same bytes, whoever renders it, where and when."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.experiment.trees import tree

FILES = {f"folder {n % 3}/größe_{n}.py": f"x = {n}\n" for n in range(20)}
TOML = """
[kernel]
slug = "digits-cnn"
datasets = ["me/b", "me/a"]
[train]
entry = "größe.py"
exclude = ["weg/ö.py"]
params = { %s }
[chain]
[pull]
dir = "ergebnisse/ü"
"""

RENDER = """
import os, sys
os.umask(int(sys.argv[3], 8))
from pathlib import Path
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.render import first_attempt, render, write_folder
e = load(Path(sys.argv[1]))
write_folder(render(e, first_attempt(e, "me")), Path(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return _render(tmp_path_factory.mktemp("reference"), "a = 1, b = 2", "022", {})


def _render(folder: Path, params: str, umask: str, environment: dict[str, str]) -> dict[str, bytes]:
    exp = tree(folder / "exp", {"größe.py": "print(1)\n", "weg/ö.py": "", "kgo.toml": TOML % params, **FILES})
    varied = ("LC_", "LANG", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONHASHSEED", "TZ", "COLUMNS")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(varied)}
    subprocess.run(
        [sys.executable, "-c", RENDER, str(exp), str(folder / "out"), umask],
        cwd=folder,
        env={**inherited, **environment},
        check=True,
        timeout=60,
    )
    return {p.name: p.read_bytes() for p in (folder / "out").iterdir()}


@pytest.mark.parametrize(
    ("params", "umask", "environment"),
    [
        ("a = 1, b = 2", "077", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONHASHSEED": "1"}),
        ("b = 2, a = 1", "000", {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "COLUMNS": "20"}),
    ],
)
def test_same_input_same_bytes(
    tmp_path: Path, reference: dict[str, bytes], params: str, umask: str, environment: dict[str, str]
) -> None:
    found = _render(tmp_path, params, umask, environment)
    assert set(found) == {"kernel-metadata.json", "kgo_kernel.py"}
    assert found == reference


def test_names_are_read_right_in_a_latin_1_locale(tmp_path: Path, reference: dict[str, bytes]) -> None:
    name = "en_US.ISO-8859-1"
    made = subprocess.run(
        ["localedef", "-i", "en_US", "-f", "ISO-8859-1", tmp_path / name], capture_output=True, check=False
    )
    if made.returncode > 1:
        pytest.skip("this machine can't make a Latin-1 locale")
    locale = {"LC_ALL": name, "LOCPATH": str(tmp_path), "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert _render(tmp_path, "a = 1, b = 2", "022", locale) == reference


def test_another_input_other_bytes(tmp_path: Path, reference: dict[str, bytes]) -> None:
    found = _render(tmp_path, "a = 1, b = 3", "022", {})
    assert found["kgo_kernel.py"] != reference["kgo_kernel.py"]
    assert found["kernel-metadata.json"] == reference["kernel-metadata.json"]
