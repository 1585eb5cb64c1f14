"""Writing states to a disk that may be full: whatever torch makes of that, it is told from other failures."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from kaggle_orchestrator.protocol import KgoError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DiskFull(KgoError):
    """There is no room for a checkpoint; those that exist are untouched."""


def save_state(state: Any, path: Path) -> None:
    """``torch.save``, made durable.

    Through a file of our own: torch's own writer would report a full disk without its errno, and keep the file open,
    and so its space taken, as long as the exception lives.

    Raises:
        OSError, RuntimeError: It can't be written.
    """
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def write_error(folder: Path, size: int, error: OSError | RuntimeError, steps: list[int]) -> KgoError:
    """What a failed write of ``size`` bytes means; ``steps`` are those of the checkpoints that stay."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return disk_full(folder, size, shutil.disk_usage(folder).free, steps)
        cause = cause.__cause__ or cause.__context__  # torch raises a RuntimeError while it handles the OSError
    return KgoError(f"{folder}: can't be written: {error}")


def disk_full(folder: Path, need: int, free: int, steps: list[int]) -> DiskFull:
    """The error for a disk without room for ``need`` bytes."""
    kept = f"The checkpoint of step {steps[0]} is untouched. " if steps else ""
    return DiskFull(
        f"disk full: {need / 1e6:.1f} MB are needed in {folder}, {free / 1e6:.1f} MB are free",
        hint=f"{kept}Write less into the working folder, or keep fewer checkpoints.",
    )
