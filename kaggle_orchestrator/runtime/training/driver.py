"""Drives the loop of a training: restores before it, and saves and leaves between its bodies, never within one.

A body is what the loop does for one batch, step or epoch. When the loop asks for the next one, all the code behind
``run.step`` has run too, and whatever it changed is in the checkpoint.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import torch

from kaggle_orchestrator.protocol import Checkpoint, KgoError, Progress, ProgressState, ResumeCheck
from kaggle_orchestrator.runtime.training import rng
from kaggle_orchestrator.runtime.training.course import Course, Loop
from kaggle_orchestrator.runtime.training.environment import describe
from kaggle_orchestrator.runtime.training.keeper import Arrival, Keeper, output_of
from kaggle_orchestrator.runtime.training.loader import Loader
from kaggle_orchestrator.runtime.training.metrics import number
from kaggle_orchestrator.runtime.training.pace import Pace
from kaggle_orchestrator.runtime.training.replay import TOLERANCE, Proof, Record, Replay
from kaggle_orchestrator.runtime.training.report import Reporter
from kaggle_orchestrator.runtime.training.say import say
from kaggle_orchestrator.runtime.training.settings import Settings
from kaggle_orchestrator.runtime.training.stopping import StopRequests
from kaggle_orchestrator.runtime.training.trace import Tracer
from kaggle_orchestrator.runtime.training.untracked import Untracked

_SAY_SAVES_EVERY_S = 60.0


class Driver:
    """The loop of one training in one process.

    Attributes:
        keeper: Its checkpoints.
        course: Its counters, from the loop's beginning on.
    """

    def __init__(self, settings: Settings, seed: int, device: torch.device) -> None:
        self._settings = settings
        self._seed = seed
        self._device = device
        self.keeper = Keeper(settings, seed, device)
        self.course: Course | None = None
        self._reporter = Reporter(settings.control)
        self._stop = StopRequests(settings.control)
        self._pace = Pace(settings.save_every_s, settings.deadline, time.monotonic())
        self._in_body = False
        self._left: int | None = None
        self._arrival: Arrival | None = None
        self._top: dict[str, Any] | None = None
        self._first_step = 0
        self._loss: object = None
        self._tracer: Tracer | None = None
        self._replay: Replay | None = None
        self._proof: Proof | None = None
        self._resume: ResumeCheck | None = None
        self._unsaved: Untracked | None = None
        self._untracked: tuple[str, ...] = ()
        self._replaying = 0.0
        self._buckets = dict.fromkeys(("restore", "data", "train", "save", "replay"), 0.0)
        self._waited_before = 0.0
        self._said_save = -math.inf
        self._said: set[str] = set()

    def enter(self) -> None:
        """Find the checkpoint to go on from, and seed everything.

        Raises:
            KgoError: It can't be used.
        """
        self.keeper.find()
        rng.seed_all(self._seed)
        self._numpy_seeded = rng.numpy_loaded()
        step = 0 if self.keeper.restored is None else self.keeper.restored.step
        self._reporter.write(Progress(ProgressState.RUNNING, step), time.monotonic())

    def exit(self, error: BaseException | None) -> None:
        """The block ended: say how, and let go of everything.

        Raises:
            KgoError: There was no loop in it.
        """
        self._in_body = False
        self._stop.remove()
        try:
            if isinstance(error, KgoError):
                say(error.message, error.hint)
            by_itself = isinstance(error, SystemExit) and error.code in (None, 0)
            if self._left is not None or (self._replay is not None and error is not None):
                return  # whatever a replayed step ends with, its leg is saved
            self._replay = None
            if error is None or (by_itself and self.course is not None and self.course.complete):
                if self.course is None:
                    raise KgoError("the block ended without a loop over run.epochs() or run.steps()")
                self._report(self.course, ProgressState.DONE)
                say(f"done at step {self.course.step}")
            elif self.course is not None:
                self._report(self.course, ProgressState.RUNNING)
        finally:
            self.keeper.close()

    def step(self, metrics: Mapping[str, object]) -> None:
        """Count a step; write its metrics and a report when they are due."""
        self._stay_left()
        course = self.course
        if course is None or not self._in_body:
            raise KgoError("run.step() belongs inside the loop over run.epochs() or run.steps()")
        course.step += 1
        for loader in self.keeper.loaders:
            loader.stepped()
        loss = metrics.get("loss")
        self._loss = loss.detach() if isinstance(loss, torch.Tensor) else loss
        if self._tracer is not None:
            trace = self._tracer.step(course.step, self.keeper.tracked.optimizers(), metrics)
            if self._replay is not None:
                self._replay.step(trace)
            elif self._proof is not None:
                self._proof.step(trace)
        now = time.monotonic()
        if metrics and self.keeper.metrics.wanted(course.step, now):
            self.write_metrics(course, metrics)
        if self._reporter.due(now):
            self._report(course, ProgressState.RUNNING)

    def write_metrics(self, course: Course, metrics: Mapping[str, object]) -> None:
        """Append a line to the metrics, and name a number that isn't finite, once."""
        values = {name: number(name, value) for name, value in metrics.items()}
        for name, value in values.items():
            if not math.isfinite(value) and name not in self._said:
                self._said.add(name)
                say(f"{name} is {value} at step {course.step}")
        self.keeper.metrics.write(course.step, course.current_epoch, time.time(), time.monotonic(), values)

    # What loaders see (loader.Gate)

    def between_batches(self, loader: Loader, left: int) -> None:
        """In a loop over epochs this is where training is saved and left."""
        self._stay_left()
        course, here = self.course, loader.open_pass
        if course is None or course.loop is Loop.STEPS or not self._in_body or here is None:
            return
        if not here.fresh or not loader.resumable():
            return
        at = self.keeper.loaders.index(loader)
        self._compare(course, at)
        if not left and self._replay is not None:
            self._end_replay(self._replay, at)
        if self._ahead(loader):
            return
        if left:
            self._safe_point(course, at)
        elif self._pace.leave_due(time.monotonic(), time.time()):
            # Nothing is left but what follows the pass: evaluation, say. Saved here, the next leg would come to that
            # through an empty pass, which not every training expects; so only if there is no time for it.
            self._leave(course, at, "the deadline is near", replay=False)

    def _ahead(self, loader: Loader) -> bool:
        """Whether another loader has given out a batch for the step that comes: in a ``zip``, say."""
        others = [each.open_pass for each in self.keeper.loaders if each is not loader]
        return any(other is not None and other.delivered and not other.fresh for other in others)

    def given(self, loader: Loader, pass_: int, taken: Callable[[], object], batch: object) -> None:
        """A loader gives out a batch."""
        if self._tracer is not None:
            self._tracer.given(self.keeper.loaders.index(loader), pass_, taken(), batch)

    def arrived(self, loader: Loader) -> None:
        """The code up to the checkpoint's position has run again; from here on random numbers go on too."""
        arrival = self._arrival
        if arrival is None or arrival.at is None or self.keeper.loaders[arrival.at] is not loader:
            return
        for each in self.keeper.loaders:
            each.catch_up()
        rng.restore(arrival.now)
        self._arrival = None
        self._trace_resume()

    # The loops

    def begin(self, loop: Loop, total: int) -> Iterator[int]:
        """Restore, and return the loop.

        Raises:
            KgoError: The state can't be restored into this training.
        """
        began = time.monotonic()
        for loader in self.keeper.loaders:
            loader.end_pass()
        course = Course(loop, total)
        self._arrival = self.keeper.restore(course)
        if self.keeper.restored is None:
            if not self._numpy_seeded:
                rng.seed_numpy(self._seed)
            say(f"training from the beginning on {self._device}, {torch.get_num_threads()} threads")
        else:
            say(f"going on from step {course.step} of {self.keeper.restored.folder}")
            self._proof = self._begin_proof(self.keeper.restored)
            if self._arrival is not None and self._arrival.at is None:
                self._trace_resume()
        self.course, self._first_step = course, course.step
        now = time.monotonic()
        self._buckets["restore"] = now - began
        self._waited_before = self._waited_s()
        self._pace = Pace(self._settings.save_every_s, self._settings.deadline, now)
        self._stop.install()
        if self.keeper.restored is None:
            self._unsaved = Untracked(self.keeper.tracked.objects())
        self._compare(course, None)
        self._report(course, ProgressState.RUNNING)
        if course.complete and self._arrival is not None:  # only what follows the loop is left
            rng.restore(self._arrival.now)
            self._arrival = None
        return self._epochs(course) if loop is Loop.EPOCHS else self._steps(course)

    def _epochs(self, course: Course) -> Iterator[int]:
        while not course.complete:
            before, cut = course.step, self._arrival is not None and self._arrival.at is not None
            self._open_body(course)
            yield course.epoch
            self._close_body()
            if not cut:
                if course.step == before:
                    raise KgoError("an epoch ended without run.step()", hint="Call it once for each optimizer step.")
                course.steps_per_epoch = course.step - before
            course.epoch += 1
            self._between_bodies(course)
        self._stop.remove()

    def _steps(self, course: Course) -> Iterator[int]:
        while not course.complete:
            self._open_body(course)
            yield course.step
            self._close_body()
            if course.step == self._first_step:
                raise KgoError("a step ended without run.step()", hint="Call it once for each optimizer step.")
            self._between_bodies(course)
        self._stop.remove()

    def _open_body(self, course: Course) -> None:
        for loader in self.keeper.loaders:
            loader.begin_body()
        if arrival := self._arrival:
            if arrival.at is None:
                rng.restore(arrival.now)
                self._arrival = None
            elif arrival.body is not None:
                rng.restore(arrival.body)
        self._top = rng.capture() if course.loop is Loop.EPOCHS else None
        self._in_body = True

    def _close_body(self) -> None:
        self._stay_left()
        self._in_body = False
        if self._arrival is not None:
            raise KgoError(
                f"the checkpoint lies in a pass over loader {self._arrival.at}, which this epoch didn't iterate over",
                hint="Was the loop changed since the leg before?",
            )

    def _between_bodies(self, course: Course) -> None:
        self._compare(course, None)
        if course.complete:
            self._replay = None  # the end is the end, also when it's reached behind the deadline
        if not course.complete:
            self._safe_point(course, None)
        elif not self.keeper.has_checkpoint(course.step):
            self._save(course, None)

    # Saving and leaving

    def _safe_point(self, course: Course, at: int | None) -> None:
        now = time.monotonic()
        if self._replay is not None:
            if self._replay.over(now) or self._stop.exit_code:
                self._end_replay(self._replay, at)
            return
        self._pace.reached_point(now)
        if asked := self._stop.asked():
            self._leave(course, at, asked)
            return
        steps = course.step - self._first_step
        if steps and self._pace.leave_due(now, time.time()):  # a leg that gains nothing would only be repeated
            self._leave(course, at, "the deadline is near")
        elif self._pace.save_due(now, steps) and not (self._settings.stop_on_mismatch and self._proof is not None):
            self._save(course, at)

    def _save(self, course: Course, at: int | None) -> None:
        if course.step == self.keeper.saved_step:
            return
        began = time.monotonic()
        self._reporter.saving(True)
        try:
            self.keeper.save(course, at, None if at is None else self._top)
        finally:
            self._reporter.saving(False)
        if self._unsaved is not None:
            self._untracked, self._unsaved = self._unsaved.names(), None
            if self._untracked:
                say(
                    f"changed by training, but in no checkpoint: {', '.join(self._untracked)}",
                    "Track them (run.track), or a later leg begins with new ones.",
                )
        now = time.monotonic()
        self._pace.saved(now, now - began)
        self._buckets["save"] += now - began
        if now - self._said_save >= _SAY_SAVES_EVERY_S:
            self._said_save = now
            say(f"saved step {course.step} in {now - began:.2f} s")
        self._report(course, ProgressState.RUNNING)

    def _leave(self, course: Course, at: int | None, why: str, *, replay: bool = True) -> None:
        """Save, and leave; if there is time, some steps later, which the next leg compares with its own."""
        self._save(course, at)
        self._report(course, ProgressState.LEFT)
        say(f"leaving at step {course.step} ({why}); its checkpoint is saved")
        if not replay or not self._settings.replay_s or self._stop.exit_code or self.keeper.saved is None:
            self._go()
        record = Record(self.keeper.saved.sha256, environment=describe(self._device))
        until = time.monotonic() + self._settings.replay_s
        self._replay = Replay(self._settings.working, record, until)
        self._proof, self._tracer, self._replaying = None, Tracer(), time.monotonic()

    def _end_replay(self, replay: Replay, at: int | None) -> NoReturn:
        steps = replay.finish(at, self.keeper.digests())
        if self.course is not None:
            self._report(self.course, ProgressState.LEFT)
        say(f"replayed {steps} steps, for the next leg to compare")
        self._go()

    def _go(self) -> NoReturn:
        self._left = self._stop.exit_code
        raise SystemExit(self._left)

    # The proof that the resume was exact

    def _begin_proof(self, restored: Checkpoint) -> Proof:
        record = Record.read(output_of(restored), restored.sha256) or Record(restored.sha256)
        bitwise = self._device.type != "cuda" or self._settings.deterministic
        return Proof(record, describe(self._device), bitwise=bitwise, changed=self.keeper.changed)

    def _trace_resume(self) -> None:
        if self._proof is not None:
            self._tracer = Tracer()

    def _compare(self, course: Course, at: int | None) -> None:
        """Compare the state, once the steps are; say how it came out.

        Raises:
            KgoError: It came out otherwise, and training must not go on then.
        """
        proof = self._proof
        if proof is None:
            return
        if self._tracer is not None and proof.due(course.step, at):
            proof.state(self.keeper.digests())
        self._resume = proof.result
        if not proof.over:
            return
        self._proof = self._tracer = None
        if not self._resume.mismatch:
            if not self._resume.recorded:
                return  # the loaded state is the saved one; more isn't known
            how = "bitwise" if self._resume.bitwise else f"within {TOLERANCE:.0%}"
            say(f"resume verified {self._resume.agreed}/{self._resume.recorded} {how}")
        elif not self._settings.stop_on_mismatch:
            say(f"this leg doesn't go on exactly: {self._resume.mismatch}")
        else:
            self._resume = replace(self._resume, stopped=True)
            raise KgoError(
                f"this leg doesn't go on exactly: {self._resume.mismatch}",
                hint='checkpoint.on_mismatch = "warn" goes on regardless.',
            )

    def _stay_left(self) -> None:
        """Training code that swallows SystemExit must not train on behind the last checkpoint."""
        if self._left is not None:
            raise SystemExit(self._left)

    def _report(self, course: Course, state: ProgressState) -> None:
        now = time.monotonic()
        loss = None if self._loss is None else number("loss", self._loss)
        step = course.step
        if self._replay is not None:  # these steps count for nothing
            state, step = ProgressState.LEFT, self.keeper.saved_step or 0
            self._buckets["replay"] = now - self._replaying
        else:
            self._buckets["data"] = self._waited_s() - self._waited_before
        others = sum(self._buckets[name] for name in ("data", "save", "replay"))
        self._buckets["train"] = now - self._pace.started - others
        self._reporter.write(
            Progress(
                state=state,
                step=step,
                target_step=course.target_step() or self._likely_target(course),
                epoch=course.current_epoch,
                saved_step=self.keeper.saved_step,
                save_s=self._pace.slowest_save_s,
                step_s=self._pace.slowest_step_s,
                loss=loss if loss is not None and math.isfinite(loss) else None,
                buckets=dict(self._buckets),
                environment=describe(self._device),
                resume=self._resume,
                untracked=self._untracked,
            ),
            now,
        )

    def _waited_s(self) -> float:
        return sum(loader.waited_s for loader in self.keeper.loaders)

    def _likely_target(self, course: Course) -> int | None:
        """In the first epoch: a step for each batch, as long as the counts agree."""
        for loader in self.keeper.loaders:
            if loader.batches is not None and loader.open_pass is not None and loader.position == course.step:
                return loader.batches * course.total
        return None
