"""A script's own files: which ones match, what is handed back to it, and copies that are whole or not there."""

import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import Checkpoint, FileDigest, digest_file, open_checkpoint
from kaggle_orchestrator.runtime.supervisor.plainscript import (
    Wrapper,
    bring_back,
    drop_resume,
    is_match,
    is_wrapped,
    matching,
)


@pytest.mark.parametrize("glob", ["out", "out/**", "out/*.pt", "./out/last.pt", "**/last.pt"])
def test_a_glob_means_what_it_means_everywhere_else(tmp_path: Path, glob: str) -> None:
    for name in ("out/last.pt", "other/first.pt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
    assert list(matching(tmp_path, [glob])) == ["out/last.pt"]
    assert is_match(tmp_path / "out" / "last.pt", tmp_path, [glob])
    assert not is_match(tmp_path / "other" / "first.pt", tmp_path, [glob])


@pytest.mark.parametrize(
    ("args", "without", "with_it"),
    [
        (["--resume", "{resume}", "--lr", "1"], ["--lr", "1"], ["--resume", "C", "--lr", "1"]),
        (["--lr", "1", "-r", "{resume}"], ["--lr", "1"], ["--lr", "1", "-r", "C"]),
        (["--resume={resume}", "x"], ["x"], ["--resume=C", "x"]),
        (["train", "{resume}"], ["train"], ["train", "C"]),
        (["--lr=1", "{resume}"], ["--lr=1"], ["--lr=1", "C"]),
        (["{resume}"], [], ["C"]),
        (["{other}", "a{b}"], ["{other}", "a{b}"], ["{other}", "a{b}"]),
    ],
)
def test_the_resume_argument(args: list[str], without: list[str], with_it: list[str]) -> None:
    assert drop_resume(args, None) == without
    assert drop_resume(args, "C") == with_it


def wrapper(working: Path, *globs: str, after: Checkpoint | None = None) -> Wrapper:
    return Wrapper.after(after, working, working / "checkpoints", globs or ("*.pt",), "t" * 16)


def test_a_change_is_wrapped_when_it_is_at_rest(tmp_path: Path) -> None:
    wrap = wrapper(tmp_path)
    assert wrap.look() is None
    (tmp_path / "last.pt").write_text("one")
    assert wrap.look() is None  # seen for the first time
    made = wrap.look()
    assert made is not None
    made.verify()
    assert (made.step, made.manifest.token, made.manifest.parent) == (1, "t" * 16, None)
    assert (made.folder / "files" / "last.pt").read_text() == "one"
    assert wrap.look(last=True) is None


def test_steps_count_distinct_saves_and_go_on_from_the_parent_s(tmp_path: Path) -> None:
    before, working = tmp_path / "before", tmp_path / "working"
    before.mkdir()
    working.mkdir()
    (before / "last.pt").write_text("one")
    first = wrapper(before).look(last=True)
    assert first is not None
    newest = bring_back(first, working)
    wrap = wrapper(working, after=first)
    assert wrap.look(last=True) is None  # what was restored is no progress
    os.utime(newest, (1, 1))
    assert wrap.look(last=True) is None  # nor is a touch
    newest.write_text("two")
    second = wrap.look(last=True)
    assert second is not None
    assert (second.step, second.manifest.parent) == (2, first.sha256)
    newest.write_text("three")
    third = wrap.look(last=True)
    assert third is not None
    assert (third.step, third.manifest.parent) == (3, second.sha256)


def test_an_open_or_torn_file_is_not_wrapped(tmp_path: Path) -> None:
    wrap, file = wrapper(tmp_path), tmp_path / "last.pt"
    file.write_text("half")
    wrap.look()
    assert wrap.look(lambda: [file]) is None
    file.write_text("half a")
    assert wrap.look(last=True, whole=False) is None
    assert not list((tmp_path / "checkpoints").glob("*"))
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("data.pkl", "x" * 1000)
    file.write_bytes(data.getvalue()[:-10])
    assert wrap.look(last=True, whole=False) is None
    file.write_bytes(data.getvalue())
    assert wrap.look(last=True, whole=False) is not None  # an archive with its end is whole


def test_a_file_that_changes_while_it_is_copied_is_not_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap, file = wrapper(tmp_path), tmp_path / "last.pt"
    file.write_text("one")

    def then_write(path: Path) -> FileDigest:
        file.write_text("another one")
        return digest_file(path)

    monkeypatch.setattr("kaggle_orchestrator.runtime.supervisor.plainscript.digest_file", then_write)
    assert wrap.look(last=True) is None
    assert list((tmp_path / "checkpoints").iterdir()) == []
    monkeypatch.undo()
    made = wrap.look(last=True)
    assert made is not None
    assert (made.folder / "files" / "last.pt").read_text() == "another one"


def test_a_full_disk_leaves_what_was_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap, file = wrapper(tmp_path), tmp_path / "last.pt"
    file.write_text("one")
    made = wrap.look(last=True)
    assert made is not None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    file.write_text("two")
    monkeypatch.setattr("kaggle_orchestrator.runtime.supervisor.plainscript.sync_file", full)
    with pytest.raises(OSError):
        wrap.look(last=True)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    open_checkpoint(made.folder).verify()
    monkeypatch.undo()
    again = wrap.look(last=True)
    assert again is not None
    assert again.step == 2


def test_files_come_back_in_their_order_with_their_times(tmp_path: Path) -> None:
    before, working = tmp_path / "before", tmp_path / "working"
    (before / "checkpoints" / "deep").mkdir(parents=True)
    working.mkdir()
    for name, when in (
        ("checkpoints/epoch_10.pt", 1000),
        ("checkpoints/deep/epoch_9.pt", 999),
        ("checkpoints/a.pt", 998),
    ):
        (before / name).write_text(name)
        os.utime(before / name, (when, when))
    made = wrapper(before, "checkpoints/**").look(last=True)
    assert made is not None
    assert is_wrapped(made)
    assert bring_back(made, working) == working / "checkpoints" / "epoch_10.pt"
    times = {p.name: p.stat().st_mtime for p in working.rglob("*.pt")}
    assert times == {"epoch_10.pt": 1000, "epoch_9.pt": 999, "a.pt": 998}


def test_our_own_folders_never_match(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.pt").write_text("one")
    (tmp_path / "kgo").mkdir()
    (tmp_path / "kgo" / "leg.json").write_text("{}")
    wrap = wrapper(tmp_path, "**")
    assert wrap.look(last=True) is not None
    (tmp_path / "checkpoints" / "step-00000007.tmp").mkdir()
    (tmp_path / "checkpoints" / "step-00000007.tmp" / "x").write_text("")
    assert list(matching(tmp_path, ["**"])) == ["checkpoints/last.pt"]
    assert is_match(tmp_path / "checkpoints" / "last.pt", tmp_path, ["**"])
    assert not is_match(Path("/etc/passwd"), tmp_path, ["**"])


def test_a_wrapped_checkpoint_names_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "last.pt").write_text("one")
    made = wrapper(tmp_path).look(last=True)
    assert made is not None
    (made.folder / "mtimes.json").write_text(json.dumps({"../../evil": 1, "last.pt": 1}))
    working = tmp_path / "w"
    working.mkdir()
    bring_back(made, working)
    assert not (tmp_path.parent / "evil").exists()
    assert [p.name for p in working.iterdir()] == ["last.pt"]
