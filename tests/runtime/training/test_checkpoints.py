"""The folder of checkpoints: whole or not there, whatever fails while one is written."""

import errno
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kaggle_orchestrator.protocol import KgoError, open_checkpoint
from kaggle_orchestrator.runtime.training.checkpoints import (
    Checkpoints,
    Snapshot,
    check_loadable,
    load_document,
)
from kaggle_orchestrator.runtime.training.digest import state_digest
from kaggle_orchestrator.runtime.training.disk import DiskFull
from tests.runtime.training.legs import Zygote

FILES = ["manifest.json", "model.pt", "optimizer.pt", "run.json"]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def snapshot(step: int, **states: Any) -> Snapshot:
    found = states or {"model": {"w": torch.arange(100.0) + step}, "optimizer": {"lr": 0.1, "m": torch.ones(3)}}
    return Snapshot(step=step, epoch=None, states=found, document={"step": step})


@pytest.fixture
def store(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", keep=2)


def test_what_is_written_can_be_read(store: Checkpoints) -> None:
    store.claim(shared=False)
    written = store.write(snapshot(7))
    found = store.newest()
    assert found == written == open_checkpoint(store.folder / "step-00000007")
    assert names(found.folder) == FILES
    assert check_loadable(found) == 2
    assert load_document(found) == {"step": 7}
    assert found.manifest.digests["model"] == state_digest({"w": torch.arange(100.0) + 7}, "model")


def test_the_newest_ones_are_kept(store: Checkpoints) -> None:
    store.claim(shared=False)
    for step in (9, 10, 100, 99):
        store.write(snapshot(step))
    assert store.steps() == [100, 99]
    assert names(store.folder) == ["step-00000099", "step-00000100"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", [flip, truncate, Path.unlink])
def test_any_damage_to_any_file_is_found(store: Checkpoints, file: str, harm: Callable[[Path], None]) -> None:
    """And the one before is taken; saving that step again works."""
    store.claim(shared=False)
    store.write(snapshot(1))
    store.write(snapshot(2))
    harm(store.folder / "step-00000002" / file)
    found = store.newest()
    assert found is not None
    assert found.step == 1
    assert (store.folder / "damaged-step-00000002").is_dir()
    store.write(snapshot(2))
    found = store.newest()
    assert found is not None
    assert found.step == 2


def test_leftovers_of_killed_saves_are_cleared(store: Checkpoints) -> None:
    store.claim(shared=False)
    store.write(snapshot(1))
    shutil.copytree(store.folder / "step-00000001", store.folder / "tmp-step-00000002")
    shutil.copytree(store.folder / "step-00000001", store.folder / "tmp-old-step-00000000")
    again = Checkpoints(store.folder, keep=2)
    again.claim(shared=False)
    assert names(store.folder) == ["step-00000001"]


def claim(path: str) -> None:
    """In another process: become the writer."""
    try:
        Checkpoints(Path(path), keep=2).claim(shared=True)
    except KgoError as error:
        print(error.message)


def test_only_one_process_writes(store: Checkpoints, zygote: Zygote, tmp_path: Path) -> None:
    def other() -> str:
        return zygote.run("tests.runtime.training.test_checkpoints:claim", tmp_path, path=str(store.folder)).log

    store.claim(shared=True)
    assert "another training is writing to" in other()
    store.release()
    assert other() == ""


@pytest.mark.parametrize("state", [{"f": open}, {"rate": 1j, "s": {1: {2: object()}}}, [Path()]])
def test_a_state_that_no_leg_could_load_is_refused_by_name(store: Checkpoints, state: Any) -> None:
    store.claim(shared=False)
    with pytest.raises(KgoError, match=r"ema: .* which torch won't load again"):
        store.write(snapshot(1, ema=state))
    assert names(store.folder) == []


def test_a_state_that_comes_back_different_is_refused(store: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    store.claim(shared=False)
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: {**load(*a, **k), "w": torch.zeros(100)})
    with pytest.raises(KgoError, match="the loaded state isn't the saved one"):
        store.write(snapshot(1))
    assert names(store.folder) == []


class TestFullDisk:
    """On a small disk of its own."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        mounted = tmp_path / "disk"
        mounted.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=40m", "none", str(mounted)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a tmpfs isn't allowed here")
        yield mounted
        subprocess.run(["umount", str(mounted)], check=True)

    def test_room_for_two_is_asked_for_before_the_first(self, disk: Path) -> None:
        store = Checkpoints(disk / "checkpoints", keep=2)
        store.claim(shared=False)
        with pytest.raises(DiskFull, match=r"disk full: 4\d\.\d MB are needed in .*, 41\.\d MB are free"):
            store.write(snapshot(1, model={"w": torch.zeros(14 << 20, dtype=torch.uint8)}))
        assert names(store.folder) == []

    def test_older_ones_give_way_but_never_the_newest(self, disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
        store = Checkpoints(disk / "checkpoints", keep=4)
        store.claim(shared=False)
        for step in range(1, 6):
            store.write(snapshot(step, model={"w": torch.zeros(7 << 20, dtype=torch.uint8)}))
        assert store.steps() == [5, 4, 3]
        assert "kgo: the disk has no room for 4 checkpoints: deleting the one of step 1" in capsys.readouterr().out
        (disk / "other").write_bytes(bytes(shutil.disk_usage(disk).free))
        with pytest.raises(DiskFull) as caught:
            store.write(snapshot(6, model={"w": torch.zeros(20 << 20, dtype=torch.uint8)}))
        assert caught.value.hint is not None
        assert "The checkpoint of step 5 is untouched." in caught.value.hint
        assert store.steps() == [5]
        found = store.newest()
        assert found is not None
        check_loadable(found)

    def test_it_fills_up_in_the_midst_of_a_save(self, disk: Path) -> None:
        """The room was there when it was asked for."""
        store = Checkpoints(disk / "checkpoints", keep=2)
        store.claim(shared=False)
        store.write(snapshot(1))
        notes = "x" * (60 << 20)  # no tensor, so the estimate doesn't count it
        with pytest.raises(DiskFull, match="disk full") as caught:
            store.write(snapshot(2, total={"notes": notes}))
        assert caught.value.hint is not None
        assert "The checkpoint of step 1 is untouched." in caught.value.hint
        assert names(store.folder) == ["step-00000001"]
        found = store.newest()
        assert found is not None
        check_loadable(found)


def limited_save(path: str) -> None:
    """In a process whose files may not grow beyond 4 MB, save 8 MB over a good checkpoint (no mount needed)."""
    store = Checkpoints(Path(path), keep=2)
    store.claim(shared=False)
    store.write(snapshot(1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
    try:
        store.write(snapshot(2, model={"w": torch.zeros(8 << 20, dtype=torch.uint8)}))
    except DiskFull as error:
        print(error.message, error.hint, store.steps())


def test_a_write_that_fails_leaves_the_good_one(zygote: Zygote, tmp_path: Path) -> None:
    ended = zygote.run("tests.runtime.training.test_checkpoints:limited_save", tmp_path, path=str(tmp_path / "c"))
    assert ended.code == 0, ended.log
    assert "The checkpoint of step 1 is untouched." in ended.log
    assert "[1]" in ended.log
    assert names(tmp_path / "c") == ["step-00000001"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(KgoError, match=r"checkpoints: .*exists"):
        Checkpoints(tmp_path / "checkpoints", keep=2).claim(shared=False)


def test_another_failure_isn_t_called_a_full_disk(store: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    store.claim(shared=False)

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(KgoError, match="Input/output error") as caught:
        store.write(snapshot(1))
    assert not isinstance(caught.value, DiskFull)
    assert names(store.folder) == []
