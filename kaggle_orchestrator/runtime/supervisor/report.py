"""What the session says of itself: ``kgo/leg.json`` and the last line of the log.

A result is written atomically, and only its last writing is final. A full disk can cost the file, never the line.
"""

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaggle_orchestrator.protocol import (
    LEG_RESULT,
    Checkpoint,
    FileDigest,
    LegResult,
    Outcome,
    Parent,
    Plan,
    Progress,
    write_atomic,
)
from kaggle_orchestrator.protocol.files import is_disk_full
from kaggle_orchestrator.protocol.result import CheckpointRef, ResultState
from kaggle_orchestrator.runtime.supervisor.log import Log


def machine() -> dict[str, Any]:
    """The facts about the machine that need no library."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu_count": os.cpu_count() or 1,
    }
    image = os.environ.get("BUILD_DATE") or os.environ.get("GIT_COMMIT")
    if image:
        facts["image"] = image
    return facts


@dataclass(slots=True)
class Report:
    """Gathers what the result holds.

    Attributes:
        plan: The attempt's plan.
        working: The working folder.
        started_at: Start of the session, seconds since the epoch.
        restored: The checkpoint that was restored, and where the parent says it lies.
    """

    plan: Plan
    working: Path
    started_at: float
    log: Log
    now: Callable[[], float] = time.time
    restored: Checkpoint | None = None
    environment: dict[str, Any] = field(default_factory=machine)
    buckets: dict[str, float] = field(default_factory=dict)

    @property
    def step_start(self) -> int:
        """Step of the restored checkpoint, 0 without one."""
        return self.restored.step if self.restored else 0

    def make_way(self) -> None:
        """Move aside what training left where the result goes; to be called once training has ended."""
        result = self.working / LEG_RESULT
        ours = result.parent
        try:
            if ours.is_symlink() or (ours.exists() and not ours.is_dir()):
                self._move_aside(ours, f"{ours.name}-moved-aside")
            if result.is_dir() and not result.is_symlink():
                self._move_aside(result, f"{result.name}.moved-aside")
        except OSError as error:
            self.log.say(f"what is in the way of {LEG_RESULT} can't be moved: {error.strerror or error}")

    def _move_aside(self, path: Path, name: str) -> None:
        target, number = path.with_name(name), 1
        while target.exists() or target.is_symlink():
            number += 1
            target = path.with_name(f"{name}-{number}")
        path.rename(target)
        was, now = (p.relative_to(self.working).as_posix() for p in (path, target))
        self.log.say(f"{was} is kgo's: what training left there was moved aside to {now}")

    def running(self, checkpoint: Checkpoint | None = None, progress: Progress | None = None) -> None:
        """Write that the attempt is under way; a disk that is full is training's trouble first, so it's only said."""
        result = self._result(ResultState.RUNNING, checkpoint, progress)
        try:
            write_atomic(self.working / LEG_RESULT, result.dumps().encode())
        except OSError as error:
            self.log.say(f"{LEG_RESULT} can't be written: {error.strerror or error}")

    def final(
        self,
        outcome: Outcome,
        reason: str,
        message: str,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | None = None,
        outputs: Callable[[], Mapping[str, FileDigest]] = dict,
        make_room: Callable[[], bool] = lambda: False,
    ) -> LegResult:
        """Write the result and print it as the last line.

        Args:
            outcome, reason, message: The verdict.
            checkpoint: The newest verified one.
            progress: The training's last report.
            outputs: Digests of the outputs, asked again after ``make_room``.
            make_room: Frees disk; False if it can't.
        """
        self.buckets = {k: round(v, 3) for k, v in self.buckets.items()}

        def build() -> LegResult:
            return self._result(
                ResultState.FINAL,
                checkpoint,
                progress,
                outcome=outcome,
                reason=reason,
                message=message,
                outputs=outputs(),
                ended_at=self.now(),
            )

        self.make_way()
        result = build()
        try:
            try:
                self._write(result)
            except OSError as error:
                if not is_disk_full(error) or not make_room():
                    raise
                result = build()
                self._write(result)
                self.log.say("the disk is full: older checkpoints made room for the result")
        except OSError as error:
            self.log.say(f"{LEG_RESULT} can't be written ({error.strerror or error}); the line below is the result")
        self.log.result(result.log_line())
        return result

    def _write(self, result: LegResult) -> None:
        path, data = self.working / LEG_RESULT, result.dumps().encode()
        try:
            write_atomic(path, data)
        except OSError as error:
            if not is_disk_full(error):
                raise
            path.unlink(missing_ok=True)  # the running trace gives its block to the result
            write_atomic(path, data)

    def _result(
        self, state: ResultState, checkpoint: Checkpoint | None, progress: Progress | None, **more: Any
    ) -> LegResult:
        header = self.plan.header
        environment = self.environment | (dict(progress.environment or {}) if progress else {})
        return LegResult(
            chain=header.chain,
            leg=header.leg,
            attempt=header.attempt,
            token=header.token,
            state=state,
            step_start=self.step_start,
            step_end=checkpoint.step if checkpoint else self.step_start,
            started_at=self.started_at,
            target_step=progress.target_step if progress else None,
            epoch=self._epoch(checkpoint, progress),
            checkpoint=self._ref(checkpoint),
            resumed_from=self._restored_ref(header.parent),
            environment=environment,
            buckets=dict(self.buckets),
            resume=progress.resume if progress else None,
            untracked=progress.untracked if progress else (),
            lineage=self.plan.lineage,
            **more,
        )

    def _epoch(self, checkpoint: Checkpoint | None, progress: Progress | None) -> int | None:
        if checkpoint is not None and checkpoint.manifest.epoch is not None:
            return checkpoint.manifest.epoch
        if checkpoint is None and self.restored is not None:
            return self.restored.manifest.epoch
        return progress.epoch if progress else None

    def _ref(self, checkpoint: Checkpoint | None) -> CheckpointRef | None:
        if checkpoint is None:
            return None
        path = checkpoint.folder.relative_to(self.working).as_posix()
        return CheckpointRef(path, checkpoint.step, checkpoint.sha256, checkpoint.manifest.token)

    def _restored_ref(self, parent: Parent | None) -> CheckpointRef | None:
        """Its path is below the parent's output, as the parent's own result names it."""
        if self.restored is None or parent is None:
            return None
        folder = self.restored.folder
        path = f"{folder.parent.name}/{folder.name}"
        return CheckpointRef(path, self.restored.step, self.restored.sha256, self.restored.manifest.token)
