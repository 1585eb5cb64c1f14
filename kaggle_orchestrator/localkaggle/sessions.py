"""Sessions from the server's side: started through a keeper each, watched by their folders, settled once.

The server holds nothing of a session in memory that it couldn't find again after a restart.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from kaggle_orchestrator.localkaggle import sources, spawn
from kaggle_orchestrator.localkaggle.faults import Fault, KillSession, take
from kaggle_orchestrator.localkaggle.knobs import Knobs
from kaggle_orchestrator.localkaggle.outputs import add_extras, make_read_only, settle_output
from kaggle_orchestrator.localkaggle.spec import End, Ending, Kill, SessionFolder, Spec, Standing, is_locked
from kaggle_orchestrator.localkaggle.world import Interpreter, Session, Version, World
from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.profile import Disposition
from kaggle_orchestrator.protocol import Variable

_log = logging.getLogger(__name__)

SCRIPT = "script.py"
TOO_LONG = "Your notebook was stopped because it exceeded the max allowed execution duration."
TOO_BIG = "Your notebook tried to allocate more memory than is available."


def own_interpreter() -> Interpreter:
    """The one that runs this."""
    return Interpreter(sys.executable, tuple(dict.fromkeys((sys.prefix, sys.base_prefix))))


class Sessions:
    """All sessions of a world.

    Args:
        world: Where they are written down.
        knobs: The knobs as they are now.
        boxed: Whether sessions get namespaces of their own.
    """

    def __init__(self, world: World, knobs: Callable[[], Knobs], *, boxed: bool) -> None:
        self._world = world
        self._knobs = knobs
        self._boxed = boxed
        self._keepers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def folder(self, session: Session) -> SessionFolder:
        """Where its files lie."""
        return sources.session_folder(self._world.root, session.id)

    def start(self, session: Session, version: Version) -> None:
        """Start a session that waits for it, with the mounts of this moment; one that can't be started has failed."""
        try:
            self._start(session, version)
        except OSError as error:
            _log.exception("session %d of %s", session.id, session.kernel)
            now = time.time()
            message = f"The local Kaggle could not start it: {error}"
            self._world.mark_ended(session, SessionStatus.ERROR, message, now, now)

    def _start(self, session: Session, version: Version) -> None:
        folder = self.folder(session)
        if not folder.spec.exists():  # else a killed server had come this far
            for path in (folder.source, folder.working):
                path.mkdir(parents=True, exist_ok=True)
            (folder.source / SCRIPT).write_text(version.source, encoding="utf-8")
            folder.write_spec(self._spec(session, version))
        self._keepers.append(spawn.start_keeper(folder))
        self._world.mark_started(session, time.time())

    def _spec(self, session: Session, version: Version) -> Spec:
        settings = version.settings
        interpreter = self._world.interpreter(session.kernel) or own_interpreter()
        return Spec(
            python=interpreter.python,
            prefixes=interpreter.prefixes,
            script=SCRIPT,
            environment=self._environment(session, version, interpreter),
            limit_s=session.limit_s,
            mounts=sources.mounts(self._world, self._world.root, settings, self._knobs().mount_layout),
            internet=settings.internet,
            boxed=self._boxed,
            hidden=(str(Path.home()), os.environ.get("HOME", "/root"), str(self._world.root)),
            log_bytes=self._knobs().log_bytes,
            kill=self._scripted_kill(session),
        )

    def _environment(self, session: Session, version: Version, interpreter: Interpreter) -> dict[str, str]:
        settings = version.settings
        environment = {
            "PATH": f"{Path(interpreter.python).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "KAGGLE_KERNEL_RUN_TYPE": "Batch",
            "KAGGLE_URL_BASE": self.url,
            "KAGGLE_DATA_PROXY_TOKEN": "kgo-local-no-token",
            "KAGGLE_USER_SECRETS_TOKEN": "kgo-local-no-token",
            "KAGGLE_CONTAINER_NAME": f"kgo-session-{session.id}",
            Variable.SESSION_LIMIT: f"{session.limit_s:g}",
        }
        environment |= {name: os.environ[name] for name in spawn.DRIVER_VARIABLES if name in os.environ}
        if settings.gpu and settings.machine_shape:
            environment[Variable.SIMULATED_ACCELERATOR] = settings.machine_shape
        else:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return environment

    def _scripted_kill(self, session: Session) -> Kill | None:
        def matches(fault: Fault) -> bool:
            return isinstance(fault, KillSession) and fault.kernel in (None, session.kernel)

        fault = take(self._world, matches)
        return fault.kill if isinstance(fault, KillSession) else None

    def refresh(self) -> int:
        """Look at each session that hasn't ended; how many live on."""
        self._keepers = [keeper for keeper in self._keepers if keeper.poll() is None]
        alive = 0
        for session in self._world.sessions(live=True):
            folder = self.folder(session)
            match folder.standing():
                case Standing.NEW:
                    self._start_late(session)
                    alive += 1
                case Standing.ALIVE:
                    alive += 1
                    if session.status is SessionStatus.QUEUED:  # the server was killed right after starting it
                        self._world.mark_started(session, time.time())
                case Standing.ENDED | Standing.LOST:
                    self._settle(session, folder)
                case unknown:
                    assert_never(unknown)
        return alive

    def _start_late(self, session: Session) -> None:
        """The server was killed between noting a session and starting it."""
        kernel = self._world.kernel(session.kernel)
        version = self._world.version(kernel, session.version) if kernel else None
        assert version
        self.start(session, version)

    def cancel(self, session: Session) -> None:
        """End it by hand; it's over a moment later."""
        self._world.mark(session, SessionStatus.CANCEL_REQUESTED)
        self.folder(session).ask_to_end(Ending.CANCEL)

    def end_all(self, patience_s: float = 10.0) -> None:
        """End every session because the local Kaggle stops, and settle them."""
        end_sessions([self.folder(s) for s in self._world.sessions(live=True)], patience_s)
        self.refresh()

    def _settle(self, session: Session, folder: SessionFolder) -> None:
        end = folder.read_end()
        if end is None:  # its keeper was killed, and took the session with it
            end = End(Ending.KILLED, None, session.started or session.created, time.time())
        status, message, disposition = _verdict(end, self._knobs())
        try:
            settle_output(folder, keep=disposition is Disposition.KEEP)
            if status is SessionStatus.COMPLETE:
                add_extras(folder, SCRIPT)
            if not self._boxed:
                make_read_only(folder.working)
        except OSError:  # a full disk, say; the next look tries again
            _log.exception("session %d of %s can't be settled", session.id, session.kernel)
            return
        self._world.mark_ended(session, status, message, end.started, end.ended)
        _log.info("session %d of %s v%d: %s", session.id, session.kernel, session.version, status)


