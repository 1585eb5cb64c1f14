"""Every verdict is a row: facts in, outcome and the session's exit code out."""

import signal

import pytest

from kaggle_orchestrator.protocol import Outcome, Progress, ProgressState, ResumeCheck
from kaggle_orchestrator.runtime.supervisor.verdict import EndedBy, Facts, judge

DONE = Progress(ProgressState.DONE, 30, saved_step=30)
LEFT = Progress(ProgressState.LEFT, 20, saved_step=20)
NOT_EXACT = Progress(ProgressState.RUNNING, 12, resume=ResumeCheck(1, 9, mismatch="at step 11 …", stopped=True))
RUNNING = Progress(ProgressState.RUNNING, 20, saved_step=20)
KILL, TERM = -signal.SIGKILL, -signal.SIGTERM

ROWS = [
    # the library
    (Facts(0, progress=DONE, step_end=30), Outcome.DONE, "target", 0),
    (Facts(0, progress=DONE, step_start=30), Outcome.DONE, "target", 0),
    (Facts(0, progress=LEFT, step_end=20), Outcome.CONTINUE, "deadline", 0),
    (Facts(0, progress=LEFT, step_start=20, step_end=20), Outcome.NO_PROGRESS, "deadline", 1),
    (
        Facts(143, progress=LEFT, step_end=20, ended_by=EndedBy.DEADLINE, signalled=True),
        Outcome.CONTINUE,
        "deadline",
        0,
    ),
    (Facts(0, EndedBy.DEADLINE, progress=DONE, step_end=30), Outcome.DONE, "target", 0),
    (Facts(0, progress=RUNNING, step_end=20), Outcome.USER_ERROR, "exit 0", 0),
    (Facts(0, progress=RUNNING), Outcome.NO_PROGRESS, "exit 0", 1),
    (Facts(1, progress=DONE, step_end=30, stderr=("ValueError: x",)), Outcome.USER_ERROR, "exit 1", 0),
    (Facts(1, progress=RUNNING, step_end=20), Outcome.USER_ERROR, "exit 1", 0),
    (Facts(1, progress=RUNNING), Outcome.USER_ERROR, "exit 1", 1),
    # signals of ours
    (Facts(TERM, EndedBy.DEADLINE, True, progress=RUNNING, step_end=10), Outcome.CONTINUE, "deadline", 0),
    (Facts(KILL, EndedBy.DEADLINE, True, progress=RUNNING), Outcome.NO_PROGRESS, "deadline", 1),
    (Facts(1, EndedBy.DEADLINE, progress=RUNNING, step_end=10), Outcome.USER_ERROR, "exit 1", 0),
    # signals to us
    (Facts(0, EndedBy.SIGNAL, progress=LEFT, step_end=20), Outcome.STOPPED, "signal", 0),
    (Facts(TERM, EndedBy.SIGNAL, progress=RUNNING), Outcome.STOPPED, "signal", 1),
    (Facts(0, EndedBy.SIGNAL, progress=DONE, step_end=30), Outcome.DONE, "target", 0),
    # plain scripts
    (Facts(0), Outcome.DONE, "exit 0", 0),
    (Facts(0, chained=False), Outcome.DONE, "exit 0", 0),
    (Facts(0, EndedBy.DEADLINE, step_end=3), Outcome.CONTINUE, "deadline", 0),
    (Facts(0, EndedBy.DEADLINE), Outcome.NO_PROGRESS, "deadline", 1),
    (Facts(0, near_deadline=True, step_end=3), Outcome.CONTINUE, "near the deadline", 0),
    (Facts(0, near_deadline=True), Outcome.DONE, "exit 0", 0),
    (Facts(0, near_deadline=True, chained=False), Outcome.DONE, "exit 0", 0),
    (Facts(TERM, EndedBy.DEADLINE, True, chained=False), Outcome.USER_ERROR, "session limit", 1),
    (Facts(0, EndedBy.DEADLINE, progress=LEFT, step_end=9, chained=False), Outcome.CONTINUE, "session limit", 0),
    # the file that means done
    (Facts(0, done_file=True, near_deadline=True, step_end=3), Outcome.DONE, "done file", 0),
    (Facts(0, EndedBy.DEADLINE, done_file=True), Outcome.DONE, "done file", 0),
    (Facts(0, done_file=False, step_end=3), Outcome.CONTINUE, "exit 0", 0),
    (Facts(0, done_file=False), Outcome.NO_PROGRESS, "exit 0", 1),
    (Facts(0, done_file=False, chained=False), Outcome.USER_ERROR, "exit 0", 1),
    (Facts(0, progress=DONE, done_file=False, step_end=30), Outcome.USER_ERROR, "exit 0", 0),
    (Facts(1, done_file=True), Outcome.USER_ERROR, "exit 1", 1),
    # hung, unloadable
    (Facts(-signal.SIGABRT, EndedBy.HUNG, hung_s=1800.0), Outcome.HUNG, "no heartbeat", 1),
    (Facts(KILL, EndedBy.HUNG, hung_s=1800.0, step_end=5), Outcome.HUNG, "no heartbeat", 0),
    (Facts(0, EndedBy.UNLOADABLE, progress=LEFT, step_end=5), Outcome.USER_ERROR, "checkpoint can't be loaded", 0),
    # memory and disk
    (Facts(1, stderr=("torch.OutOfMemoryError: CUDA out of memory.",)), Outcome.OOM, "GPU memory", 1),
    (Facts(1, stderr=("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED",)), Outcome.OOM, "GPU memory", 1),
    (Facts(KILL, oom_kills=1), Outcome.OOM, "memory", 1),
    (Facts(1, stderr=("RuntimeError: DataLoader worker exited unexpectedly",), oom_kills=1), Outcome.OOM, "memory", 1),
    (Facts(1, stderr=("MemoryError",)), Outcome.OOM, "memory", 1),
    (Facts(0, stderr=("CUDA out of memory, trying a smaller batch",)), Outcome.DONE, "exit 0", 0),
    (Facts(1, stderr=("OSError: [Errno 28] No space left on device",)), Outcome.DISK_FULL, "no space", 1),
    (
        Facts(1, stderr=("PytorchStreamWriter failed: file write failed",), disk_free=100),
        Outcome.DISK_FULL,
        "no space",
        1,
    ),
    (Facts(1, stderr=("PytorchStreamWriter failed: file write failed",)), Outcome.USER_ERROR, "exit 1", 1),
    (
        Facts(1, stderr=("kaggle_orchestrator.DiskFull: disk full: a checkpoint needs 9 MB",)),
        Outcome.DISK_FULL,
        "no space",
        1,
    ),
    (Facts(KILL), Outcome.USER_ERROR, "SIGKILL", 1),
    (Facts(1, progress=NOT_EXACT), Outcome.RESUME_MISMATCH, "not exact", 1),
    (Facts(-signal.SIGSEGV), Outcome.USER_ERROR, "SIGSEGV", 1),
]


@pytest.mark.parametrize(("facts", "outcome", "reason", "code"), ROWS)
def test_verdict(facts: Facts, outcome: Outcome, reason: str, code: int) -> None:
    verdict = judge(facts)
    assert (verdict.outcome, verdict.reason, verdict.exit_code(facts.gained)) == (outcome, reason, code)
    assert verdict.message


def test_the_message_ends_with_the_last_words_and_stays_short() -> None:
    facts = Facts(1, stderr=tuple(f"line {n} " + "x" * 500 for n in range(40)), stdout=("not this",))
    message = judge(facts).message
    assert message.endswith("x" * 100)
    assert "line 39" in message
    assert "not this" not in message
    assert len(message) < 1600
