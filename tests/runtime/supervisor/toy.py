"""A training of a few bytes that keeps the protocol by itself; it stands in for the library, and needs no torch.

Runs as the user's script of a session: ``train.py``'s behaviour is chosen by ``train.params``.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from kaggle_orchestrator.protocol import CHECKPOINTS, MANIFEST, Manifest, Progress, digest_tree
from kaggle_orchestrator.protocol.checkpoint import checkpoint_name, open_checkpoint
from kaggle_orchestrator.protocol.progress import SAVING, STOP, ProgressState

CONTROL = Path(os.environ["KGO_CONTROL"])
PARAMS = json.loads(os.environ["KGO_PARAMS"])
time.sleep(PARAMS.get("imports_s", 0.0))
BEGAN = time.monotonic()


def save(step: int, epoch: int | None = None, takes_s: float = 0.0, leaving: bool = False) -> None:
    """Commit ``checkpoints/step-…`` as the library does."""
    (CONTROL / SAVING).touch()
    folder = Path(CHECKPOINTS, checkpoint_name(step))
    beside = folder.with_name(f"{folder.name}.tmp")
    beside.mkdir(parents=True, exist_ok=True)
    (beside / "state.json").write_text(json.dumps({"step": step}) + "x" * int(PARAMS.get("bytes", 100)))
    time.sleep(takes_s)
    manifest = Manifest(os.environ["KGO_TOKEN"], step, digest_tree(beside), epoch=epoch)
    (beside / MANIFEST).write_text(manifest.dumps())
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    if leaving:
        report(ProgressState.LEFT, step, step)
    (CONTROL / SAVING).unlink()


def report(state: ProgressState, step: int, saved: int | None) -> None:
    """Tell the supervisor."""
    Progress(
        state,
        step,
        target_step=PARAMS["steps"],
        epoch=step // 10,
        saved_step=saved,
        loss=1 / (step + 1),
        buckets={"restore": 0.0, "save": 0.01, "train": time.monotonic() - BEGAN},
        environment={"threads": 1},
    ).write(CONTROL)


def leave_asked() -> bool:
    """Whether the supervisor asks."""
    return (CONTROL / STOP).exists()


def main() -> None:
    """Count to ``steps``, save every ``every``; misbehave as told."""
    if PARAMS.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if PARAMS.get("grandchild"):
        keeper = "import time, sys; print('grandchild is up', flush=True); time.sleep(600)"
        command = [sys.executable, "-c", keeper, str(Path.cwd())]
        middle = f"import subprocess; subprocess.Popen({command!r}, start_new_session=True)"
        subprocess.run([sys.executable, "-c", middle], check=True)
    resume = os.environ.get("KGO_RESUME")
    step = open_checkpoint(Path(resume)).step if resume else 0
    saved: int | None = None
    report(ProgressState.RUNNING, step, saved)
    while step < PARAMS["steps"]:
        step += 1
        time.sleep(PARAMS.get("step_s", 0.0))
        if step % PARAMS.get("every", 10) == 0:
            save(step, epoch=step // 10)
            saved = step
        report(ProgressState.RUNNING, step, saved)
        if step == PARAMS.get("hang_at"):
            time.sleep(600)
        if step == PARAMS.get("fail_at"):
            raise ValueError(f"bad batch at step {step}")
        if leave_asked() and not PARAMS.get("ignore_stop"):
            save(step, takes_s=PARAMS.get("leave_save_s", 0.0), leaving=True)
            print(f"leaving at step {step}", flush=True)
            sys.exit(0)
    save(step, epoch=step // 10)
    report(ProgressState.DONE, step, step)
    Path("final").mkdir(exist_ok=True)
    Path("final", "model.txt").write_text(f"trained {step} steps\n")


if __name__ == "__main__":
    main()
