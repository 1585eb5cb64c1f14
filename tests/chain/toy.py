"""A training of a few bytes that keeps the protocol by itself: the user's script in these tests' sessions.

Its state is a chain of hashes over the steps, so one that was resumed wrongly never ends in the right one.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from kaggle_orchestrator.protocol import CHECKPOINTS, MANIFEST, Manifest, Progress, digest_tree
from kaggle_orchestrator.protocol.checkpoint import checkpoint_name, open_checkpoint
from kaggle_orchestrator.protocol.progress import STOP, ProgressState

CONTROL = Path(os.environ["KGO_CONTROL"])
PARAMS = json.loads(os.environ["KGO_PARAMS"])


def save(step: int, state: str) -> None:
    folder = Path(CHECKPOINTS, checkpoint_name(step))
    beside = folder.with_name(f"{folder.name}.tmp")
    beside.mkdir(parents=True)
    (beside / "state.txt").write_text(state)
    (beside / MANIFEST).write_text(Manifest(os.environ["KGO_TOKEN"], step, digest_tree(beside)).dumps())
    beside.rename(folder)


def report(state: ProgressState, step: int, saved: int | None) -> None:
    Progress(state, step, target_step=PARAMS["steps"], saved_step=saved, buckets={"train": 0.1}).write(CONTROL)


def main() -> None:
    step, state, saved = 0, "", None
    if resume := os.environ.get("KGO_RESUME"):
        checkpoint = open_checkpoint(Path(resume))
        step, state = checkpoint.step, (checkpoint.folder / "state.txt").read_text()
    report(ProgressState.RUNNING, step, saved)
    while step < PARAMS["steps"]:
        time.sleep(PARAMS["step_s"])
        if step == PARAMS.get("fail_at"):
            raise ValueError(f"bad batch at step {step}")
        step += 1
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
        leave = (CONTROL / STOP).exists() or step == PARAMS["steps"]
        if (leave or step % 10 == 0) and not PARAMS.get("never_saves"):
            save(step, state)
            saved = step
        report(ProgressState.RUNNING, step, saved)
        if leave and step < PARAMS["steps"]:
            report(ProgressState.LEFT, step, saved)
            sys.exit(0)
    Path("final").mkdir()
    Path("final/state.txt").write_text(state)
    report(ProgressState.DONE, step, saved)


if __name__ == "__main__":
    main()
