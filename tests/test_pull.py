"""A pull gives verified files or names what is wrong; on a real local Kaggle."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from slugify import slugify

from kaggle_orchestrator.client import Kaggle, connect
from kaggle_orchestrator.errors import Damaged, NotAccessible, UnsafeName
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.models import KernelRef
from kaggle_orchestrator.protocol import LEG_RESULT, FileDigest, LegResult, Outcome
from kaggle_orchestrator.protocol.result import ResultState
from kaggle_orchestrator.pull import Pulled, pull
from tests.client.faulty import FaultyServer, answer, served
from tests.client.local import ran, user

TOKEN = "0123456789abcdef"
FILES = {
    "best/model.pt": b"best weights",
    "best/deep/more.json": b"{}",
    "final/export.onnx": b"exported",
    "final.pt": b"final weights",
    "kgo/metrics.jsonl": b'{"step": 1}\n',
    "checkpoints/step-00000010/state.pt": b"large",
    "notes.txt": b"notes",
}
DEFAULT = ["best/deep/more.json", "best/model.pt", "final.pt", "final/export.onnx", "kgo/leg.json", "kgo/metrics.jsonl"]


@pytest.fixture
def kaggle(local: LocalServer, tmp_path: Path) -> Iterator[Kaggle]:
    with user(local, "pia", tmp_path) as kaggle:
        yield kaggle


@pytest.fixture
def ref(request: pytest.FixtureRequest) -> KernelRef:
    """A kernel of the test's own."""
    return KernelRef("pia", slugify(request.node.name.removeprefix("test_"), max_length=45))


def record(files: Mapping[str, bytes]) -> LegResult:
    """The result of a session that wrote these files."""
    return LegResult(
        chain="c",
        leg=1,
        attempt=1,
        token=TOKEN,
        state=ResultState.FINAL,
        step_start=0,
        step_end=10,
        started_at=1.0,
        outcome=Outcome.DONE,
        outputs={n: FileDigest(hashlib.sha256(d).hexdigest(), len(d)) for n, d in files.items()},
    )


def with_record(files: Mapping[str, bytes], result: LegResult) -> dict[str, bytes]:
    return {**files, LEG_RESULT: result.dumps().encode()}


def names(pulled: Pulled) -> list[str]:
    return sorted(a.name for a in pulled.artifacts)


