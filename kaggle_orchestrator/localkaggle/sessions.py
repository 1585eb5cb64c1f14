"""Sessions from the server's side: started, watched by their folders, settled once; at exact times of the world.

The server holds nothing of a session in memory that it couldn't find again after a restart.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from kaggle_orchestrator.localkaggle import notebook, scripted, sources, spawn
from kaggle_orchestrator.localkaggle.faultkinds import FalseStatus, KillSession, LoseOutput, NoGpu, NoMount
from kaggle_orchestrator.localkaggle.faults import Faults
from kaggle_orchestrator.localkaggle.knobs import Knobs
from kaggle_orchestrator.localkaggle.outputs import add_extras, make_read_only, settle_output
from kaggle_orchestrator.localkaggle.quota import used_up
from kaggle_orchestrator.localkaggle.records import Interpreter, Session, Settings, Version
from kaggle_orchestrator.localkaggle.scripted import Actor, Course, Scene, parse_casting
from kaggle_orchestrator.localkaggle.spec import End, Ending, Kill, Lie, Mount, SessionFolder, Spec, Standing, is_locked
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.localkaggle.worldclock import WorldClock
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
        clock: The world's.
        faults: What is to go wrong.
        knobs: The knobs as they are now.
        boxed: Whether sessions get namespaces of their own.
        actor: Plays sessions without a process.
    """

    def __init__(
        self,
        world: World,
        clock: WorldClock,
        faults: Faults,
        knobs: Callable[[], Knobs],
        *,
        boxed: bool,
        actor: Actor | None = None,
    ) -> None:
        self._world = world
        self._clock = clock
        self._faults = faults
        self._knobs = knobs
        self._boxed = boxed
        self._actor = actor
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._courses: dict[int, Course | None] = {}
        self._said: dict[int, int] = {}
        self._unsaved: set[int] = set()
        self._lies: dict[int, Lie | None] = {}
        self.url = ""

    def folder(self, session: Session) -> SessionFolder:
        """Where its files lie."""
        return sources.session_folder(self._world.root, session.id)

    def refresh(self) -> int:
        """Bring all sessions up to now, in the order in which things happened; how many live on."""
        self._keepers = [keeper for keeper in self._keepers if keeper.poll() is None]
        while True:
            live = self._world.sessions(live=True)
            out_of_quota = self._out_of_quota(live)
            if not self._next_event(live, out_of_quota):
                break
        alive = 0
        for session in live:
            if session.status is SessionStatus.QUEUED or self._course(session) is not None:
                alive += 1
                continue
            folder = self.folder(session)
            match folder.standing():
                case Standing.NEW:  # the server was killed between noting a session and starting it
                    self._begin(session, self._clock.now())
                    alive += 1
                case Standing.ALIVE:
                    alive += 1
                    if session.gpu and session.kernel.owner in out_of_quota and not folder.asked_to_end():
                        folder.ask_to_end(Ending.LIMIT)
                case Standing.ENDED | Standing.LOST:
                    self._settle(session, folder)
                case unknown:
                    assert_never(unknown)
        return alive

    def _next_event(self, live: Sequence[Session], out_of_quota: Mapping[str, float]) -> bool:
        """Let the earliest thing that is due happen, of those whose time is known; whether there was one."""
        now = self._clock.now()
        due: list[tuple[float, int, Session]] = []
        for session in live:
            at = self._due(session, out_of_quota)
            if at is not None and at <= now:
                due.append((at, session.id, session))
            elif course := self._course(session):
                self._speak(session, course, now - (session.started or now))
        if not due:
            return False
        at, _, session = min(due)
        if session.status is SessionStatus.QUEUED:
            self._begin(session, at)
        else:
            self._end_course(session, at)
        return True

    def _out_of_quota(self, live: Sequence[Session]) -> dict[str, float]:
        """Since when accounts have no GPU quota left; Kaggle then ends the sessions that use it."""
        return used_up(self._world, live, self._knobs().gpu_quota_hours * 3600, self._clock.now())

    def _due(self, session: Session, out_of_quota: Mapping[str, float]) -> float | None:
        """When a session that waits starts, or one without a process ends."""
        if session.status is SessionStatus.QUEUED:
            return session.created + self._knobs().queue_s
        course = self._course(session)
        if course is None or session.started is None:
            return None
        end = session.started + course.end_s
        if session.cancelled is not None:
            return min(end, session.cancelled)
        return min(end, out_of_quota.get(session.kernel.owner, end)) if session.gpu else end

    def _course(self, session: Session) -> Course | None:
        if session.id not in self._courses:
            folder = self.folder(session)
            lives = folder.course.exists() and not folder.end.exists()
            self._courses[session.id] = scripted.load(folder.course) if lives else None
        return self._courses[session.id]

    def _begin(self, session: Session, at: float) -> None:
        """Start a session with the mounts of this moment; one that can't be started has failed."""
        kernel = self._world.kernel(session.kernel)
        version = self._world.version(kernel, session.version) if kernel else None
        assert version
        try:
            self._start(session, version, at)
        except OSError as error:
            _log.exception("session %d of %s", session.id, session.kernel)
            message = f"The local Kaggle could not start it: {error}"
            self._world.mark_ended(session, SessionStatus.ERROR, message, at, at)

    def _start(self, session: Session, version: Version, at: float) -> None:
        folder = self.folder(session)
        if folder.standing() is not Standing.NEW:  # a server was killed right after starting it
            self._world.mark_started(session, at)
            return
        if not folder.spec.exists():  # else a killed server had come this far
            for path in (folder.source, folder.working):
                path.mkdir(parents=True, exist_ok=True)
            script = version.source
            if version.settings.kernel_type == "notebook":
                (folder.source / notebook.FILE).write_text(version.source, encoding="utf-8")
                script = notebook.runner()
            (folder.source / SCRIPT).write_text(script, encoding="utf-8")
            folder.write_spec(self._spec(session, version, at))
        if not folder.course.exists():
            self._cast(session, version, folder, at)
        if self._course(session) is None:
            self._keepers.append(spawn.start_keeper(folder))
            at = self._clock.now()
        self._world.mark_started(session, at)

    def _cast(self, session: Session, version: Version, folder: SessionFolder, at: float) -> None:
        """Find who plays it, if anybody does."""
        spec = folder.read_spec()
        script = None
        with self._world.change():
            for number, document in self._world.castings():
                casting = parse_casting(document)
                if casting.kernel in (None, session.kernel):
                    count = self._world.count_casting(number)
                    if script is None and casting.number in (None, count):
                        script = casting.script
        if script is None and self._actor is not None:
            scene = Scene(
                session=session,
                source=version.source,
                settings=version.settings,
                mounts=spec.mounts,
                environment=spec.environment,
                limit_s=session.limit_s,
                started=at,
            )
            script = self._actor(scene)
        if script is not None:
            kill = _slower(spec.kill, self._clock.factor) if spec.kill else None
            scripted.save(folder.course, scripted.course(script, session.limit_s, kill))
        self._courses.pop(session.id, None)

    def _speak(self, session: Session, course: Course, until_s: float) -> None:
        if not course.script.log:
            return
        folder = self.folder(session)
        if session.id not in self._said:
            self._said[session.id] = folder.log.read_bytes().count(b"\n") if folder.log.exists() else 0
        self._said[session.id] = scripted.speak(folder, course.script, until_s, self._said[session.id])

    def _end_course(self, session: Session, at: float, *, stop: bool = False) -> None:
        """End a session without a process, after what it wrote and said until then."""
        course, folder = self._course(session), self.folder(session)
        assert course
        assert session.started is not None
        until_s, ending, code = course.end_s, course.ending, course.code
        if stop:
            until_s, ending, code = at - session.started, Ending.STOP, None
        elif session.cancelled is not None and at >= session.cancelled:
            until_s, ending, code = at - session.started, Ending.CANCEL, None
        elif at < session.started + course.end_s:  # the quota is used up
            until_s, ending, code = at - session.started, Ending.LIMIT, None
        scripted.perform(folder, course.script, until_s)
        self._speak(session, course, until_s)
        folder.write_end(End(ending, code, session.started, at, in_world=True))
        self._courses[session.id] = None
        self._said.pop(session.id, None)
        self._settle(session, folder)

    def _spec(self, session: Session, version: Version, at: float) -> Spec:
        settings, kernel = version.settings, session.kernel
        interpreter = self._world.interpreter(kernel) or own_interpreter()
        kill, lie = self._faults.befalls(KillSession, kernel), self._faults.befalls(FalseStatus, kernel)
        lost = self._faults.befalls(LoseOutput, kernel)
        mounts: tuple[Mount, ...] = ()
        if self._faults.befalls(NoMount, kernel) is None:
            mounts = sources.mounts(self._world, settings, self._knobs(), before=self._before(session), now=at)
        return Spec(
            python=interpreter.python,
            prefixes=interpreter.prefixes,
            script=SCRIPT,
            environment=self._environment(session, version, interpreter),
            limit_s=session.limit_s / self._clock.factor,
            mounts=mounts,
            internet=settings.internet,
            boxed=self._boxed,
            hidden=(str(Path.home()), os.environ.get("HOME", "/root"), str(self._world.root)),
            log_bytes=self._knobs().log_bytes,
            sigterm_s=self._knobs().sigterm_before_kill_s / self._clock.factor,
            memory_bytes=self._knobs().memory_bytes,
            kill=_slower(kill.kill, 1 / self._clock.factor) if kill else None,
            lie=lie.lie if lie else None,
            lost=lost.names if lost else None,
        )

    def _before(self, session: Session) -> Settings | None:
        """The settings of the version of this kernel that ran before."""
        kernel = self._world.kernel(session.kernel)
        earlier = self._world.session_before(kernel, session.version) if kernel else None
        version = self._world.version(kernel, earlier.version) if kernel and earlier else None
        return version.settings if version else None

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
            Variable.SESSION_LIMIT: f"{session.limit_s / self._clock.factor:g}",
        }
        environment |= {name: os.environ[name] for name in spawn.DRIVER_VARIABLES if name in os.environ}
        gpu = settings.gpu and self._faults.befalls(NoGpu, session.kernel) is None
        if gpu and settings.machine_shape:
            environment[Variable.SIMULATED_ACCELERATOR] = settings.machine_shape
        else:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return environment

    def lie(self, session: Session) -> Lie | None:
        """How its status is told wrongly, if a scripted fault says so."""
        if session.id not in self._lies:
            folder = self.folder(session)
            if not folder.spec.exists():
                return None  # it's still to come
            self._lies[session.id] = folder.read_spec().lie
        return self._lies[session.id]

    def cancel(self, session: Session, *, save: bool = True) -> None:
        """End it by hand; it's over a moment later, or when Kaggle has saved its output."""
        now = self._clock.now()
        if not save:
            self._unsaved.add(session.id)
        if session.status is SessionStatus.QUEUED:
            self._world.mark_ended(session, SessionStatus.CANCEL_ACKNOWLEDGED, "", now, now)
            return
        self._world.mark_cancelled(session, now)
        if self._course(session) is None:
            self.folder(session).ask_to_end(Ending.CANCEL)

    def end_all(self, patience_s: float = 10.0) -> None:
        """End every session because the local Kaggle stops, and settle them."""
        live, now = self._world.sessions(live=True), self._clock.now()
        end_sessions([self.folder(s) for s in live], patience_s)  # first: on a full disk nothing can be noted
        for session in live:
            if session.status is SessionStatus.QUEUED:
                self._world.mark_ended(session, SessionStatus.ERROR, "", now, now)
            elif self._course(session) is not None:
                self._end_course(session, now, stop=True)
        self.refresh()

    def _settle(self, session: Session, folder: SessionFolder) -> None:
        now, end, knobs = self._clock.now(), folder.read_end(), self._knobs()
        if end is None:  # its keeper was killed, and took the session with it
            end = End(Ending.KILLED, None, session.started or session.created, now)
        elif not end.in_world:
            started = max(session.created, self._clock.of(end.started))
            end = replace(end, started=started, ended=max(started, self._clock.of(end.ended)))
        saves = session.cancelled is not None and session.id not in self._unsaved
        if saves and now < (session.cancelled or 0.0) + knobs.cancel_save_s:
            return  # Kaggle saves what there is first
        status, message, disposition = _verdict(end, knobs)
        lost = folder.read_spec().lost if folder.spec.exists() else None
        try:
            settle_output(folder, knobs, keep=disposition is Disposition.KEEP, lost=lost)
            if status is SessionStatus.COMPLETE:
                add_extras(folder, SCRIPT)
            if not self._boxed:
                make_read_only(folder.working)
        except OSError:  # a full disk, say; the next look tries again
            _log.exception("session %d of %s can't be settled", session.id, session.kernel)
            return
        self._world.mark_ended(session, status, message, end.started, end.ended)
        _log.info("session %d of %s v%d: %s", session.id, session.kernel, session.version, status)


def _slower(kill: Kill, times: float) -> Kill:
    """The same kill on another clock: faults are in the world's seconds, keepers count the machine's."""
    return replace(kill, after_s=kill.after_s * times)


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
