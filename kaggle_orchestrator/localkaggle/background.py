"""A local Kaggle in the background: found, started when needed, stopped with all that it runs.

However many ask at once, there is one server a folder; and none of its descriptors are the caller's, so a caller that
waits for its own output to end never waits for the server.
"""

import os
import signal
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path

from kaggle_orchestrator.errors import LocalKaggleError
from kaggle_orchestrator.localkaggle import admin, spawn
from kaggle_orchestrator.localkaggle.address import LocalServer, lock_path, log_path, read_record, remove_record
from kaggle_orchestrator.localkaggle.sessions import end_sessions
from kaggle_orchestrator.localkaggle.spec import SessionFolder, is_locked

_START_S = 30.0
_STOP_S = 15.0
IDLE_S = 60.0


def root_of(home: Path) -> Path:
    """The world's folder below kgo's home."""
    return home.absolute() / "local-kaggle"


def running(home: Path) -> LocalServer | None:
    """The server of this home, if one runs and answers."""
    return _running(root_of(home))


def _running(root: Path) -> LocalServer | None:
    record = read_record(root)
    if record is None or not is_locked(lock_path(root)):
        return None
    try:
        answer = admin.health(record.url)
    except LocalKaggleError:
        return None
    return LocalServer(record.url, record.pid, root) if answer.get("nonce") == record.nonce else None


def ensure(home: Path, *, idle_s: float = IDLE_S) -> LocalServer:
    """The server of this home, started if none runs.

    Args:
        home: kgo's home; the world lies in ``local-kaggle`` below it.
        idle_s: A server that is started here ends so long after its last session and request.

    Raises:
        LocalKaggleError: It doesn't start; the message holds the end of its log.
    """
    root = root_of(home)
    found = _running(root)
    if found:
        return found
    root.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds sources and the key of signed URLs
    with spawn.locked(root / "start.lock"):
        return _answering(root) or _start(root, idle_s)


def _answering(root: Path) -> LocalServer | None:
    """The server of this folder, once it answers; None once there is none. One may be starting, or on its way out."""
    until = time.monotonic() + _START_S
    while not (found := _running(root)) and is_locked(lock_path(root)) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def _start(root: Path, idle_s: float) -> LocalServer:
    module, log = "kaggle_orchestrator.localkaggle", log_path(root)
    server = spawn.start_module(module, [str(root), repr(idle_s)], log)
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        found = _running(root)
        if found:
            # It outlives this process as a rule; where it doesn't, it's not left a zombie.
            threading.Thread(target=server.wait, name="reap the local Kaggle", daemon=True).start()
            return found
        if server.poll() is not None:
            break
        time.sleep(0.02)
    else:
        server.kill()
        server.wait()
    said = log.read_text(encoding="utf-8", errors="replace").strip()
    if not said:  # on a full disk it can't even say so
        said = f"it said nothing (exit code {server.returncode}); is there room in {root}?"
    raise LocalKaggleError(f"The local Kaggle did not start:\n{said[-2000:]}", hint=f"Its log: {log}")


def stop(home: Path) -> bool:
    """End the server of this home and all its sessions; whether there was one.

    Raises:
        LocalKaggleError: A session can't be ended.
    """
    root = root_of(home)
    with spawn.locked(root / "start.lock") if root.exists() else nullcontext():
        found = is_locked(lock_path(root))
        if found:
            _stop_server(root)
        remove_record(root)
        folders = [SessionFolder(path) for path in (root / "sessions").glob("*")]  # of a server that was killed
        if not end_sessions(folders, _STOP_S):
            raise LocalKaggleError(f"A session below {root} does not end.")
        return found


def _stop_server(root: Path) -> None:
    """Ask, then SIGTERM, then SIGKILL. The lock tells that the recorded process is the server and not a later one."""
    record = read_record(root)
    if record is not None:
        with suppress(LocalKaggleError):
            admin.stop(record.url)
    if _gone(root, _STOP_S):  # without a record it is on its way out already
        return
    record = record or read_record(root)  # or it was only starting
    if record is not None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(record.pid, number)
            if _gone(root, 3.0):
                return
    raise LocalKaggleError(f"The local Kaggle of {root} does not end.")


def _gone(root: Path, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while is_locked(lock_path(root)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
