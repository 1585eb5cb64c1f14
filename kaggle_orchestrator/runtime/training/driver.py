"""Drives the loop of a training: restores before it, and saves and leaves between its bodies, never within one.

A body is what the loop does for one batch, step or epoch. When the loop asks for the next one, all the code behind
``run.step`` has run too, and whatever it changed is in the checkpoint.
"""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import torch

from kaggle_orchestrator.protocol import KgoError, Progress, ProgressState
from kaggle_orchestrator.runtime.training import rng
from kaggle_orchestrator.runtime.training.course import Course, Loop
from kaggle_orchestrator.runtime.training.environment import describe
from kaggle_orchestrator.runtime.training.keeper import Arrival, Keeper
from kaggle_orchestrator.runtime.training.loader import Loader
from kaggle_orchestrator.runtime.training.metrics import number
from kaggle_orchestrator.runtime.training.pace import Pace
from kaggle_orchestrator.runtime.training.report import Reporter
from kaggle_orchestrator.runtime.training.say import say
from kaggle_orchestrator.runtime.training.settings import Settings
from kaggle_orchestrator.runtime.training.stopping import StopRequests

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
        self._buckets = {"restore": 0.0, "save": 0.0, "train": 0.0}
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
            if self._left is not None:
                return
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
        if left:
            self._safe_point(course, at)
        elif self._pace.leave_due(time.monotonic(), time.time()):
            # Nothing is left but what follows the pass: evaluation, say. Saved here, the next leg would come to that
            # through an empty pass, which not every training expects; so only if there is no time for it.
            self._leave(course, at, "the deadline is near")

    def arrived(self, loader: Loader) -> None:
        """The code up to the checkpoint's position has run again; from here on random numbers go on too."""
        arrival = self._arrival
        if arrival is None or arrival.at is None or self.keeper.loaders[arrival.at] is not loader:
            return
        for each in self.keeper.loaders:
            each.catch_up()
        rng.restore(arrival.now)
        self._arrival = None

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
        self.course, self._first_step = course, course.step
        now = time.monotonic()
        self._buckets["restore"] = now - began
        self._pace = Pace(self._settings.save_every_s, self._settings.deadline, now)
        self._stop.install()
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
        if not course.complete:
            self._safe_point(course, None)
        elif not self.keeper.has_checkpoint(course.step):
            self._save(course, None)

    # Saving and leaving

    def _safe_point(self, course: Course, at: int | None) -> None:
        now = time.monotonic()
        self._pace.reached_point(now)
        if asked := self._stop.asked():
            self._leave(course, at, asked)
        steps = course.step - self._first_step
        if steps and self._pace.leave_due(now, time.time()):  # a leg that gains nothing would only be repeated
            self._leave(course, at, "the deadline is near")
        if self._pace.save_due(now, steps):
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
        now = time.monotonic()
        self._pace.saved(now, now - began)
        self._buckets["save"] += now - began
        if now - self._said_save >= _SAY_SAVES_EVERY_S:
            self._said_save = now
            say(f"saved step {course.step} in {now - began:.2f} s")
        self._report(course, ProgressState.RUNNING)

    def _leave(self, course: Course, at: int | None, why: str) -> NoReturn:
        self._save(course, at)
        self._left = self._stop.exit_code
        self._report(course, ProgressState.LEFT)
        say(f"leaving at step {course.step} ({why}); its checkpoint is saved")
        raise SystemExit(self._left)

    def _stay_left(self) -> None:
        """Training code that swallows SystemExit must not train on behind the last checkpoint."""
        if self._left is not None:
            raise SystemExit(self._left)

    def _report(self, course: Course, state: ProgressState) -> None:
        now = time.monotonic()
        loss = None if self._loss is None else number("loss", self._loss)
        self._buckets["train"] = now - self._pace.started - self._buckets["save"]
        self._reporter.write(
            Progress(
                state=state,
                step=course.step,
                target_step=course.target_step() or self._likely_target(course),
                epoch=course.current_epoch,
                saved_step=self.keeper.saved_step,
                save_s=self._pace.slowest_save_s,
                step_s=self._pace.slowest_step_s,
                loss=loss if loss is not None and math.isfinite(loss) else None,
                buckets=dict(self._buckets),
                environment=describe(self._device),
            ),
            now,
        )

    def _likely_target(self, course: Course) -> int | None:
        """In the first epoch: a step for each batch, as long as the counts agree."""
        for loader in self.keeper.loaders:
            if loader.open_pass is not None and loader.position == course.step:
                return len(loader) * course.total
        return None
