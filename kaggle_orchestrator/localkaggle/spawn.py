"""Starts the processes of the local Kaggle: each in its own session, without the caller's descriptors or secrets."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kaggle_orchestrator.localkaggle.spec import SessionFolder

DRIVER_VARIABLES = (
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)
"""Where the GPU's driver lies: all that a session gets of the caller's environment."""


def start_module(
    module: str, arguments: Sequence[str], output: Path, *, keep: Sequence[int] = (), **extra: str
) -> "subprocess.Popen[bytes]":
    """Start ``python -m module`` detached, with its output in a file.

    Args:
        module: One of this package's.
        arguments: Its arguments.
        output: Where stdout and stderr go; made anew.
        keep: Descriptors that it inherits.
        extra: Variables besides the few that are passed on.

    Raises:
        OSError: It can't be started.
    """
    names = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", *DRIVER_VARIABLES)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    package = str(Path(__file__).resolve().parents[2])  # found from anywhere, however this process found it
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH", "")) if p)
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd="/",
            env=environment | extra,
            pass_fds=keep,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )


def start_keeper(folder: SessionFolder) -> "subprocess.Popen[bytes]":
    """Start the keeper of a session whose spec is written. From the first moment on the session's lock is held.

    Raises:
        OSError: It can't be started.
    """
    with locked(folder.lock) as lock:  # handed on with the descriptor, and held until the keeper ends
        arguments = [str(folder.path), str(lock)]
        return start_module("kaggle_orchestrator.localkaggle.keeper", arguments, folder.keeper_log, keep=[lock])


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold a lock file; its descriptor."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)