def end_sessions(folders: Sequence[SessionFolder], patience_s: float) -> bool:
    """Have the keepers end their sessions; whether all, keepers included, were gone in time. Needs no server."""
    for folder in folders:
        if folder.standing() is Standing.ALIVE:
            folder.ask_to_end(Ending.STOP)
    until = time.monotonic() + patience_s
    while any(is_locked(folder.lock) for folder in folders):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _verdict(end: End, knobs: Knobs) -> tuple[SessionStatus, str, Disposition]:
    """Kaggle's status and message for an ending, and what becomes of the output."""
    match end.ending:
        case Ending.EXIT if end.code == 0:
            return SessionStatus.COMPLETE, "", Disposition.KEEP
        case Ending.LIMIT:
            return SessionStatus.CANCEL_ACKNOWLEDGED, TOO_LONG, knobs.output_after_kill
        case Ending.CANCEL:
            return SessionStatus.CANCEL_ACKNOWLEDGED, "", knobs.output_after_cancel
        case Ending.MEMORY:
            return SessionStatus.ERROR, TOO_BIG, knobs.output_after_kill
        case Ending.KILLED | Ending.STOP:
            return SessionStatus.ERROR, "", knobs.output_after_kill
        case Ending.EXIT | Ending.FAILED:
            return SessionStatus.ERROR, end.message, knobs.output_after_error
        case unknown:
            assert_never(unknown)
