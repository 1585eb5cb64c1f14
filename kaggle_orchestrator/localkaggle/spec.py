"""The session folder: what the server hands to a session's keeper, and what the keeper leaves for the server.

The folder alone tells how a session stands: its lock is held while the keeper lives, ``exit.json`` exists once it has
ended, and a session that has neither was lost with its keeper. So a server can be killed and started at any time.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.protocol import write_atomic
from kaggle_orchestrator.protocol.files import is_disk_full
from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable, to_jsonable


class Ending(StrEnum):
    """Why a session is over."""

    EXIT = "exit"
    """The script ended by itself."""
    LIMIT = "limit"
    """The time limit."""
    MEMORY = "memory"
    """Out of memory."""
    KILLED = "killed"
    """The platform lost it."""
    CANCEL = "cancel"
    """Cancelled by hand."""
    STOP = "stop"
    """The local Kaggle was stopped."""
    FAILED = "failed"
    """It couldn't be started."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder on this machine, and its place below ``/kaggle/input``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End a session ``after_s`` seconds after its start, or after a file below ``/kaggle/working`` matches."""

    ending: Ending
    after_s: float = 0.0
    when_output: str | None = None


class LieFrom(StrEnum):
    """Since when a status is told wrongly."""

    START = "start"
    """The session's creation."""
    END = "end"


@dataclass(frozen=True, slots=True)
class Lie:
    """A session's status is told as ``status`` for ``for_s`` seconds of the world."""

    status: SessionStatus
    since: LieFrom
    for_s: float


@dataclass(frozen=True, slots=True)
class Spec:
    """All that a keeper needs.

    Attributes:
        python: The interpreter.
        prefixes: Folders that the interpreter needs: its ``sys.prefix`` and ``sys.base_prefix``.
        script: Name of the script.
        environment: The session's whole environment, but for what depends on the box.
        limit_s: Seconds after which it is killed.
        mounts: Sources.
        internet: Whether the network is left to it.
        boxed: Whether it gets namespaces of its own.
        hidden: Folders that it may not see.
        log_bytes: Size at which the log is cut in its middle.
        sigterm_s: Seconds between SIGTERM and SIGKILL at the time limit; 0: no SIGTERM.
        memory_bytes: Memory in use at which it is killed; 0: no limit.
        kill, lie, lost: What befalls it by a scripted fault; ``lost`` is a glob of outputs.
    """

    python: str
    prefixes: tuple[str, ...]
    script: str
    environment: Mapping[str, str]
    limit_s: float
    mounts: tuple[Mount, ...]
    internet: bool
    boxed: bool
    hidden: tuple[str, ...]
    log_bytes: int
    sigterm_s: float = 0.0
    memory_bytes: int = 0
    kill: Kill | None = None
    lie: Lie | None = None
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a session ended.

    Attributes:
        ending: Why.
        code: Exit code of the script (128 + N after signal N), or None if it was killed.
        started, ended: Seconds since the epoch.
        message: For a person, empty if there is nothing to say.
        in_world: The times are the world's, not the machine's.
    """

    ending: Ending
    code: int | None
    started: float
    ended: float
    message: str = ""
    in_world: bool = False


class Standing(StrEnum):
    """How a session stands."""

    NEW = "new"
    """Its keeper was never started."""
    ALIVE = "alive"
    ENDED = "ended"
    LOST = "lost"
    """Its keeper is gone without a word."""


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """The files of one session, below ``path``."""

    path: Path

    @property
    def spec(self) -> Path:
        """What the keeper has to run."""
        return self.path / "spec.json"

    @property
    def lock(self) -> Path:
        """Held while the keeper lives."""
        return self.path / "lock"

    @property
    def end(self) -> Path:
        """How the session ended."""
        return self.path / "exit.json"

    @property
    def kill(self) -> Path:
        """Exists when the session is to end."""
        return self.path / "kill"

    @property
    def course(self) -> Path:
        """How a session without a process goes."""
        return self.path / "course.json"

    @property
    def log(self) -> Path:
        """One record a line."""
        return self.path / "log.jsonl"

    @property
    def listing(self) -> Path:
        """The output's files, taken when the session had ended."""
        return self.path / "listing.json"

    @property
    def source(self) -> Path:
        """The script's folder, ``/kaggle/src``."""
        return self.path / "src"

    @property
    def root(self) -> Path:
        """What is ``/kaggle`` inside: ``input`` and ``working``."""
        return self.path / "kaggle"

    @property
    def working(self) -> Path:
        """``/kaggle/working``, afterwards the output."""
        return self.root / "working"

    @property
    def packed(self) -> Path:
        """What is mounted instead of an output that is too large."""
        return self.path / "packed"

    @property
    def box(self) -> Path:
        """Where the session's root is mounted, in its own namespace."""
        return self.path / "box"

    @property
    def keeper_log(self) -> Path:
        """What the keeper had to say."""
        return self.path / "keeper.log"

    def standing(self) -> Standing:
        """How the session stands."""
        if self.end.exists():
            return Standing.ENDED
        if not self.lock.exists():
            return Standing.NEW
        if is_locked(self.lock):
            return Standing.ALIVE
        return Standing.ENDED if self.end.exists() else Standing.LOST  # it may have ended since the first look

    def read_spec(self) -> Spec:
        """What the keeper has to run."""
        return from_jsonable(Spec, json.loads(self.spec.read_text(encoding="utf-8")))

    def write_spec(self, spec: Spec) -> None:
        """Hand it over."""
        write_atomic(self.spec, json.dumps(to_jsonable(spec), indent=1).encode())

    def read_end(self) -> End | None:
        """How it ended, or None if that isn't known."""
        try:
            return from_jsonable(End, json.loads(self.end.read_text(encoding="utf-8")))
        except (OSError, ValueError, Malformed):
            return None

    def write_end(self, end: End) -> None:
        """Say how it ended; whoever sees the file sees all of it."""
        write_atomic(self.end, json.dumps(to_jsonable(end), indent=1).encode())

    def ask_to_end(self, ending: Ending) -> None:
        """Have the keeper end the session; it looks for this file several times a second.

        It may be the session that has filled the disk: a link that leads nowhere needs no room for its few letters.
        """
        try:
            write_atomic(self.kill, ending.value.encode())
        except OSError as error:
            if not is_disk_full(error):
                raise
            self.kill.unlink(missing_ok=True)
            self.kill.symlink_to(ending.value)

    def asked_to_end(self) -> Ending | None:
        """What the keeper was asked, if it was."""
        try:
            if self.kill.is_symlink():
                return Ending(str(self.kill.readlink()))
            return Ending(self.kill.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock file."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
