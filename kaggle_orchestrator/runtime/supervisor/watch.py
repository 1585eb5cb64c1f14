"""Watches training until it has ended: deadline, signs of life, new checkpoints, requests to the session to end.

Training is asked to leave by a file, then told by SIGTERM, then killed with all it started; never while a checkpoint
is open for writing, unless Kaggle's kill is so near that the report would be lost.
"""

import contextlib
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import assert_never

from kaggle_orchestrator.protocol import Checkpoint, Plan, Progress
from kaggle_orchestrator.protocol.progress import PROGRESS, SAVING, STOP, ProgressState
from kaggle_orchestrator.runtime.supervisor.heartbeat import Heartbeat
from kaggle_orchestrator.runtime.supervisor.loadcheck import LoadCheck
from kaggle_orchestrator.runtime.supervisor.log import Log
from kaggle_orchestrator.runtime.supervisor.outputs import bytes_below, own_checkpoints
from kaggle_orchestrator.runtime.supervisor.places import Places
from kaggle_orchestrator.runtime.supervisor.plainscript import Wrapper, is_match
from kaggle_orchestrator.runtime.supervisor.process import Training, writes_open
from kaggle_orchestrator.runtime.supervisor.report import Report
from kaggle_orchestrator.runtime.supervisor.signals import Signals
from kaggle_orchestrator.runtime.supervisor.times import Limits, Schedule, tail_s
from kaggle_orchestrator.runtime.supervisor.verdict import EndedBy
from kaggle_orchestrator.runtime.supervisor.words import duration, progress_line

GRACE_S = 30.0
"""How long training has when the session itself is told to end."""
ABORT_S = 3.0
LEFTOVERS_S = 1.0
"""How long what training started may outlive it."""


class Move(Enum):
    """What the watch does next about training that has to leave."""

    NONE = "none"
    ASK = "ask"
    TERM = "term"
    KILL = "kill"


def next_move(now: float, schedule: Schedule, done: Move, busy: bool) -> Move:
    """The next step of making training leave.

    Args:
        now: Wall time.
        schedule: When each step is due.
        done: The step that was taken last.
        busy: Whether a checkpoint is open for writing, or training is on its way out already.
    """
    if now >= schedule.last_at:
        return Move.KILL if done is not Move.NONE else Move.ASK  # it is always asked first
    if now >= schedule.kill_at and done is Move.TERM and not busy:
        return Move.KILL
    if now >= schedule.term_at and done is Move.ASK and not busy:
        return Move.TERM
    if now >= schedule.ask_at and done is Move.NONE:
        return Move.ASK
    return Move.NONE


