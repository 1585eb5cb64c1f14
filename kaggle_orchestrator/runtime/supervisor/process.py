"""The training process and everything it started: one tree, which is gone for certain when it has been killed.

On Linux we are the subreaper of our descendants, so that a process that left its group and session, and whose parent
ended, is ours again and is found. Nothing outside that tree is ever signalled.
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One line of the process table; ``state`` as in ``/proc``: ``Z`` is dead, ``T`` stopped."""

    pid: int
    parent: int
    state: str
    cpu_s: float


def process_table() -> dict[int, ProcessInfo]:
    """All processes that can be seen, by pid; empty where ``/proc`` belongs to another PID namespace."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        return _table_of_ps()
    table: dict[int, ProcessInfo] = {}
    if (proc / "self").readlink() != Path(str(os.getpid())):
        return table
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                cpu = (int(fields[11]) + int(fields[12])) / _TICKS
                table[int(entry.name)] = ProcessInfo(int(entry.name), int(fields[1]), fields[0], cpu)
    return table


def _table_of_ps() -> dict[int, ProcessInfo]:
    """Where there is no ``/proc`` (macOS). CPU time isn't known there."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ps = ["ps", "-A", "-o", "pid=,ppid=,state="]
        out = subprocess.run(ps, capture_output=True, text=True, timeout=10, check=True).stdout
        rows = (line.split() for line in out.splitlines())
        return {int(r[0]): ProcessInfo(int(r[0]), int(r[1]), r[2][:1], 0.0) for r in rows if len(r) >= 3}
    return {}


def become_subreaper(on: bool = True) -> bool:
    """Adopt (or no longer adopt) orphaned descendants; False where the system can't."""
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) == 0)
    return False


def forbid_core_files() -> None:
    """A crash must not leave gigabytes in the working folder."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


class Training:
    """The training process, in a session of its own, and its tree.

    Raises:
        OSError: It can't be started.
    """

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        forbid_core_files()
        self._reaping = become_subreaper()
        self._others = {p.pid for p in process_table().values() if p.parent == os.getpid()}
        """Children that were there before; they and later ones told to ``leave_alone`` aren't training's."""
        self._process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its stdout and stderr."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        return self._process.stdout, self._process.stderr

    def leave_alone(self, pid: int) -> None:
        """Another child of ours, not to be killed with the tree."""
        self._others.add(pid)

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code (negative: the signal), or None while it runs."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def tree(self) -> list[ProcessInfo]:
        """Live processes of the tree, parents first; the training process itself is among them while it lives."""
        table, found, level = process_table(), [], [self.pid]
        children: dict[int, list[int]] = {}
        for p in table.values():
            children.setdefault(p.parent, []).append(p.pid)
        if self._reaping:
            level += [p for p in children.get(os.getpid(), []) if p != self.pid and p not in self._others]
        while level:
            found += [table[pid] for pid in level if pid in table and table[pid].state not in "ZX"]
            level = [child for pid in level for child in children.get(pid, [])]
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the training process alone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def signal_tree(self, number: int, processes: Iterable[ProcessInfo] | None = None) -> None:
        """Send a signal to every process of the tree."""
        for process in self.tree() if processes is None else processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)

    def freeze(self, within_s: float = 1.0) -> list[ProcessInfo]:
        """Stop every process of the tree and wait until they stand still; SIGCONT lets them go on."""
        give_up, frozen = time.monotonic() + within_s, self.tree()
        self.signal_tree(signal.SIGSTOP, frozen)
        while any(p.state not in "Tt" for p in self.tree()) and time.monotonic() < give_up:
            time.sleep(0.002)
        return frozen

    def kill_tree(self, timeout_s: float = 5.0) -> int:
        """SIGKILL until nothing is left.

        Returns:
            The number of processes that outlived it (stuck in the kernel), 0 as a rule.
        """
        give_up = time.monotonic() + timeout_s
        if not self._reaping or not process_table():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        while left := self.tree():
            self.signal_tree(signal.SIGKILL, left)  # again and again: one may have forked in between
            self._process.poll()
            self.reap()
            if time.monotonic() > give_up:
                return len(left)
            time.sleep(0.005)
        self._process.poll()
        self.reap()
        return 0

    def reap(self) -> None:
        """Collect adopted processes that have ended, so that they don't fill the process table."""
        for process in process_table().values():
            adopted = process.parent == os.getpid() and process.pid != self.pid and process.pid not in self._others
            if adopted and process.state == "Z":
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)

    def close(self) -> None:
        """Kill what is left and stop adopting."""
        self.kill_tree()
        if self._reaping:
            become_subreaper(False)


def writes_open(process: ProcessInfo, proc: Path = Path("/proc")) -> list[Path]:
    """Regular files that a process holds open for writing; empty where that can't be seen."""
    found = []
    with contextlib.suppress(OSError):
        for fd in (proc / str(process.pid) / "fd").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                target = fd.readlink()
                if not target.is_absolute():
                    continue
                info = (proc / str(process.pid) / "fdinfo" / fd.name).read_text()
                flags = int(info.partition("flags:")[2].split()[0], 8)
                if flags & os.O_ACCMODE:
                    found.append(target)
    return found
