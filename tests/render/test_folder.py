"""The kernel folder: written whole, over an older one of ours, never over anything else."""

from pathlib import Path

import pytest

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.render import write_folder
from tests.experiment.trees import experiment, tree
from tests.render.attempts import rendered


def test_it_replaces_an_older_one_of_ours(tmp_path: Path) -> None:
    e = experiment(tmp_path / "exp")
    write_folder(rendered(e), tmp_path / "a" / "k")
    tree(tmp_path / "exp", {"train.py": "changed"})
    request = rendered(e)
    _, code = write_folder(request, tmp_path / "a" / "k")
    assert code.read_text(encoding="utf-8") == request.source
    assert sorted(p.name for p in (tmp_path / "a" / "k").iterdir()) == ["kernel-metadata.json", "kgo_kernel.py"]


@pytest.mark.parametrize("name", ["kernel-metadata.json", "kgo_kernel.py"])
def test_it_replaces_nothing_else(tmp_path: Path, name: str) -> None:
    e = experiment(tmp_path / "exp")
    folder = tree(tmp_path / "k", {name: "mine"})
    with pytest.raises(RenderError, match="holds a kernel that kgo didn't render"):
        write_folder(rendered(e), folder)
    assert (folder / name).read_text() == "mine"
    assert [p.name for p in folder.iterdir()] == [name]


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    e = experiment(tmp_path / "exp")
    tree(tmp_path, {"blocked": ""})
    with pytest.raises(RenderError, match="can't be written"):
        write_folder(rendered(e), tmp_path / "blocked" / "k")
