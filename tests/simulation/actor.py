"""A session of kgo's supervisor with a training of a few bytes, without a process: its words and files, and when.

What it goes on from is found by the supervisor's own code, below an input folder that is linked from the mounts; the
training's state is a chain of hashes over the steps, so one that was resumed wrongly never ends in the right one.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kaggle_orchestrator.localkaggle.scripted import Line, Scene, Script, Write
from kaggle_orchestrator.protocol import (
    CHECKPOINTS,
    LEG_RESULT,
    MANIFEST,
    Checkpoint,
    FileDigest,
    LegResult,
    Manifest,
    Outcome,
    Plan,
)
from kaggle_orchestrator.protocol.checkpoint import checkpoint_name
from kaggle_orchestrator.protocol.jsonable import from_jsonable
from kaggle_orchestrator.protocol.result import CheckpointRef, ResultState
from kaggle_orchestrator.render import bundle_of
from kaggle_orchestrator.runtime.supervisor.preflight import check_sources
from kaggle_orchestrator.runtime.supervisor.restore import restore
from kaggle_orchestrator.runtime.supervisor.verdict import Unfit

START_S = 60.0
"""A session's imports."""
STATE = "state.txt"
FINAL = f"final/{STATE}"


def advance(state: str, step: int) -> str:
    """One step of the training."""
    return hashlib.sha256(f"{state}{step}".encode()).hexdigest()


def state_after(steps: int) -> str:
    """The state after an uninterrupted training."""
    state = ""
    for step in range(1, steps + 1):
        state = advance(state, step)
    return state


@dataclass(frozen=True, slots=True)
class Trainee:
    """Plays the sessions of experiments whose ``train.params`` has ``steps``.

    Attributes:
        step_s: Seconds that a step takes.
        save_steps: Steps between saves.
    """

    step_s: float = 60.0
    save_steps: int = 10

    def __call__(self, scene: Scene) -> Script:
        """The whole session, from its start to where it would end by itself."""
        plan = from_jsonable(Plan, json.loads(bundle_of(scene.source)["plan.json"].data))
        return _Attempt(plan, scene, self).play()


@dataclass(slots=True)
class _Attempt:
    plan: Plan
    scene: Scene
    pace: Trainee
    at_s: float = START_S
    writes: list[Write] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    outputs: dict[str, FileDigest] = field(default_factory=dict)
    restored: Checkpoint | None = None
    newest: CheckpointRef | None = None

    def play(self) -> Script:
        self.result(0.0)
        try:
            state = self.prepare()
        except Unfit as unfit:
            return self.end(unfit.outcome, unfit.reason)
        step, target = self.start_step, int(self.plan.params["steps"])
        leave_s = self.plan.leave_after_s
        while step < target:
            if leave_s is not None and self.at_s + self.pace.step_s > leave_s:
                if step > (self.newest.step if self.newest else self.start_step):
                    self.save(step, state)
                gained = self.newest is not None
                return self.end(Outcome.CONTINUE if gained else Outcome.NO_PROGRESS, "deadline")
            self.at_s += self.pace.step_s
            step += 1
            state = advance(state, step)
            if step % self.pace.save_steps == 0 or step == target:
                self.save(step, state)
        self.write(FINAL, state.encode())
        return self.end(Outcome.DONE, "target")

    @property
    def start_step(self) -> int:
        return self.restored.step if self.restored else 0

    def prepare(self) -> str:
        """What the supervisor sees to before training; the state to go on from."""
        if self.plan.accelerator and not self.scene.gpu:
            raise Unfit(Outcome.NO_GPU, "none", "There is no GPU.")
        parent = self.plan.header.parent
        with _input_of(self.scene) as root:
            own = parent.kernel.rpartition("/")[2] if parent else None
            check_sources([s for s in self.plan.sources if s != own], root)
            if parent is None:
                return ""
            self.restored = restore(parent, self.plan.lineage, root).checkpoint
            return (self.restored.folder / STATE).read_text(encoding="utf-8")

    def write(self, name: str, data: bytes) -> None:
        self.writes.append(Write(self.at_s, name, data))
        if name != LEG_RESULT:
            self.outputs[name] = FileDigest(hashlib.sha256(data).hexdigest(), len(data))

    def save(self, step: int, state: str) -> None:
        token, data = self.plan.header.token, state.encode()
        digest = FileDigest(hashlib.sha256(data).hexdigest(), len(data))
        manifest = Manifest(token, step, {STATE: digest}).dumps().encode()
        path = f"{CHECKPOINTS}/{checkpoint_name(step)}"
        self.write(f"{path}/{STATE}", data)
        self.write(f"{path}/{MANIFEST}", manifest)
        self.newest = CheckpointRef(path, step, hashlib.sha256(manifest).hexdigest(), token)
        self.result(self.at_s)

    def result(self, at_s: float, **final: Any) -> LegResult:
        header, start = self.plan.header, self.scene.started
        result = LegResult(
            chain=header.chain,
            leg=header.leg,
            attempt=header.attempt,
            token=header.token,
            state=ResultState.RUNNING,
            step_start=self.start_step,
            step_end=self.newest.step if self.newest else self.start_step,
            started_at=start,
            target_step=int(self.plan.params["steps"]),
            checkpoint=self.newest,
            lineage=self.plan.lineage,
        )
        if self.restored and header.parent:
            step, sha256, token = self.restored.step, self.restored.sha256, self.restored.manifest.token
            result = replace(result, resumed_from=CheckpointRef(self.restored.folder.name, step, sha256, token))
        result = replace(result, **final)
        self.writes.append(Write(at_s, LEG_RESULT, result.dumps().encode()))
        return result

    def end(self, outcome: Outcome, reason: str) -> Script:
        result = self.result(
            self.at_s,
            state=ResultState.FINAL,
            outcome=outcome,
            reason=reason,
            outputs=dict(self.outputs),
            ended_at=self.scene.started + self.at_s,
        )
        self.lines.append(Line(self.at_s, result.log_line() + "\n", "stdout"))
        gained = self.newest is not None and self.newest.step > self.start_step
        code = 0 if gained or outcome is Outcome.DONE else 1
        return Script(after_s=self.at_s, code=code, writes=tuple(self.writes), log=tuple(self.lines))


@contextmanager
def _input_of(scene: Scene) -> Iterator[Path]:
    """``/kaggle/input`` of a session, as links; gone when the block ends."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for mount in scene.mounts:
            place = root / mount.target
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(mount.source, target_is_directory=True)
        yield root
