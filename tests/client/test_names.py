"""No name leaves the folder, passes through a link, or hides another; nothing is written before that is sure."""

from pathlib import Path

import pytest

from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.client.names import folded_twins, place
from kaggle_orchestrator.errors import UnsafeName
from kaggle_orchestrator.models import OutputFile
from tests.client.faulty import FaultyServer, served

UNSAFE = [
    "",
    "/etc/passwd",
    "//host/share",
    "..",
    "../up",
    "a/../../up",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "C:",
    "c:/windows",
    "C:evil",
    "a\\b",
    "..\\up",
    "nul\0",
    "line\nbreak",
    "\x1b[31mred",
    "lone \ud800 surrogate",
    ".kgo-0123456789abcdef.part",
    "a/.KGO-0123456789ABCDEF.note",
    ".kgo-0123456789abcdef.part/b",
]


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_names(server: FaultyServer, kaggle: Kaggle, tmp_path: Path, name: str) -> None:
    url = server.on("/good", served(b"good"))
    folder = tmp_path / "out"
    with pytest.raises(UnsafeName):
        kaggle.download([OutputFile("good", url), OutputFile(name, url)], folder, {})
    assert not folder.exists()
    assert server.seen == []


@pytest.mark.parametrize(
    "name", ["a", "a/b/c.txt", "..a", "a..b/...", "with space", "ünïcode/é", "ab:c", "-rf", "~", ".a", ".kgo-1.part"]
)
def test_safe_names(tmp_path: Path, name: str) -> None:
    assert place([name], tmp_path) == {name: tmp_path / name}


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b/c", "a"), ("x/y", "x/y/z"), ("x/y/z", "x/y")])
def test_a_file_cannot_be_a_folder_too(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(UnsafeName, match="both"):
        place(names, tmp_path)


def test_nothing_is_written_through_a_link(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    url = server.on("/f", served(b"data"))
    outside, folder = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/link").symlink_to(outside)
    with pytest.raises(UnsafeName, match="link"):
        kaggle.download([OutputFile("ok", url), OutputFile("deep/link/f", url)], folder, {})
    assert list(outside.iterdir()) == []
    assert not (folder / "ok").exists()


def test_a_link_in_the_files_own_place_is_replaced_not_followed(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    (tmp_path / "f").symlink_to(outside)
    kaggle.download([OutputFile("f", server.on("/f", served(b"data")))], tmp_path, {})
    assert outside.read_text() == "mine"
    assert (tmp_path / "f").read_bytes() == b"data"
    assert not (tmp_path / "f").is_symlink()


def test_the_folder_itself_may_be_a_link(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    kaggle.download([OutputFile("a/f", server.on("/f", served(b"data")))], tmp_path / "out", {})
    assert (tmp_path / "disk/a/f").read_bytes() == b"data"


def test_twins_on_a_disk_that_folds_case() -> None:
    assert folded_twins(["a/Model.pt", "b", "a/model.PT"]) == ("a/Model.pt", "a/model.PT")
    assert folded_twins(["e\u0301", "\u00e9"])
    assert folded_twins(["a", "b", "A/b"]) is None
