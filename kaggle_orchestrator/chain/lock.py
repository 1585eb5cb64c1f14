"""One process steers a chain at a time: a file lock that goes with its process, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kaggle_orchestrator.errors import ChainLive, JournalError


@contextmanager
def steering(folder: Path, owner: str, slug: str) -> Iterator[None]:
    """Hold the chain's lock.

    Args:
        folder: The journal's folder.

    Raises:
        ChainLive: Another process holds it.
        JournalError: The folder can't be written.
    """
    path = folder / f"{owner}--{slug}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}.") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(fd, 20).decode(errors="replace").strip()
            raise ChainLive(
                f"Process {holder or 'another'} is steering {owner}/{slug} already.",
                hint="`kgo status` shows how far it is.",
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)  # which also releases the lock
