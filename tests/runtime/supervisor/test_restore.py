"""Which checkpoint is gone on from: the expected one in any layout, else an older one of the same output, else none."""

import shutil
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import LEG_RESULT, LegRecord, LegResult, Outcome, Parent
from kaggle_orchestrator.protocol.result import ResultState
from kaggle_orchestrator.runtime.supervisor.restore import restore
from kaggle_orchestrator.runtime.supervisor.verdict import Unfit
from tests.runtime.supervisor.conftest import write_checkpoint

OLD, PARENT, OTHER = "0" * 16, "1" * 16, "2" * 16
LINEAGE = (
    LegRecord(1, 1, OLD, Outcome.CONTINUE, 0, 10, 1.0, 2.0),
    LegRecord(2, 2, PARENT, Outcome.CONTINUE, 10, 30, 3.0, 4.0),
)


def output(folder: Path, token: str = PARENT) -> Path:
    (folder / "kgo").mkdir(parents=True)
    result = LegResult("c", 2, 2, token, ResultState.FINAL, 10, 30, 1.0)
    (folder / LEG_RESULT).write_text(result.dumps())
    return folder


def parent(sha256: str, step: int = 30) -> Parent:
    return Parent("me/x-b", 4, PARENT, step, sha256)


@pytest.mark.parametrize("place", ["x-b", "notebooks/me/x-b", "some/new/layout/x-b", "under-another-name"])
def test_found_wherever_it_is_mounted(tmp_path: Path, place: str) -> None:
    expected = write_checkpoint(output(tmp_path / place), 30, PARENT)
    write_checkpoint(tmp_path / place, 20, PARENT)
    found = restore(parent(expected.sha256), LINEAGE, tmp_path)
    assert (found.checkpoint, found.note) == (expected, "")


def test_a_mount_that_is_a_link_is_followed(tmp_path: Path) -> None:
    expected = write_checkpoint(output(tmp_path / "elsewhere"), 30, PARENT)
    root = tmp_path / "input"
    (root / "notebooks" / "me").mkdir(parents=True)
    (root / "x-b").symlink_to(tmp_path / "elsewhere")
    (root / "notebooks" / "me" / "x-b").symlink_to(tmp_path / "elsewhere")
    (root / "loop").symlink_to(root)
    assert restore(parent(expected.sha256), LINEAGE, root).checkpoint.sha256 == expected.sha256


def test_the_expected_one_counts_though_a_newer_lies_beside_it(tmp_path: Path) -> None:
    place = output(tmp_path / "x-b")
    expected = write_checkpoint(place, 30, PARENT)
    write_checkpoint(place, 40, PARENT)
    assert restore(parent(expected.sha256), LINEAGE, tmp_path).checkpoint == expected


def test_of_two_copies_the_whole_one_counts(tmp_path: Path) -> None:
    first = write_checkpoint(output(tmp_path / "a" / "x-b"), 30, PARENT)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (first.folder / "state.json").write_text("x")
    found = restore(parent(first.sha256), LINEAGE, tmp_path)
    assert found.checkpoint.folder == tmp_path / "b" / "x-b" / "checkpoints" / "step-00000030"
    assert found.note == ""


@pytest.mark.parametrize("harm", ["flip", "truncate", "missing file", "manifest", "no manifest", "folder"])
def test_walks_back_from_a_damaged_one(tmp_path: Path, harm: str) -> None:
    place = output(tmp_path / "x-b")
    older = [write_checkpoint(place, step, token) for step, token in ((10, OLD), (20, PARENT))]
    expected = write_checkpoint(place, 30, PARENT)
    file = expected.folder / "state.json"
    match harm:
        case "flip":
            file.write_bytes(file.read_bytes().replace(b"state", b"stale"))
        case "truncate":
            file.write_bytes(file.read_bytes()[:-1])
        case "missing file":
            file.unlink()
        case "manifest":
            (expected.folder / "manifest.json").write_text('{"token": ')
        case "no manifest":
            (expected.folder / "manifest.json").unlink()
        case "folder":
            shutil.rmtree(expected.folder)
    found = restore(parent(expected.sha256), LINEAGE, tmp_path)
    assert found.checkpoint == older[1]
    assert "step 30" in found.note
    assert "step 20" in found.note


def test_walks_back_twice(tmp_path: Path) -> None:
    place = output(tmp_path / "x-b")
    made = [write_checkpoint(place, step, token) for step, token in ((10, OLD), (20, PARENT), (30, PARENT))]
    for checkpoint in made[1:]:
        (checkpoint.folder / "state.json").write_text("damaged")
    assert restore(parent(made[2].sha256), LINEAGE, tmp_path).checkpoint == made[0]


def test_never_walks_back_into_another_output_or_chain(tmp_path: Path) -> None:
    place = output(tmp_path / "x-b")
    expected = write_checkpoint(place, 30, PARENT)
    (expected.folder / "state.json").write_text("damaged")
    write_checkpoint(place, 20, OTHER)  # a chain before this one, in the same folder
    write_checkpoint(output(tmp_path / "x", OLD), 10, OLD)  # an earlier leg's output
    with pytest.raises(Unfit) as refused:
        restore(parent(expected.sha256), LINEAGE, tmp_path)
    assert refused.value.outcome is Outcome.WRONG_SOURCE
    assert "No whole checkpoint" in refused.value.message


def test_an_older_version_of_the_right_kernel_is_not_walked_back_to(tmp_path: Path) -> None:
    write_checkpoint(output(tmp_path / "x-b", OLD), 10, OLD)
    with pytest.raises(Unfit) as refused:
        restore(parent("f" * 64), LINEAGE, tmp_path)
    assert refused.value.outcome is Outcome.WRONG_SOURCE
    assert OLD in refused.value.message


@pytest.mark.parametrize(
    ("there", "outcome", "words"),
    [
        ((), Outcome.MOUNT_MISSING, "nothing is mounted"),
        (("digits/",), Outcome.MOUNT_MISSING, "digits"),
        (("x-b/",), Outcome.MOUNT_MISSING, "is empty"),
        (("notebooks/me/x-b/",), Outcome.MOUNT_MISSING, "is empty"),
        (("x-b/__script__.py",), Outcome.WRONG_SOURCE, "holds no checkpoint at all"),
    ],
)
def test_what_is_said_when_there_is_nothing(
    tmp_path: Path, there: tuple[str, ...], outcome: Outcome, words: str
) -> None:
    for path in there:
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            place.mkdir()
        else:
            place.write_text("x")
    with pytest.raises(Unfit) as refused:
        restore(parent("f" * 64), LINEAGE, tmp_path)
    assert refused.value.outcome is outcome
    assert words in refused.value.message
    assert "step 30 of me/x-b version 4" in refused.value.message


def test_without_an_input_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="doesn't exist") as refused:
        restore(parent("f" * 64), LINEAGE, tmp_path / "input")
    assert refused.value.outcome is Outcome.MOUNT_MISSING
