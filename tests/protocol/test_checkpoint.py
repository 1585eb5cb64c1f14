"""A checkpoint counts only while its manifest is whole and every file has the recorded content."""

import hashlib
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import CheckpointError, FileDigest, Manifest, checkpoint_step, open_checkpoint
from kaggle_orchestrator.protocol.checkpoint import checkpoint_name
from kaggle_orchestrator.protocol.files import digest_tree, write_atomic

FILES = {"state.pt": b"weights" * 1000, "rng/rank-0.pt": b"random"}


def write(root: Path, step: int) -> Path:
    folder = root / checkpoint_name(step)
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "manifest.json").write_text(Manifest("token", step, digest_tree(folder)).dumps())
    return folder


def test_a_whole_checkpoint_verifies(tmp_path: Path) -> None:
    folder = write(tmp_path, 12)
    checkpoint = open_checkpoint(folder)
    checkpoint.verify()
    assert (checkpoint.step, set(checkpoint.manifest.files)) == (12, set(FILES))
    assert checkpoint.sha256 == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", FILES)
def test_each_damage_of_each_file_is_found_and_named(tmp_path: Path, name: str) -> None:
    for damage in ("flip", "truncate", "append", "delete"):
        folder = write(tmp_path / damage, 12)
        data = bytearray(FILES[name])
        if damage == "delete":
            (folder / name).unlink()
        else:
            data[3] ^= damage == "flip"
            (folder / name).write_bytes({"flip": data, "truncate": data[:-1], "append": data + b"x"}[damage])
        with pytest.raises(CheckpointError, match=name):
            open_checkpoint(folder).verify()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"token": "t", "step": "5", "files": {}}', "[" * 100_000])
def test_a_damaged_manifest_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path, 12)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/state.pt", "a/../../b", "..", "a\\..\\b"])
def test_a_manifest_cannot_name_a_file_outside(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, 12)
    (folder / "manifest.json").write_text(Manifest("t", 12, {name: FileDigest("0" * 64, 1)}).dumps())
    with pytest.raises(CheckpointError, match="outside"):
        open_checkpoint(folder)


def test_an_empty_manifest_is_not_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(Manifest("t", 1, {}).dumps())
    with pytest.raises(CheckpointError, match="no file"):
        open_checkpoint(tmp_path)


def test_a_name_tells_its_step_as_a_number_not_as_a_text() -> None:
    assert [checkpoint_step(checkpoint_name(step)) for step in (0, 9, 10, 100_000_000)] == [0, 9, 10, 100_000_000]
    for name in ("step-x", "step-9", "step-00000009.tmp", "tmp-step-00000009", ""):
        assert checkpoint_step(name) is None


def test_an_atomic_write_leaves_old_or_new_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_atomic(path, b"old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(OSError):
        write_atomic(path, b"newer")
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]