@dataclass(slots=True)
class Watch:
    """The watch over one training process.

    Attributes:
        progress: Its last report.
        ended_by: Who ended it.
        newest: The newest checkpoint it committed; not verified yet.
        done: The last step that was taken to make it leave.
        whole: Whether its own files are surely whole: it ended in order, or nothing was open when it was ended.
        near_deadline: Whether it ended near the deadline.
    """

    plan: Plan
    places: Places
    limits: Limits
    log: Log
    report: Report
    training: Training
    signals: Signals
    loadcheck: LoadCheck | None
    wrapper: Wrapper | None
    now: Callable[[], float] = time.time
    progress: Progress | None = None
    ended_by: EndedBy = EndedBy.ITSELF
    newest: Checkpoint | None = None
    done: Move = Move.NONE
    whole: bool = False
    near_deadline: bool = False
    schedule: Schedule = field(init=False)
    _heartbeat: Heartbeat = field(init=False)
    _tail_s: float = field(init=False)
    _at_once: bool = False
    _reap_at: float = 0.0
    _reported: str = ""
    _report_at: float = 0.0
    _line_at: float = field(init=False)
    _names: tuple[str, ...] = ()
    _progress_ns: int = 0
    _warned: bool = False

    def __post_init__(self) -> None:
        self._tail_s = tail_s(bytes_below(self.places.working))
        self.schedule = Schedule.of(self.limits, tail_s=self._tail_s)
        self._heartbeat = Heartbeat(self.plan.hung_s, self.training)
        self._line_at = self.now() + self._line_every_s / 2

    @property
    def _session_s(self) -> float:
        return self.limits.kill_at - self.limits.start

    @property
    def _line_every_s(self) -> float:
        return min(300.0, max(5.0, self._session_s / 100))

    def run(self) -> int:
        """Watch until training has ended and nothing it started is left; returns its exit code."""
        tick = min(1.0, max(0.1, self._session_s / 200))
        while (code := self.training.wait(tick)) is None:
            self._look()
        self.near_deadline = self._is_near_deadline()
        self._read_progress()
        self._leftovers()
        self.whole = self.whole or code == 0
        return code

    def _is_near_deadline(self) -> bool:
        """Whether it is so late that a plain script may have minded the time."""
        planned = self.limits.leave_at - self.limits.start
        return self.limits.chained and self.limits.leave_at - self.now() <= min(1800.0, 0.1 * planned)

    def _look(self) -> None:
        self._read_progress()
        self._see_checkpoints()
        self._check_loading()
        now = self.now()
        if now >= self._reap_at:
            self._reap_at = now + 5.0
            self.training.reap()
        reports = self.progress is not None and not self._leaving  # what follows training makes none
        if self._heartbeat.silent(self.log.heard_at, reports) and self.ended_by is not EndedBy.HUNG:
            self._give_up()
            return
        if self.signals.received and self.ended_by is EndedBy.ITSELF:
            self.log.say(f"{self.signals.name}: the session is told to end")
            self._hurry(EndedBy.SIGNAL, now)
        if not self._at_once:
            save_s, step_s = (self.progress.save_s, self.progress.step_s) if self.progress else (0.0, 0.0)
            self.schedule = Schedule.of(self.limits, save_s=save_s, step_s=step_s, tail_s=self._tail_s)
        busy = (self.places.control / SAVING).exists() or self._leaving
        self._move(next_move(now, self.schedule, self.done, busy), now)
        if now >= self._line_at and self.progress is not None:
            self._line_at = now + self._line_every_s
            self.log.say(progress_line(self.progress, self._to_deadline(now)))

    @property
    def _leaving(self) -> bool:
        """Whether training has reported that it is through."""
        return self.progress is not None and self.progress.state is not ProgressState.RUNNING

    def _to_deadline(self, now: float) -> float | None:
        return self.schedule.ask_at - now if self.limits.chained and self.done is Move.NONE else None

    def _hurry(self, why: EndedBy, now: float) -> None:
        """Training must leave now, whatever the deadline."""
        self.ended_by, self._at_once = why, True
        self.schedule = Schedule.at_once(now, self.schedule, GRACE_S)

    def _move(self, move: Move, now: float) -> None:
        match move:
            case Move.NONE:
                return
            case Move.ASK:
                if self.ended_by is EndedBy.ITSELF and not self._leaving:
                    self.ended_by = EndedBy.DEADLINE
                    word = "the deadline has come" if self.limits.chained else "the session is nearly over"
                    self.log.say(f"{word}: training is asked to save and leave")
                with contextlib.suppress(OSError):  # then it learns by SIGTERM
                    (self.places.control / STOP).touch()
            case Move.TERM:
                if not self._strike(signal.SIGTERM, now):
                    return
                self.log.say(f"training hasn't left after {duration(now - self.schedule.ask_at)}: SIGTERM")
            case Move.KILL:
                if not self._strike(signal.SIGKILL, now):
                    return
                self.log.say("training hasn't left: SIGKILL")
            case _:
                assert_never(move)
        self.done = move

    def _strike(self, number: int, now: float) -> bool:
        """Send a signal at a moment when no checkpoint of a plain script is open; False if it wasn't sent."""
        if self.wrapper is not None:
            frozen = self.training.freeze()
            open_now = self._open_checkpoints()
            if open_now and now < self.schedule.last_at:
                self.training.signal_tree(signal.SIGCONT, frozen)
                return False
            self.whole = not open_now
        else:
            frozen = []
        if number == signal.SIGKILL:
            self.training.kill_tree()
        else:
            self.training.signal(number)
            self.training.signal_tree(signal.SIGCONT, frozen)
        return True

    def _open_checkpoints(self) -> list[Path]:
        files = [file for process in self.training.tree() for file in writes_open(process)]
        return [file for file in files if is_match(file, self.places.working, self.plan.paths)]

    def _give_up(self) -> None:
        """It is hung: have it say where, then kill it."""
        self.ended_by = EndedBy.HUNG
        self.log.say(f"no sign of life from training for {duration(self.plan.hung_s or 0)}: it is killed")
        self.training.signal(signal.SIGABRT)  # faulthandler prints every thread's stack
        self.training.wait(ABORT_S)
        self.training.kill_tree()

    def _leftovers(self) -> None:
        give_up = time.monotonic() + LEFTOVERS_S
        while self.training.tree() and time.monotonic() < give_up:
            self.training.reap()
            time.sleep(0.02)
        if left := self.training.tree():
            word = "1 process" if len(left) == 1 else f"{len(left)} processes"
            self.log.say(f"training left {word} behind: killed")
        self.training.kill_tree()

    def _read_progress(self) -> None:
        try:
            changed = (self.places.control / PROGRESS).stat().st_mtime_ns
        except OSError:
            return
        if changed != self._progress_ns:
            self._progress_ns = changed
            self.progress = Progress.read(self.places.control) or self.progress
            self._heartbeat.beat()

    def _see_checkpoints(self) -> None:
        """Note new checkpoints, wrap those of a plain script, and keep the running result up to date."""
        if self.wrapper is not None and self.progress is None:
            self._wrap(self.wrapper)
        now = self.now()
        try:
            names = tuple(sorted(p.name for p in self.places.checkpoints.iterdir()))
        except OSError:
            return
        if names != self._names:
            self._names = names
            found = own_checkpoints(self.places.checkpoints, self.plan.header.token)
            self.newest = found[0] if found else None
            self._tail_s = tail_s(bytes_below(self.places.working))
            self._mind_the_disk()
        if self.newest is not None and self.newest.sha256 != self._reported and now >= self._report_at:
            self._reported, self._report_at = self.newest.sha256, now + 1.0
            self.report.running(self.newest, self.progress)

    def _wrap(self, wrapper: Wrapper) -> None:
        try:
            made = wrapper.look(self._open_checkpoints)
        except OSError as error:
            if not self._warned:
                self._warned = True
                self.log.say(f"a changed checkpoint can't be kept: {error.strerror or error}")
            return
        if made is not None:
            self._heartbeat.beat()
            for old in own_checkpoints(self.places.checkpoints, self.plan.header.token)[self.plan.keep :]:
                shutil.rmtree(old.folder, ignore_errors=True)
            if self.now() >= self._line_at:
                self._line_at = self.now() + self._line_every_s
                self.log.say(f"save {made.step} of the script is kept as {made.folder.name}")

    def _mind_the_disk(self) -> None:
        """Say once that the next save may not fit."""
        if self.newest is None or self._warned:
            return
        free, needed = shutil.disk_usage(self.places.working).free, bytes_below(self.newest.folder)
        if free < 2 * needed:
            self._warned = True
            self.log.say(f"little disk: {free >> 20} MiB free, a checkpoint takes {needed >> 20} MiB; lower keep")

    def _check_loading(self) -> None:
        if self.loadcheck is None:
            return
        if self.progress is not None and self.newest is not None and self.loadcheck.wanted:
            self.loadcheck.start(self.newest.folder)
        elif self.loadcheck.poll():
            if self.loadcheck.loads:
                self.log.say("the first checkpoint loads in a fresh process")
            elif self.ended_by is EndedBy.ITSELF:
                self.log.say("the first checkpoint can't be loaded in a fresh process: training is asked to leave")
                self._hurry(EndedBy.UNLOADABLE, self.now())
