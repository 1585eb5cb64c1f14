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
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    group: int


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """SIGKILL all descendants of this process until none is left (5 seconds at most), and reap them.

    By their groups, as far as they have others than this process: a group is hit as a whole, so that none of it gets
    away by forking, however fast.
    """
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        found = _descendants(os.getpid())
        for group in {process.group for process in found} - {os.getpgrp()}:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        for process in found:
            if process.group == os.getpgrp():
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
        if not _reap():
            return


def terminate_descendants() -> None:
    """SIGTERM to all descendants but the first process of a session, which answers for the others."""
    for process in _descendants(os.getpid())[1:]:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)


def resident_bytes() -> int:
    """Memory that all descendants have in use; shared pages count with each. 0 where the system doesn't tell."""
    total = 0
    for process in _descendants(os.getpid()):
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE
    return total


def _reap() -> bool:
    """Reap the children that have ended; whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants(root: int) -> list[_Process]:
    children: dict[int, list[_Process]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
    found, todo = list[_Process](), [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return found


def _processes() -> list[_Process]:
    """Each process but zombies."""
    if sys.platform != "linux":
        command = ["ps", "-axo", "pid=,ppid=,pgid=,stat="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        return [_Process(int(r[0]), int(r[1]), int(r[2])) for r in rows if not r[3].startswith("Z")]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:  # it has ended since
                continue
            if fields[0] != "Z":
                found.append(_Process(int(entry.name), int(fields[1]), int(fields[2])))
    return found
