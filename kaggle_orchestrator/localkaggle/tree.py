"""A process's descendants, where there is no PID namespace to end them all at once.

On Linux orphans come back to the caller (child subreaper), so that nothing it started can hide by forking twice.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """SIGKILL all descendants of this process until none is left (5 seconds at most), and reap them."""
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        _reap()
        alive = _descendants(os.getpid())
        if not alive:
            return
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.005)


def terminate_descendants() -> None:
    """SIGTERM to all descendants but the first process of a session, which answers for the others."""
    for pid in _descendants(os.getpid())[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def resident_bytes() -> int:
    """Memory that all descendants have in use; shared pages count with each. 0 where the system doesn't tell."""
    total = 0
    for pid in _descendants(os.getpid()):
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return total


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _processes() -> list[tuple[int, int]]:
    """Each process but zombies, with its parent."""
    if sys.platform != "linux":
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        return [(int(r[0]), int(r[1])) for r in rows if not r[2].startswith("Z")]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:  # it has ended since
                continue
            if fields[0] != "Z":
                found.append((int(entry.name), int(fields[1])))
    return found
