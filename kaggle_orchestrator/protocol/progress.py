"""What training tells its supervisor, through one small file that is replaced atomically.

The file's modification is the heartbeat.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kaggle_orchestrator.protocol.jsonable import from_jsonable, to_jsonable

PROGRESS = "progress.json"
"""Name of the file in the control folder."""
STOP = "stop"
"""Name of the file in the control folder whose existence asks training to save and leave."""
SAVING = "saving"
"""Name of the file in the control folder that exists while a checkpoint is being written."""


class ProgressState(StrEnum):
    """Where the training code is."""

    RUNNING = "running"
    LEFT = "left"
    """It saved its last checkpoint because it was asked to leave, or because of the deadline; it leaves, or replays."""
    DONE = "done"
    """All epochs or steps were trained and the code after them ended without an error."""


@dataclass(frozen=True, slots=True)
class ResumeCheck:
    """How a leg's first steps compare with the same steps, as the leg before trained them behind its last save.

    Attributes:
        agreed: Steps that agreed.
        recorded: Steps that the leg before recorded; 0 if it was ended first: only the loaded state is compared then.
        bitwise: Whether numbers were compared bit for bit; on a GPU that isn't deterministic they can't be.
        complete: Whether all were compared, and the state behind the last.
        mismatch: What differs, first at which step, and the likely cause; empty if nothing does.
        stopped: Whether training refused to go on for it.
    """

    agreed: int
    recorded: int
    bitwise: bool = True
    complete: bool = False
    mismatch: str = ""
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """A report of the training process.

    Attributes:
        state: See above.
        step: Global steps done.
        target_step: Steps at which training is done, if known.
        epoch: Current epoch from 0, if there are epochs.
        saved_step: Step of the newest checkpoint, or None.
        save_s: Seconds that the slowest save took, 0 if none.
        step_s: Seconds of the slowest recent step, evaluation and data wait included.
        loss: The last loss, if it was given.
        buckets: Seconds by kind so far: ``restore``, ``data`` (waiting for batches), ``train``,
            ``save``, ``replay``.
        environment: Library versions, threads, CPU capability, device.
        resume: How the resume compares with the leg before; None where there is nothing to compare.
        untracked: Objects that training changes and no checkpoint holds.
    """

    state: ProgressState
    step: int
    target_step: int | None = None
    epoch: int | None = None
    saved_step: int | None = None
    save_s: float = 0.0
    step_s: float = 0.0
    loss: float | None = None
    buckets: dict[str, float] | None = None
    environment: dict[str, str | int] | None = None
    resume: ResumeCheck | None = None
    untracked: tuple[str, ...] = ()

    def write(self, control: Path) -> None:
        """Replace the report in the control folder. Not synced: it only has to outlive the process."""
        beside = control / f"{PROGRESS}.tmp"
        beside.write_text(json.dumps(to_jsonable(self)), encoding="utf-8")
        beside.replace(control / PROGRESS)

    @classmethod
    def read(cls, control: Path) -> "Progress | None":
        """The last report, or None if there is none yet."""
        try:
            return from_jsonable(cls, json.loads((control / PROGRESS).read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            return None
