"""A new experiment is complete and valid, and never costs an old one anything."""

import ast
from pathlib import Path

import pytest

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.experiment import collect, load
from kaggle_orchestrator.experiment.scaffold import Starter, scaffold
from kaggle_orchestrator.experiment.shipped import shipped
from tests.experiment.trees import tree
from tests.render.attempts import rendered, session


def test_the_script_starter_is_a_valid_experiment(tmp_path: Path) -> None:
    folder = tmp_path / "My first Net"
    written = scaffold(folder, Starter.SCRIPT)
    assert [p.name for p in written] == [".gitignore", "kgo.toml", "train.py"]
    e = load(folder)
    assert e.kernel.slug == "my-first-net"
    assert e.chain is not None
    assert list(collect(e)) == ["train.py"]
    ast.parse((folder / "train.py").read_bytes(), feature_version=(3, 11))
    assert "@SLUG@" not in (folder / "kgo.toml").read_text()


def test_the_notebook_starter_is_the_script_s_but_for_its_template(tmp_path: Path) -> None:
    scaffold(tmp_path / "training", Starter.NOTEBOOK)
    scaffold(tmp_path / "beside", Starter.SCRIPT)
    assert (tmp_path / "training/train.py").read_text() == (tmp_path / "beside/train.py").read_text()
    assert load(tmp_path / "training").kernel.template == "notebook"


def test_the_pytorch_starter_needs_no_code_of_its_own(tmp_path: Path) -> None:
    written = scaffold(tmp_path / "pictures", Starter.PYTORCH)
    assert [p.name for p in written] == [".gitignore", "kgo.toml"]
    e = load(tmp_path / "pictures")
    assert e.train.brought
    assert list(collect(e).values()) == [shipped("kernel_templates") / "pytorch" / "train.py"]


@pytest.mark.parametrize(
    ("name", "slug"), [("a", "a-training"), ("葉", "xie-training"), ("_", "training"), ("x" * 60, "x" * 40)]
)
def test_a_slug_is_found_for_any_folder(tmp_path: Path, name: str, slug: str) -> None:
    scaffold(tmp_path / name, Starter.SCRIPT)
    assert load(tmp_path / name).kernel.slug == slug


def test_the_digits_starter_is_the_example(tmp_path: Path) -> None:
    written = {p.relative_to(tmp_path).as_posix() for p in scaffold(tmp_path, Starter.DIGITS)}
    example = shipped("examples") / "digits"
    assert {"kgo.toml", "train.py"} <= written
    for path in written - {".gitignore"}:
        assert (tmp_path / path).read_bytes() == (example / path).read_bytes()
    load(tmp_path)


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "mine", ".gitignore": "mine"})
    with pytest.raises(UsageError, match=r"already holds train\.py; nothing was written"):
        scaffold(tmp_path, Starter.SCRIPT)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".gitignore", "train.py"]
    assert (tmp_path / "train.py").read_text() == "mine"


def test_a_gitignore_of_one_s_own_stays(tmp_path: Path) -> None:
    tree(tmp_path, {".gitignore": "mine"})
    scaffold(tmp_path, Starter.SCRIPT)
    assert (tmp_path / ".gitignore").read_text() == "mine"


def test_a_place_that_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    tree(tmp_path, {"exp/data": "a file where the starter needs a folder", "blocked": ""})
    with pytest.raises(UsageError, match="can't be written"):
        scaffold(tmp_path / "blocked" / "exp", Starter.SCRIPT)
    with pytest.raises(UsageError, match="can't be written"):
        scaffold(tmp_path / "exp", Starter.DIGITS)
    assert [p.name for p in (tmp_path / "exp").iterdir()] == ["data"]


@pytest.mark.full_stack
def test_the_script_starter_trains_in_a_session(tmp_path: Path) -> None:
    scaffold(tmp_path / "exp", Starter.SCRIPT)
    file = tmp_path / "exp" / "kgo.toml"
    text, _, _ = file.read_text().replace("epochs = 20", "epochs = 2").partition("[chain]")  # one session will do
    file.write_text(text)
    ran = session(rendered(load(tmp_path / "exp")), tmp_path / "kaggle")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "epoch 1: accuracy" in ran.stdout
    assert (tmp_path / "kaggle/working/final/model.pt").is_file()
