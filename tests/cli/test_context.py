"""What a connection to the local Kaggle is given of an experiment."""

import pytest

from tests.cli.conftest import Kgo

LOOKS = """
import os, pathlib
found = pathlib.Path(os.environ["KGO_KAGGLE_ROOT"], "input").rglob("rows.csv")
pathlib.Path("said.txt").write_text(next(found).read_text())
"""


@pytest.mark.parametrize(("key", "name"), [("datasets", "me/some-data"), ("competitions", "some-cup")])
def test_a_folder_stands_in_for_a_source(kgo: Kgo, key: str, name: str) -> None:
    root = kgo.experiment(chain=None)
    (root / "sample").mkdir()
    (root / "sample/rows.csv").write_text(key)
    (root / "train.py").write_text(LOOKS)
    config = (root / "kgo.toml").read_text().replace("[train]", f'{key} = ["{name}"]\n[train]')
    (root / "kgo.toml").write_text(f'{config}sources = {{ "{name}" = "sample" }}\n')
    ran = kgo("run", root)
    assert ran.exit_code == 0, ran.output
    assert (root / "outputs/said.txt").read_text() == key
