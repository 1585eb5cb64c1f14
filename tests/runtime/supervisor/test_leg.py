"""Whole sessions: real processes, a toy training, results that must equal what lies on disk."""

import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import LEG_RESULT, LegResult, Outcome, attempt_token, digest_tree, open_checkpoint
from kaggle_orchestrator.protocol.result import ResultState
from kaggle_orchestrator.runtime.supervisor import main
from tests.runtime.supervisor.conftest import CHAIN, Ended, Session, write_checkpoint


def check_result(ended: Ended) -> LegResult:
    """The result is final, the log's last line says the same, and its outputs are exactly the files on disk."""
    result, line = ended.result, ended.log_result
    assert result.state is ResultState.FINAL
    assert (line.outcome, line.reason, line.step_end, line.checkpoint) == (
        result.outcome,
        result.reason,
        result.step_end,
        result.checkpoint,
    )
    on_disk = digest_tree(ended.working)
    on_disk.pop(LEG_RESULT)
    assert result.outputs == on_disk
    if result.checkpoint is not None:
        checkpoint = open_checkpoint(ended.working / result.checkpoint.path)
        checkpoint.verify()
        assert (checkpoint.sha256, checkpoint.step) == (result.checkpoint.sha256, result.step_end)
        assert checkpoint.manifest.token == result.checkpoint.token == result.token == ended.token
    assert result.ended_at is not None
    assert sum(result.buckets.values()) == pytest.approx(result.ended_at - result.started_at, abs=1.5)
    assert not [f for f in ended.files if f.endswith(".tmp") or f.startswith(".") or "/." in f]
    return result


def test_a_training_that_reaches_its_target_is_done(session: Session) -> None:
    ended = session.params(steps=30, every=10).run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.step_end, result.target_step) == (0, Outcome.DONE, 30, 30)
    assert ended.files == {
        "final/model.txt",
        LEG_RESULT,
        *(f"checkpoints/step-000000{s}/{n}" for s in (20, 30) for n in ("manifest.json", "state.json")),
    }
    assert (result.step_start, result.resumed_from, result.epoch) == (0, None, 3)
    assert result.environment["threads"] == 1
    assert result.environment["accelerator"] == "none"
    assert (result.chain, result.leg, result.attempt) == (CHAIN, 1, 1)
    ours = [line for line in ended.out.splitlines()[:-1] if line.startswith("kgo:")]
    assert "leg 1, attempt 1" in ours[0]
    assert "deadline in" in ours[1]
    assert not list(session.bundle.glob("control/*"))


def test_what_comes_before_training_is_not_counted_as_training(session: Session) -> None:
    buckets = check_result(session.params(steps=3, imports_s=0.5).run()).buckets
    assert buckets["start"] > 0.5 > buckets["train"] > 0


def test_at_the_deadline_it_saves_and_leaves(session: Session) -> None:
    session.set(session_limit_s=10.0, leave_after_s=1.5).params(steps=10_000, every=1000, step_s=0.02)
    ended = session.run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.reason) == (0, Outcome.CONTINUE, "deadline")
    assert 0 < result.step_end < 1000
    assert f"leaving at step {result.step_end}" in ended.out
    assert "asked to save and leave" in ended.out
    assert result.ended_at is not None
    assert result.ended_at - result.started_at < 4


def test_what_ignores_the_request_is_told_and_then_killed_with_all_it_started(session: Session) -> None:
    session.set(session_limit_s=4.5, leave_after_s=1.5)
    session.params(steps=100_000, every=10, step_s=0.02, ignore_stop=True, ignore_term=True, grandchild=True)
    ended = session.run()
    result = check_result(ended)
    assert "grandchild is up" in ended.out
    order = [ended.out.index(text) for text in ("asked to save and leave", "SIGTERM", "SIGKILL")]
    assert order == sorted(order)
    assert (ended.code, result.outcome) == (0, Outcome.CONTINUE)
    assert result.step_end % 10 == 0
    assert result.ended_at is not None
    assert result.ended_at - result.started_at < 4.5
    assert not session.processes()


