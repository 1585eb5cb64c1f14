"""Keeps a training: gathers its whole state into a checkpoint, and puts a checkpoint's state back into it.

What is saved: tracked objects, random numbers, loader positions, counters, the best value, the length of the metrics
file. What never is: the deadline, which belongs to a leg.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kaggle_orchestrator.protocol import CHECKPOINTS, METRICS, Checkpoint, CheckpointError, KgoError, open_checkpoint
from kaggle_orchestrator.runtime.training import rng
from kaggle_orchestrator.runtime.training.best import Best, Record
from kaggle_orchestrator.runtime.training.checkpoints import Checkpoints, Snapshot, load_document, load_state
from kaggle_orchestrator.runtime.training.course import Course
from kaggle_orchestrator.runtime.training.digest import state_digest
from kaggle_orchestrator.runtime.training.environment import describe, enforce_threads, name_differences
from kaggle_orchestrator.runtime.training.loader import Loader
from kaggle_orchestrator.runtime.training.metrics import Metrics
from kaggle_orchestrator.runtime.training.say import say
from kaggle_orchestrator.runtime.training.settings import Settings
from kaggle_orchestrator.runtime.training.tracking import Tracked

BEST = "best"


class Keeper:
    """Owns the checkpoints, the metrics and ``best/`` of a training.

    Attributes:
        tracked: The tracked objects.
        loaders: The loaders, in the order of their making.
        best: The best value and its weights.
        metrics: The metrics file.
        restored: The checkpoint that this process goes on from, or None.
        changed: Objects whose state after loading wasn't the saved one.
        saved: The newest checkpoint that this process wrote, or None.
        saved_step: Step of the newest checkpoint, or None.
    """

    def __init__(self, settings: Settings, seed: int, device: torch.device) -> None:
        self._settings = settings
        self._seed = seed
        self._device = device
        self._store = Checkpoints(settings.working / CHECKPOINTS, settings.keep)
        self._document: dict[str, Any] = {}
        self.tracked = Tracked()
        self.loaders: list[Loader] = []
        self.best = Best(settings.working / BEST)
        self.metrics = Metrics(settings.working / METRICS)
        self.restored: Checkpoint | None = None
        self.changed: list[str] = []
        self.saved: Checkpoint | None = None
        self.saved_step: int | None = None

    def find(self) -> None:
        """Find the checkpoint to go on from, check it, and compute with as many threads as it was made with.

        In a session it is the one that the supervisor names; on a laptop the newest whole one in ``checkpoints``.

        Raises:
            KgoError: It is damaged, or belongs to another training.
        """
        self._store.claim(shared=self._settings.control is None)
        if self._settings.resume is not None:
            try:
                self.restored = open_checkpoint(self._settings.resume)
                self.restored.verify()
            except CheckpointError as error:
                raise KgoError(f"the checkpoint to go on from can't be used: {error.message}") from error
        elif self._settings.control is None:
            self.restored = self._store.newest()
        if self.restored is None:
            return
        self._document = load_document(self.restored)
        seed = self._document.get("seed")
        if seed != self._seed:
            raise KgoError(
                f"kgo.start(seed={self._seed}), but the checkpoint was trained with seed={seed}",
                hint=f"Use seed={seed} to go on, or move {self.restored.folder} away to start from the beginning.",
            )
        enforce_threads(self.restored.manifest.environment)

    def restore(self, course: Course) -> "Arrival | None":
        """Put the checkpoint's state back, and its counters into ``course``; None if there is no checkpoint.

        Raises:
            KgoError: The training isn't the one that was saved.
        """
        if self.restored is None:
            self.metrics.open(None, lines=0, step=0)
            return None
        document = self._document
        if document["loop"] != course.loop:
            raise KgoError(
                f"this training loops over run.{course.loop}(), the checkpoint's over run.{document['loop']}()",
                hint=f"Is it another training's? To start from the beginning, move {self._store.folder} away.",
            )
        self._check_loaders(document["loaders"], mid_body=document["at"] is not None)
        self.tracked.check_names(tuple(document["objects"]))
        environment = self.restored.manifest.environment
        enforce_threads(environment)
        name_differences(environment, describe(self._device))
        for name in document["objects"]:
            self.tracked.load(name, load_state(self.restored, name))
            if state_digest(self.tracked.state(name), name) != self.restored.manifest.digests.get(name):
                self.changed.append(name)
        for loader, state in zip(self.loaders, document["loaders"], strict=True):
            loader.restore(state, mid_body=document["at"] is not None)
        course.step, course.epoch = document["step"], document["epoch"]
        course.steps_per_epoch = document["steps_per_epoch"]
        self._restore_files(self.restored, document)
        if self._store.has(course.step):
            self.saved_step = course.step
        random = load_state(self.restored, "rng")
        return Arrival(document["at"], random["now"], random.get("body"))

    def save(self, course: Course, at: int | None, body: Mapping[str, Any] | None) -> None:
        """Write a checkpoint of this moment.

        Args:
            course: The counters.
            at: Number of the loader in whose pass the training is; None between epochs or steps.
            body: Random state at the top of the current epoch's body, with ``at``.

        Raises:
            KgoError: It can't be written.
        """
        random = {"now": rng.capture()} | ({"body": dict(body)} if body is not None else {})
        names = self.tracked.names()
        positions, best = self._positions(), self._best()
        document = {
            "seed": self._seed,
            "loop": course.loop,
            "step": course.step,
            "epoch": course.epoch,
            "steps_per_epoch": course.steps_per_epoch,
            "at": at,
            "objects": names,
            "loaders": positions,
            "best": best,
            "metrics_lines": self.metrics.lines,
        }
        self.saved = self._store.write(
            Snapshot(
                step=course.step,
                epoch=course.current_epoch,
                states={**{name: self.tracked.state(name) for name in names}, "rng": random},
                document=document,
                token=self._settings.token,
                parent=None if self.restored is None else self.restored.sha256,
                digests={"loader": state_digest(positions, "loader"), "best": state_digest(best, "best")},
                environment=describe(self._device),
            )
        )
        self.saved_step = course.step

    def digests(self) -> dict[str, str]:
        """Digests of the whole state at this moment, by name."""
        states = {name: self.tracked.state(name) for name in self.tracked.names()}
        states |= {"rng": rng.capture(), "loader": self._positions(), "best": self._best()}
        return {name: state_digest(state, name) for name, state in states.items()}

    def _positions(self) -> list[dict[str, Any]]:
        return [loader.state() for loader in self.loaders]

    def _best(self) -> dict[str, Any] | None:
        return None if self.best.record is None else asdict(self.best.record)

    def has_checkpoint(self, step: int) -> bool:
        """Whether this output holds a checkpoint of that step."""
        return self._store.has(step)

    def close(self) -> None:
        """Let go of files, workers and the folder."""
        for loader in self.loaders:
            loader.close()
        self.metrics.close()
        self._store.release()

    def _restore_files(self, checkpoint: Checkpoint, document: Mapping[str, Any]) -> None:
        """Carry metrics and best weights over from the output that the checkpoint lies in."""
        output = output_of(checkpoint)
        if not self.metrics.open(output / METRICS, lines=document["metrics_lines"], step=document["step"]):
            say(f"{output / METRICS} doesn't hold all metrics up to step {document['step']}")
        best = None if document["best"] is None else Record(**document["best"])
        if not self.best.resume(output, best):
            say(f"{output / BEST} doesn't hold the best weights so far: the next value counts as the best")

    def _check_loaders(self, stored: list[dict[str, Any]], *, mid_body: bool) -> None:
        if len(stored) != len(self.loaders):
            raise KgoError(
                f"{len(self.loaders)} loaders are made here, {len(stored)} were in the checkpoint",
                hint=f"Is it another training's? To start from the beginning, move {self._store.folder} away.",
            )
        for number, (loader, state) in enumerate(zip(self.loaders, stored, strict=True)):
            here, there = (
                _shape(loader.batches, loader.stream_workers),
                _shape(state["batches"], state["stream_workers"]),
            )
            if here == there:
                continue
            change = f"loader {number} has {here}, it had {there}"
            if mid_body or state["open"]:
                raise KgoError(
                    f"{change}, and the checkpoint is in the midst of a pass",
                    hint="Go on with the same data, batch size and, of a stream, workers; or from a checkpoint between "
                    "two epochs.",
                )
            say(f"{change}: the training won't be exact")


def _shape(batches: int | None, stream_workers: int | None) -> str:
    return f"a stream of {stream_workers} workers" if batches is None else f"{batches} batches a pass"


def output_of(checkpoint: Checkpoint) -> Path:
    """The output that a checkpoint lies in."""
    return checkpoint.folder.parent.parent


class Arrival:
    """The way back to the position of a checkpoint, which may lie behind code that has to run again.

    Attributes:
        at: Number of the loader in whose pass the position is, or None.
        now: Random state at the position.
        body: Random state at the top of the epoch's body, with ``at``.
    """

    def __init__(self, at: int | None, now: Mapping[str, Any], body: Mapping[str, Any] | None) -> None:
        self.at = at
        self.now = dict(now)
        self.body = None if body is None else dict(body)
