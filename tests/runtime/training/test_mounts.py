"""A source is found wherever Kaggle mounts it."""

from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.runtime.training.mounts import find_mount


def made(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / "input" / path).mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    "path", ["digits", "datasets/me/digits", "notebooks/me/digits", "competitions/digits", "a/b/c/d/digits"]
)
def test_either_layout_and_any_depth(tmp_path: Path, path: str) -> None:
    root = made(tmp_path, path, "other/things", "datasets/you/other")
    assert find_mount("digits", root, {}) == root / "input" / path


@pytest.mark.parametrize("path", ["digits", "datasets/me/digits"])
def test_with_its_owner(tmp_path: Path, path: str) -> None:
    root = made(tmp_path, path)
    assert find_mount("me/digits", root, {}) == root / "input" / path


def test_both_layouts_at_once_are_one_source(tmp_path: Path) -> None:
    root = made(tmp_path, "digits", "datasets/me/digits")
    assert find_mount("digits", root, {}) == root / "input/digits"


def test_a_folder_of_that_name_within_another_source_does_not_win(tmp_path: Path) -> None:
    root = made(tmp_path, "other/digits", "datasets/me/digits")
    assert find_mount("digits", root, {}) == root / "input/datasets/me/digits"


def test_two_owners(tmp_path: Path) -> None:
    root = made(tmp_path, "datasets/me/digits", "datasets/you/digits")
    with pytest.raises(KgoError, match="2 folders could be meant"):
        find_mount("digits", root, {})
    assert find_mount("you/digits", root, {}) == root / "input/datasets/you/digits"


def test_links_are_followed_once(tmp_path: Path) -> None:
    root = made(tmp_path, "a")
    (tmp_path / "store/deep/digits").mkdir(parents=True)
    (root / "input/linked").symlink_to(tmp_path / "store")
    (root / "input/a/loop").symlink_to(root / "input")
    assert find_mount("digits", root, {}) == root / "input/linked/deep/digits"
    with pytest.raises(KgoError, match="isn't mounted"):
        find_mount("nothing", root, {})


def test_a_missing_source_names_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(KgoError, match=r"'digit' isn't mounted below .*/input; there: digits, faces"):
        find_mount("digit", made(tmp_path, "digits", "faces"), {})


def test_on_a_laptop(tmp_path: Path) -> None:
    (tmp_path / "sample").mkdir()
    sources = {"me/digits": tmp_path / "sample", "me/gone": tmp_path / "gone"}
    assert find_mount("digits", None, sources) == tmp_path / "sample"
    assert find_mount("me/digits", None, sources) == tmp_path / "sample"
    with pytest.raises(KgoError, match=r"\[local\] sources of kgo.toml names .*/gone, which isn't a folder"):
        find_mount("gone", None, sources)
    with pytest.raises(KgoError, match="there is no /kaggle here") as caught:
        find_mount("faces", None, sources)
    assert caught.value.hint == "Add it there, or set KGO_KAGGLE_ROOT to a folder that holds input/faces/."


@pytest.mark.parametrize("slug", ["", "/", "me/", "..", "me/.."])
def test_what_is_no_slug(tmp_path: Path, slug: str) -> None:
    with pytest.raises(KgoError, match="give the source's slug"):
        find_mount(slug, tmp_path, {})