def test_no_signal_while_a_checkpoint_is_open(session: Session) -> None:
    session.set(session_limit_s=5.5, leave_after_s=1.2)  # SIGTERM would be due in mid-save, and end the toy at once
    session.params(steps=100_000, every=10, step_s=0.02, leave_save_s=2.7)
    ended = session.run()
    result = check_result(ended)
    assert "SIG" not in ended.out
    assert (ended.code, result.outcome) == (0, Outcome.CONTINUE)
    assert f"leaving at step {result.step_end}" in ended.out


def test_a_crash_names_its_last_words_and_keeps_the_gain(session: Session) -> None:
    ended = session.params(fail_at=25, every=10).run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.reason, result.step_end) == (0, Outcome.USER_ERROR, "exit 1", 20)
    assert "ValueError: bad batch at step 25" in result.message
    assert "ValueError: bad batch at step 25" in ended.err


def test_a_crash_without_a_gain_is_a_failed_session(session: Session) -> None:
    ended = session.params(fail_at=5, every=10).run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.step_end, result.checkpoint) == (1, Outcome.USER_ERROR, 0, None)


@pytest.mark.parametrize("layout", ["x-b", "me/x-b"])
def test_goes_on_from_the_mounted_parent(session: Session, layout: str) -> None:
    found = session.after(10, 20, expect=20, layout=layout)
    ended = session.params(steps=40, every=10).run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.step_start, result.step_end) == (0, Outcome.DONE, 20, 40)
    assert result.resumed_from is not None
    assert (result.resumed_from.path, result.resumed_from.sha256) == ("checkpoints/step-00000020", found[1].sha256)
    assert result.resumed_from.token == attempt_token(CHAIN, 1, 1)
    assert result.lineage == session.plan.lineage
    assert f"going on from step 20: {found[1].folder}" in ended.out


def test_a_damaged_parent_is_walked_back_from(session: Session) -> None:
    found = session.after(10, 20, expect=20)
    (found[1].folder / "state.json").write_text("Xtate 20")
    ended = session.params(steps=30).run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.step_start, result.step_end) == (0, Outcome.DONE, 10, 30)
    assert result.resumed_from is not None
    assert result.resumed_from.sha256 == found[0].sha256
    assert "step 20 is damaged" in ended.out
    assert "step 20 is damaged" in result.message


def test_without_its_source_a_later_leg_trains_nothing(session: Session) -> None:
    session.after(10, expect=10)
    (session.input / "notebooks" / "me" / "x-b").rename(session.folder / "elsewhere")
    (session.input / "digits").mkdir()
    ended = session.params(steps=40).run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.step_start, result.step_end) == (1, Outcome.MOUNT_MISSING, 0, 0)
    assert "digits" in result.message
    assert ended.files == {LEG_RESULT}


def test_another_checkpoint_than_the_expected_one_is_refused(session: Session) -> None:
    session.after(10, expect=10)
    output = session.input / "notebooks" / "me" / "x-b"
    output.rename(session.folder / "elsewhere")
    write_checkpoint(session.mount("me/x-b"), 10, "f" * 16, text="another")
    ended = session.params(steps=40).run()
    result = check_result(ended)
    assert (ended.code, result.outcome) == (1, Outcome.WRONG_SOURCE)
    assert "ffffffffffffffff" in result.message
    assert ended.files == {LEG_RESULT}


def test_a_source_that_is_not_mounted_is_named(session: Session) -> None:
    (session.input / "digits-old").mkdir()
    ended = session.set(sources=("digits",)).run()
    result = check_result(ended)
    assert (ended.code, result.outcome) == (1, Outcome.MOUNT_MISSING)
    assert "not mounted: digits." in result.message
    assert "digits-old" in result.message


def test_silence_is_hung_and_the_log_says_where(session: Session) -> None:
    session.set(hung_s=1.0).params(every=5, hang_at=10)
    ended = session.run()
    result = check_result(ended)
    assert (ended.code, result.outcome, result.step_end) == (0, Outcome.HUNG, 10)
    assert "train.py" in ended.err  # the stack, by faulthandler
    assert "main" in ended.err


