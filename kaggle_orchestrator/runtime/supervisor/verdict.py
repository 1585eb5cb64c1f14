"""What became of an attempt: facts in, outcome out. Pure, so that every case is a row in a table.

An outcome never claims more than the facts hold: ``done`` needs the training's own word (or an orderly end of a plain
script that nobody had asked to leave), ``continue`` needs a verified checkpoint newer than the restored one.
"""

import re
import signal
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from kaggle_orchestrator.protocol import KgoError, Outcome, Progress
from kaggle_orchestrator.protocol.progress import ProgressState


class EndedBy(Enum):
    """Who brought the training to its end."""

    ITSELF = "itself"
    DEADLINE = "deadline"
    """It was asked to leave because the deadline came."""
    SIGNAL = "signal"
    """It was asked to leave because the session was told to end."""
    HUNG = "hung"
    """It gave no sign of life and was killed."""
    UNLOADABLE = "unloadable"
    """It was asked to leave because its checkpoint can't be loaded again."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the verdict depends on.

    Attributes:
        exit_code: Of the training process; negative: the signal that ended it.
        ended_by: Who ended it.
        signalled: Whether we sent it a signal (after having asked).
        chained: Whether there is a next leg.
        progress: Its last report; None for a plain script.
        step_start: Step of the restored checkpoint.
        step_end: Step of the newest verified checkpoint it wrote, if it wrote one.
        done_file: Whether ``checkpoint.done`` exists; None when that isn't configured.
        near_deadline: It ended by itself so shortly before the deadline that it may have minded the time.
        oom_kills: Processes that the kernel killed for memory meanwhile.
        disk_free: Bytes free when it ended.
        stdout, stderr: Its last lines.
        hung_s: Seconds of silence after which it counts as hung.
        load_fault: What the fresh process said that couldn't load the first checkpoint.
    """

    exit_code: int
    ended_by: EndedBy = EndedBy.ITSELF
    signalled: bool = False
    chained: bool = True
    progress: Progress | None = None
    step_start: int = 0
    step_end: int | None = None
    done_file: bool | None = None
    near_deadline: bool = False
    oom_kills: int = 0
    disk_free: int = 1 << 40
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    hung_s: float | None = None
    load_fault: str = ""

    @property
    def gained(self) -> bool:
        """Whether the output holds a verified checkpoint newer than the restored one."""
        return self.step_end is not None and self.step_end > self.step_start


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, a short word behind it, and what a person should know."""

    outcome: Outcome
    reason: str
    message: str

    def exit_code(self, gained: bool) -> int:
        """The session's: 0 only for a gain or the target, so that Kaggle mounts this version's output or the older."""
        return 0 if gained or self.outcome is Outcome.DONE else 1


class Unfit(KgoError):
    """The verdict on an attempt that ends before training begins.

    Attributes:
        outcome: The verdict.
        reason: A short word behind it.
    """

    def __init__(self, outcome: Outcome, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome
        self.reason = reason


GPU_OOM = re.compile(
    r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
    r"|RESOURCE_EXHAUSTED: Out of memory|OOM when allocating tensor"
)
HOST_OOM = re.compile(
    r"^MemoryError|can't allocate memory|Cannot allocate memory|std::bad_alloc"
    r"|DataLoader worker \(pid\(?s?\)? .*killed by signal: Killed",
    re.MULTILINE,
)
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|\[Errno (28|122)\]|ENOSPC|\bDiskFull: ")
WRITE_FAILED = re.compile(r"file write failed|inline_container|iostream error|unexpected pos \d+ vs \d+")
_TOLD = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
"""Exits of a process that had the same signal as we: a session is told to end as a whole, as a rule."""
LITTLE_DISK = 32 << 20
"""Bytes free below which a failed write counts as a full disk."""


def judge(facts: Facts) -> Verdict:
    """The verdict on an attempt whose training was started."""
    match facts.ended_by:
        case EndedBy.HUNG:
            minutes = (facts.hung_s or 0) / 60
            message = f"No sign of life from training for {minutes:.0f} min; it was killed. {_last_words(facts)}"
            return Verdict(Outcome.HUNG, "no heartbeat", message.strip())
        case EndedBy.UNLOADABLE:
            return _unloadable(facts)
        case EndedBy.ITSELF | EndedBy.DEADLINE | EndedBy.SIGNAL:
            pass
        case _:
            assert_never(facts.ended_by)
    if facts.exit_code == 0:
        return _in_order(facts)
    left = facts.progress is not None and facts.progress.state is ProgressState.LEFT
    if left or facts.signalled or (facts.ended_by is EndedBy.SIGNAL and facts.exit_code in _TOLD):
        return _asked(facts)  # whatever it ended with, it ended because it was told to
    return _failed(facts)


def _in_order(facts: Facts) -> Verdict:
    if facts.done_file:
        return Verdict(Outcome.DONE, "done file", "The file that means done is there.")
    state = facts.progress.state if facts.progress else None
    if state is ProgressState.DONE:
        if facts.done_file is None:
            return Verdict(Outcome.DONE, "target", "The target is reached.")
        return _not_done(facts, "Training reached its end, but the file that means done isn't there.")
    if facts.ended_by is not EndedBy.ITSELF or state is ProgressState.LEFT:
        return _asked(facts)
    if state is ProgressState.RUNNING:
        at = f"step {facts.progress.step}" if facts.progress else "an unknown step"
        return _not_done(facts, f"The script ended with exit 0 at {at}, before its training was over.")
    if facts.done_file is not None:
        return _not_done(facts, "The script ended with exit 0, but the file that means done isn't there.")
    if facts.chained and facts.near_deadline and facts.gained:
        return Verdict(Outcome.CONTINUE, "near the deadline", "It ended near the deadline; the next leg decides.")
    return Verdict(Outcome.DONE, "exit 0", "The script ended with exit 0.")


def _asked(facts: Facts) -> Verdict:
    """It left, or was made to leave, before its target."""
    how = "left when asked" if not facts.signalled else f"had to be ended by a signal (exit {facts.exit_code})"
    if facts.ended_by is EndedBy.SIGNAL:
        return Verdict(Outcome.STOPPED, "signal", f"The session was told to end; training {how}.")
    if not facts.chained:
        outcome = Outcome.CONTINUE if facts.gained else Outcome.USER_ERROR
        message = "The session's time was over before training was. A [chain] table lets it go on in further sessions."
        return Verdict(outcome, "session limit", message)
    if facts.gained:
        return Verdict(Outcome.CONTINUE, "deadline", f"The deadline came; training {how}.")
    return Verdict(
        Outcome.NO_PROGRESS,
        "deadline",
        f"The deadline came before a new checkpoint was complete; training {how}."
        " Save more often, or give it a longer session.",
    )


def _not_done(facts: Facts, message: str) -> Verdict:
    """It ended in order, by itself, before its target."""
    if facts.chained and not facts.gained:
        return Verdict(Outcome.NO_PROGRESS, "exit 0", f"{message} No step was gained.")
    if facts.chained and facts.progress is None:
        return Verdict(Outcome.CONTINUE, "exit 0", message)
    return Verdict(Outcome.USER_ERROR, "exit 0", message)


def _failed(facts: Facts) -> Verdict:
    resume = facts.progress.resume if facts.progress else None
    if resume is not None and resume.stopped:
        return Verdict(Outcome.RESUME_MISMATCH, "not exact", f"It didn't go on exactly: {resume.mismatch}")
    text = "\n".join((*facts.stdout, *facts.stderr))
    word, name = _ending(facts.exit_code)
    said = _last_words(facts)
    if DISK_FULL.search(text) or (WRITE_FAILED.search(text) and facts.disk_free < LITTLE_DISK):
        message = f"The disk is full ({facts.disk_free >> 20} MiB free below the working folder). {said}"
        return Verdict(Outcome.DISK_FULL, "no space", message)
    if GPU_OOM.search(text):
        message = f"The GPU's memory ran out: a smaller batch, accumulation or checkpointed activations help. {said}"
        return Verdict(Outcome.OOM, "GPU memory", message)
    if facts.oom_kills or HOST_OOM.search(text):
        message = f"The machine's memory ran out: fewer workers, smaller caches. {said}"
        return Verdict(Outcome.OOM, "memory", message)
    if facts.exit_code == -signal.SIGKILL:
        return Verdict(Outcome.USER_ERROR, word, f"Killed by {name}, not by us: memory ran out, most likely. {said}")
    return Verdict(Outcome.USER_ERROR, word, f"Training failed: {name}. {said}".strip())


def _unloadable(facts: Facts) -> Verdict:
    message = f"The first checkpoint can't be loaded in a fresh process, so no later leg could: {facts.load_fault}"
    return Verdict(Outcome.USER_ERROR, "checkpoint can't be loaded", message)


def _ending(code: int) -> tuple[str, str]:
    """A short word and a name for an exit code."""
    if code >= 0:
        return f"exit {code}", f"exit {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return name, name


def _last_words(facts: Facts, limit: int = 1500) -> str:
    """The end of stderr (of stdout, if that is silent): at most ten lines and ``limit`` characters."""
    lines = [line for line in facts.stderr if line.strip()] or [line for line in facts.stdout if line.strip()]
    text = "\n".join(lines[-10:]).strip()
    return text if len(text) <= limit else f"… {text[-limit:]}"