def left(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_best_final_results_and_metrics_by_default(kaggle: Kaggle, ref: KernelRef, tmp_path: Path) -> None:
    result = record(FILES)
    version = ran(kaggle, ref, with_record(FILES, result))
    out = tmp_path / "out"
    pulled = pull(kaggle, ref, version, out, (), TOKEN)
    assert names(pulled) == DEFAULT == left(out)
    assert pulled.result == result
    assert pulled.unverified == ()
    for artifact in pulled.artifacts:
        data = (out / artifact.name).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (artifact.sha256, artifact.size)
        assert data == {**FILES, LEG_RESULT: result.dumps().encode()}[artifact.name]

    # Again: nothing is fetched, but for what was spoilt in the meantime.
    (out / "final.pt").write_bytes(b"final weights?")
    for name in DEFAULT:
        os.utime(out / name, (1, 1))
    (out / "kgo/metrics.jsonl").unlink()
    assert pull(kaggle, ref, version, out, (), TOKEN) == pulled
    assert {n for n in DEFAULT if (out / n).stat().st_mtime != 1} == {"final.pt", "kgo/metrics.jsonl"}
    assert (out / "final.pt").read_bytes() == b"final weights"

    # Other globs.
    for patterns, expected in (
        (["checkpoints/**"], ["checkpoints/step-00000010/state.pt"]),
        (["**/*.pt"], ["best/model.pt", "checkpoints/step-00000010/state.pt", "final.pt"]),
        (["*.txt", "best/*"], ["best/deep/more.json", "best/model.pt", "notes.txt"]),
        (["nothing*"], []),
    ):
        assert names(pull(kaggle, ref, version, tmp_path / "other", patterns, TOKEN)) == expected


def test_damaged_and_missing_files_are_named_together_after_the_good_ones_are_in_place(
    kaggle: Kaggle, ref: KernelRef, tmp_path: Path
) -> None:
    promised = {**FILES, "final.pt": b"Final weights", "best/gone.pt": b"gone", "best/also.pt": b"gone"}
    version = ran(kaggle, ref, with_record(FILES, record(promised)))
    with pytest.raises(Damaged, match=r"best/gone\.pt.*final\.pt") as damaged:
        pull(kaggle, ref, version, tmp_path / "out", (), TOKEN)
    assert damaged.value.files == ("best/also.pt", "best/gone.pt", "final.pt")
    assert left(tmp_path / "out") == [n for n in DEFAULT if n != "final.pt"]
    with pytest.raises(Damaged) as missing:
        pull(kaggle, ref, version, tmp_path / "out", ["best/*"], TOKEN)
    assert missing.value.files == ("best/also.pt", "best/gone.pt")
    with pytest.raises(Damaged) as spoilt:
        pull(kaggle, ref, version, tmp_path / "out", ["final.pt"], TOKEN)
    assert spoilt.value.files == ("final.pt",)
    assert names(pull(kaggle, ref, version, tmp_path / "out", ["notes.txt"], TOKEN)) == ["notes.txt"]


def test_another_attempts_result_is_left_alone(kaggle: Kaggle, ref: KernelRef, tmp_path: Path) -> None:
    version = ran(kaggle, ref, with_record(FILES, record(FILES)))
    with pytest.raises(Damaged, match="another attempt") as other:
        pull(kaggle, ref, version, tmp_path / "out", (), "fedcba9876543210")
    assert other.value.files == (LEG_RESULT,)
    assert not (tmp_path / "out").exists()
    assert names(pull(kaggle, ref, version, tmp_path / "out")) == DEFAULT


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token": "x"}', b"\xff"])
def test_a_broken_result(kaggle: Kaggle, ref: KernelRef, tmp_path: Path, content: bytes) -> None:
    version = ran(kaggle, ref, {**FILES, LEG_RESULT: content})
    with pytest.raises(Damaged, match="can't be read") as broken:
        pull(kaggle, ref, version, tmp_path / "out")
    assert broken.value.files == (LEG_RESULT,)
    assert not (tmp_path / "out").exists()


def test_a_result_that_was_damaged_on_its_way_is_read_once_more(tmp_path: Path) -> None:
    good, ref = record({}).dumps().encode(), KernelRef("me", "some-kernel")
    with FaultyServer() as server, connect(server.url, environ={"HOME": str(tmp_path)}) as kaggle:
        listed = [{"fileName": LEG_RESULT, "url": server.on("/result", served(good[:-9]), served(good))}]
        server.rpc("ListKernelSessionOutput", answer({"files": listed}))
        assert pull(kaggle, ref, 1, tmp_path / "out", (), TOKEN).result == record({})
        assert (tmp_path / "out" / LEG_RESULT).read_bytes() == good


def test_a_plain_scripts_whole_output_comes_and_is_said_to_be_unverified(
    kaggle: Kaggle, ref: KernelRef, tmp_path: Path
) -> None:
    version = ran(kaggle, ref, FILES)
    pulled = pull(kaggle, ref, version, tmp_path / "out")
    assert names(pulled) == sorted(FILES) == left(tmp_path / "out")
    assert sorted(pulled.unverified) == sorted(FILES)
    assert pulled.result is None
    with pytest.raises(Damaged, match="no result") as missing:
        pull(kaggle, ref, version, tmp_path / "other", (), TOKEN)
    assert missing.value.files == (LEG_RESULT,)


def test_a_script_that_writes_what_it_likes_gives_all_but_checkpoints(
    kaggle: Kaggle, ref: KernelRef, tmp_path: Path
) -> None:
    files = {n: FILES[n] for n in ("notes.txt", "kgo/metrics.jsonl", "checkpoints/step-00000010/state.pt")}
    version = ran(kaggle, ref, with_record(files, record(files)))
    assert names(pull(kaggle, ref, version, tmp_path, (), TOKEN)) == ["kgo/leg.json", "kgo/metrics.jsonl", "notes.txt"]


def test_an_unfinished_result_vouches_for_nothing(kaggle: Kaggle, ref: KernelRef, tmp_path: Path) -> None:
    stale = replace(record({**FILES, "best/later.pt": b"x", "final.pt": b"older"}), state=ResultState.RUNNING)
    version = ran(kaggle, ref, with_record(FILES, stale))
    pulled = pull(kaggle, ref, version, tmp_path / "out", (), TOKEN)
    assert names(pulled) == DEFAULT
    assert sorted(pulled.unverified) == [n for n in DEFAULT if n != LEG_RESULT]


def test_a_file_that_the_result_does_not_know_is_unverified(kaggle: Kaggle, ref: KernelRef, tmp_path: Path) -> None:
    known = {n: d for n, d in FILES.items() if n != "final.pt"}
    version = ran(kaggle, ref, with_record(FILES, record(known)))
    assert pull(kaggle, ref, version, tmp_path / "out", (), TOKEN).unverified == ("final.pt",)


def test_the_version_asked_for(kaggle: Kaggle, ref: KernelRef, tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        ran(kaggle, ref, {"a.txt": content})
    for version, content in ((1, b"one"), (2, b"two")):
        pull(kaggle, ref, version, tmp_path / "out")
        assert (tmp_path / "out/a.txt").read_bytes() == content
    with pytest.raises(NotAccessible):
        pull(kaggle, ref, 3, tmp_path / "out")


def test_nothing_is_written_when_a_name_is_unsafe(kaggle: Kaggle, ref: KernelRef, tmp_path: Path) -> None:
    version = ran(kaggle, ref, {"best/ok.txt": b"x", "best/..\\up.txt": b"x"})
    with pytest.raises(UnsafeName):
        pull(kaggle, ref, version, tmp_path / "out")
    assert not (tmp_path / "out").exists()
