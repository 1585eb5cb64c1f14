"""What an attempt leaves: only verified checkpoints count, as many stay as are kept, every file has its digest."""

import errno
import io
import os
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import LEG_RESULT, Header, LegResult, Outcome, Plan, digest_tree, result_from_log
from kaggle_orchestrator.runtime.supervisor.log import Log
from kaggle_orchestrator.runtime.supervisor.memory import oom_kills
from kaggle_orchestrator.runtime.supervisor.outputs import Outputs
from kaggle_orchestrator.runtime.supervisor.report import Report
from tests.runtime.supervisor.conftest import write_checkpoint

TOKEN = "t" * 16
NEVER = float("inf")


def settled(working: Path, keep: int = 2, until: float = NEVER, now: float = 0.0) -> Outputs:
    outputs = Outputs(working)
    outputs.settle(working / "checkpoints", TOKEN, keep, until, lambda: now)
    return outputs


def steps(working: Path) -> list[int]:
    return sorted(int(p.name[5:]) for p in (working / "checkpoints").glob("step-*"))


def test_the_newest_whole_ones_stay(tmp_path: Path) -> None:
    made = [write_checkpoint(tmp_path, step, TOKEN) for step in (9, 10, 11, 100)]
    (made[3].folder / "state.json").write_text("damaged")
    outputs = settled(tmp_path)
    assert outputs.newest == made[2]
    assert steps(tmp_path) == [10, 11]
    assert "step-00000100" in outputs.notes[0]


def test_with_nothing_whole_nothing_is_removed(tmp_path: Path) -> None:
    made = write_checkpoint(tmp_path, 9, TOKEN)
    (made.folder / "state.json").write_text("damaged")
    assert settled(tmp_path).newest is None
    assert steps(tmp_path) == [9]


def test_another_attempt_s_checkpoint_is_no_gain(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 9, "other" * 3)
    assert settled(tmp_path).newest is None
    assert steps(tmp_path) == [9]


def test_leftovers_of_killed_saves_go(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 9, TOKEN)
    for name in (
        "checkpoints/step-00000010.tmp/x",
        "checkpoints/tmp-step-00000011/x",
        "best.new/x",
        "kgo/y.json.7.tmp",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("half")
    (tmp_path / "best.old").mkdir()
    (tmp_path / "best.old" / "model.pt").write_text("weights")
    outputs = settled(tmp_path)
    outputs.digest(NEVER)
    assert set(outputs.digests) == {
        "best/model.pt",  # killed between the two renames of a swap: the old one is the best
        "checkpoints/step-00000009/manifest.json",
        "checkpoints/step-00000009/state.json",
    }
    assert outputs.digests == digest_tree(tmp_path)


def test_when_time_runs_out_the_newest_is_verified_and_the_rest_is_said(tmp_path: Path) -> None:
    made = [write_checkpoint(tmp_path, step, TOKEN) for step in (9, 10, 11)]
    (tmp_path / "zzz.bin").write_text("x")
    outputs = settled(tmp_path, until=5.0, now=6.0)
    outputs.digest(5.0, lambda: 6.0)
    assert outputs.newest == made[2]
    assert steps(tmp_path) == [9, 10, 11]
    assert "no time left" in outputs.notes[-1]
    assert "zzz.bin" not in outputs.digests


def test_links_and_the_result_itself_have_no_digest(tmp_path: Path) -> None:
    (tmp_path / "kgo").mkdir()
    for name in (LEG_RESULT, "kgo/metrics.jsonl", "a.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a.txt")
    os.mkfifo(tmp_path / "pipe")
    outputs = Outputs(tmp_path)
    outputs.digest(NEVER)
    assert list(outputs.digests) == ["a.txt", "kgo/metrics.jsonl"]


PLAN = Plan(Header("c", 1, 1, TOKEN, None, "", "", ""), "train.py", (), "python", 60, 50, 2, None, None, 0)


def full_for(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """The next writes of a result find no room."""
    left = [writes]

    def write(path: Path, data: bytes) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    monkeypatch.setattr("kaggle_orchestrator.runtime.supervisor.report.write_atomic", write)


@pytest.mark.parametrize(("writes", "kept", "on_disk"), [(1, [10, 11], True), (2, [11], True), (99, [11], False)])
def test_a_full_disk_costs_older_checkpoints_or_the_file_but_never_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int, kept: list[int], on_disk: bool
) -> None:
    for step in (10, 11):
        write_checkpoint(tmp_path, step, TOKEN)
    outputs, out = settled(tmp_path), io.BytesIO()
    outputs.digest(NEVER)
    report = Report(PLAN, tmp_path, 1.0, Log(out, out))
    full_for(monkeypatch, writes)
    report.final(
        Outcome.CONTINUE,
        "deadline",
        "",
        checkpoint=outputs.newest,
        outputs=lambda: outputs.digests,
        make_room=outputs.make_room,
    )
    assert steps(tmp_path) == kept
    line = result_from_log(out.getvalue().decode().splitlines()[-1:], TOKEN)
    assert line is not None
    assert (line.outcome, line.step_end) == (Outcome.CONTINUE, 11)
    assert (tmp_path / LEG_RESULT).exists() is on_disk
    if on_disk:
        result = LegResult.loads((tmp_path / LEG_RESULT).read_bytes())
        found = digest_tree(tmp_path)
        del found[LEG_RESULT]
        assert result.outputs == found


def test_the_kernel_s_count_of_killed_processes(tmp_path: Path) -> None:
    proc, group = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    assert oom_kills(proc, group) is None
    (group / "a").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/a\n")
    (group / "memory.events").write_text("oom 0\noom_kill 7\n")
    assert oom_kills(proc, group) == 7  # a container whose group is the root it sees
    (group / "a" / "memory.events").write_text("low 0\noom_kill 3\n")
    assert oom_kills(proc, group) == 3
    (proc / "self" / "cgroup").write_text("4:memory:/b\n0::/\n")
    (group / "memory" / "b").mkdir(parents=True)
    (group / "memory" / "b" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert oom_kills(proc, group) == 2
