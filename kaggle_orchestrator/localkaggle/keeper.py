"""The keeper of one session: starts it, keeps its log, ends it, and says how it ended.

A process of its own, so that a session outlives a killed server. It is alone in knowing when the session is over: it
writes ``exit.json`` only when no process of the session is left.
"""

import math
import os
import selectors
import signal
import sys
import time
from pathlib import Path

from kaggle_orchestrator.localkaggle import box, init, tree
from kaggle_orchestrator.localkaggle.sessionlog import LogWriter
from kaggle_orchestrator.localkaggle.spec import End, Ending, Kill, SessionFolder, Spec

_TICK = 0.1
"""Seconds between two looks for a request to end the session."""
_FAULT_TICK = 0.02
"""The same while a scripted kill waits for an output."""
_GRACE = 2.0
"""Seconds that the session's first process has to end everything, before it is killed itself."""

_WEIGH_S = 0.2
"""Seconds between two looks at the memory in use."""
_END_PATIENCE = 60.0
"""Seconds for which writing ``exit.json`` is tried."""


def keep(folder: SessionFolder) -> None:
    """Run the session in ``folder`` to its end."""
    started = time.time()
    spec = folder.read_spec()
    log = LogWriter(folder.log, spec.log_bytes)
    try:
        session = Running(folder, spec, log, started)
    except OSError as error:
        ending, code, message = Ending.FAILED, None, f"the session could not be started: {error}"
    else:
        ending, code, message = session.watch()
    if ending is Ending.FAILED:
        log.feed("stderr", f"kgo: the local Kaggle: {message}\n".encode(), time.time() - started)
    log.close(time.time() - started)
    _say_ended(folder, End(ending, code, started, time.time(), message))


def _say_ended(folder: SessionFolder, end: End) -> None:
    """The disk may be full; then the session counts as running until there is room, or as lost in the end.

    One that was stopped counts as lost at once: the verdict is the same, and who stops the local Kaggle waits for it.
    """
    until = time.monotonic() + _END_PATIENCE
    while True:
        try:
            return folder.write_end(end)
        except OSError:
            if end.ending is Ending.STOP:
                return None
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


class Running:
    """A session's processes, from the keeper's side."""

    def __init__(self, folder: SessionFolder, spec: Spec, log: LogWriter, started: float) -> None:
        self._folder = folder
        self._spec = spec
        self._log = log
        self._started = started
        self._deadline = time.monotonic() + spec.limit_s
        self._terminate_at = self._deadline - spec.sigterm_s if spec.sigterm_s else math.inf
        self._weigh_at = 0.0
        self._stopped = False
        self._ready = b""
        if spec.boxed:
            box.isolate_processes()
        else:
            tree.adopt_orphans()
        out, err, control, ready = os.pipe(), os.pipe(), os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            for pipe, mine in ((out, 1), (err, 1), (control, 0), (ready, 1)):
                os.close(pipe[1 - mine])
            init.run(spec, folder, started, init.Ends(out[1], err[1], control[0], ready[1]))
        for fd in (out[1], err[1], control[0], ready[1]):
            os.close(fd)
        self._control = control[1]
        self._selector = selectors.DefaultSelector()
        for fd, name in ((out[0], "stdout"), (err[0], "stderr"), (ready[0], "ready")):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, name)
        signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, number: int, frame: object) -> None:
        self._stopped = True

    def watch(self) -> tuple[Ending, int | None, str]:
        """Wait for the end, or bring it about: why, the script's exit code, a message."""
        fault = self._spec.kill
        armed: float | None = time.monotonic() if fault and fault.when_output is None else None
        while True:
            self._pump(_FAULT_TICK if fault else _TICK)
            done, status = os.waitpid(self._pid, os.WNOHANG)
            if done:
                return self._ended(status)
            if fault and armed is None and self._matches(fault):
                armed = time.monotonic()
            now = time.monotonic()
            if now >= self._terminate_at:
                tree.terminate_descendants()
                self._terminate_at = math.inf
            if self._spec.memory_bytes and now >= self._weigh_at:
                self._weigh_at = now + _WEIGH_S
                if tree.resident_bytes() > self._spec.memory_bytes:
                    return self._end(Ending.MEMORY)
            if fault and armed is not None and now >= armed + fault.after_s:
                return self._end(fault.ending)
            if now >= self._deadline:
                return self._end(Ending.LIMIT)
            if self._stopped:
                return self._end(Ending.STOP)
            asked = self._folder.asked_to_end()
            if asked:
                return self._end(asked)

    def _matches(self, fault: Kill) -> bool:
        try:
            return any(True for _ in self._folder.working.glob(fault.when_output or "*"))
        except OSError:  # a folder went away under the search
            return False

    def _pump(self, wait: float) -> bool:
        """Take what the session wrote; whether anything may still come."""
        for key, _ in self._selector.select(wait if self._selector.get_map() else 0):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fd)
                os.close(key.fd)
            elif key.data == "ready":
                self._ready += data
            else:
                self._log.feed(key.data, data, time.time() - self._started)
        self._log.tick(time.time() - self._started)
        return bool(self._selector.get_map())

    def _drain(self) -> None:
        until = time.monotonic() + 1.0
        while time.monotonic() < until and self._pump(0.05):
            pass

    def _ended(self, status: int) -> tuple[Ending, int | None, str]:
        if not self._spec.boxed:
            tree.kill_descendants()
        self._drain()
        if self._ready != init.READY:
            return Ending.FAILED, None, self._ready.decode(errors="replace") or "its first process died"
        return Ending.EXIT, os.waitstatus_to_exitcode(status), ""

    def _end(self, ending: Ending) -> tuple[Ending, int | None, str]:
        os.close(self._control)
        until = time.monotonic() + _GRACE
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                break
            self._pump(0.01)
        if not self._spec.boxed:
            tree.kill_descendants()
        self._drain()
        return ending, None, ""


def main() -> None:
    """``python -m kaggle_orchestrator.localkaggle.keeper FOLDER LOCK_FD``; the lock is held already."""
    folder, lock = SessionFolder(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    keep(folder)


if __name__ == "__main__":
    main()