def test_told_to_end_it_ends_in_order(session: Session) -> None:
    process = session.params(steps=100_000, every=10, step_s=0.02).start()
    deadline = time.monotonic() + 20
    while not list(session.working.glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    ended = session.finish(process)
    result = check_result(ended)
    assert (ended.code, result.outcome) == (0, Outcome.STOPPED)
    assert f"leaving at step {result.step_end}" in ended.out


def test_while_it_runs_the_result_says_so(session: Session) -> None:
    process = session.params(steps=100_000, every=10, step_s=0.02).start()
    deadline, seen = time.monotonic() + 20, set[tuple[str, bool]]()
    while time.monotonic() < deadline and ("running", True) not in seen:
        time.sleep(0.02)
        if (session.working / LEG_RESULT).exists():
            result = LegResult.loads((session.working / LEG_RESULT).read_bytes())
            seen.add((result.state.value, result.checkpoint is not None))
            assert result.outcome is None
            assert result.token == session.plan.header.token
    assert seen == {("running", False), ("running", True)}
    process.send_signal(signal.SIGTERM)
    assert check_result(session.finish(process)).state is ResultState.FINAL


def test_a_checkpoint_that_can_not_be_loaded_again_ends_leg_one(session: Session, tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    _copy_with_verify(session, lib, "import sys; sys.exit('Weights only load failed')")
    session.set(session_limit_s=30.0, leave_after_s=25.0).params(steps=100_000, every=10, step_s=0.02)
    ended = session.run()
    result = check_result(ended)
    assert (result.outcome, result.reason) == (Outcome.USER_ERROR, "checkpoint can't be loaded")
    assert "Weights only load failed" in result.message
    assert ended.code == 0
    assert result.ended_at is not None
    assert result.ended_at - result.started_at < 15


def test_loading_is_tried_at_the_end_when_every_try_lost_its_checkpoint(session: Session, tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    verify = "import pathlib, sys, time; time.sleep(0.4); sys.exit(0 if pathlib.Path(sys.argv[1]).is_dir() else 1)"
    _copy_with_verify(session, lib, verify)
    session.set(session_limit_s=20.0, leave_after_s=2.0, keep=2)
    session.params(steps=100_000, every=1, step_s=0.02)
    _prune_like_the_library(session)
    ended = session.run()
    result = check_result(ended)
    assert (ended.code, result.outcome) == (0, Outcome.CONTINUE)
    assert "couldn't be found out" not in ended.out


def _copy_with_verify(session: Session, lib: Path, verify: str) -> None:
    shutil.copytree(session.lib, lib)
    training = lib / "kaggle_orchestrator" / "runtime" / "training"
    training.mkdir()
    (training / "__init__.py").write_text("")
    (training / "verify.py").write_text(verify)
    (session.bundle / "lib").unlink()
    (session.bundle / "lib").symlink_to(lib)


def _prune_like_the_library(session: Session) -> None:
    script = session.src / "train.py"
    text = script.read_text()
    old = "    (CONTROL / SAVING).unlink()\n"
    assert old in text
    prune = "    for p in sorted(Path(CHECKPOINTS).glob('step-*'))[:-2]:\n        shutil.rmtree(p)\n"
    script.write_text(text.replace(old, old + prune))


def test_the_accelerator_of_a_local_kaggle_is_simulated(session: Session) -> None:
    session.set(accelerator="NvidiaTeslaT4", gpu_count=2)
    ended = session.run(KGO_SIMULATED_ACCELERATOR="NvidiaTeslaT4")
    assert ended.result.outcome is Outcome.DONE
    assert "kgo: accelerator NvidiaTeslaT4 (2 GPUs) is simulated" in ended.out


def test_a_leg_without_a_parent_where_there_must_be_one_is_refused(session: Session) -> None:
    session.set(header=replace(session.header, leg=2))
    ended = session.run()
    assert (ended.code, ended.result.outcome) == (1, Outcome.WRONG_SOURCE)


def test_a_bundle_without_a_plan_is_said(session: Session, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(session.bundle, environ={"KGO_KAGGLE_ROOT": str(session.folder / "kaggle")}) == 1
    assert "kgo: the bundle can't be used" in capfd.readouterr().out
