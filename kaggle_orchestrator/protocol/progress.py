"""What training tells its supervisor, through one small file that is replaced atomically.

The file's modification is the heartbeat.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable, to_jsonable

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
    """It saved and left because it was asked to, or because of the deadline."""
    DONE = "done"
    """All epochs or steps were trained and the code after them ended without an error."""


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
        buckets: Seconds by kind so far: ``restore``, ``save``, ``train``.
        environment: Library versions, threads, CPU capability, device.
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
        except (OSError, json.JSONDecodeError, Malformed):
            return None
