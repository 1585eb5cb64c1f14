"""Sessions without a process: what they write, say and end with is known beforehand, and when.

Their ends are exact in the world's time, however late anybody looks; so thousands of them need no waiting.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle.records import Session, Settings
from kaggle_orchestrator.localkaggle.spec import Ending, Kill, Mount, SessionFolder
from kaggle_orchestrator.models import KernelRef
from kaggle_orchestrator.protocol import Variable, write_atomic


@dataclass(frozen=True, slots=True)
class Write:
    """A file appears, whole: ``name`` below ``/kaggle/working``, ``at_s`` seconds after the session's start."""

    at_s: float
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """Something is said, ``at_s`` seconds after the session's start."""

    at_s: float
    text: str
    stream: str = "stdout"


@dataclass(frozen=True, slots=True)
class Script:
    """A session's course, if nothing comes between.

    Attributes:
        after_s: Seconds from its start to its end.
        code: The script's exit code.
        ending: Why it ends.
        writes, log: In order of time.
    """

    after_s: float
    code: int = 0
    ending: Ending = Ending.EXIT
    writes: tuple[Write, ...] = ()
    log: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """What a session finds at its start.

    Attributes:
        session: It.
        source: The pushed source.
        settings: What the push set.
        mounts: Its sources.
        environment: Its variables.
        limit_s: World seconds after which it is killed.
        started: World time.
    """

    session: Session
    source: str
    settings: Settings
    mounts: tuple[Mount, ...]
    environment: Mapping[str, str]
    limit_s: float
    started: float

    @property
    def gpu(self) -> bool:
        """Whether the session has a GPU."""
        return Variable.SIMULATED_ACCELERATOR in self.environment


Actor = Callable[[Scene], Script | None]
"""Plays sessions; None leaves one to a real process."""


@dataclass(frozen=True, slots=True)
class Course:
    """A script as it comes to pass.

    Attributes:
        end_s: Seconds after the start at which it ends.
        ending: Why.
        code: Exit code, or None if it was killed.
    """

    script: Script
    end_s: float
    ending: Ending
    code: int | None


def course(script: Script, limit_s: float, kill: Kill | None) -> Course:
    """What comes first: its own end, the time limit, or a scripted kill."""
    ends = [(script.after_s, 0, script.ending, script.code if script.ending is Ending.EXIT else None)]
    ends.append((limit_s, 1, Ending.LIMIT, None))
    if kill is not None:
        armed = 0.0 if kill.when_output is None else _first_match(script, kill.when_output)
        if armed is not None:
            ends.append((armed + kill.after_s, 2, kill.ending, None))
    end_s, _, ending, code = min(ends)
    return Course(script, end_s, ending, code)


def _first_match(script: Script, pattern: str) -> float | None:
    parts = pattern.split("/")

    def matches(name: str) -> bool:
        found = name.split("/")
        return len(found) == len(parts) and all(map(fnmatchcase, found, parts))

    return min((write.at_s for write in script.writes if matches(write.name)), default=None)


def perform(folder: SessionFolder, script: Script, until_s: float) -> None:
    """Write what the script has written by ``until_s``; may be repeated."""
    for write in script.writes:
        if write.at_s <= until_s:
            path = folder.working / write.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(write.data)


def speak(folder: SessionFolder, script: Script, until_s: float, said: int) -> int:
    """Append to the log what was said since; how many lines there are now."""
    due = [line for line in script.log[said:] if line.at_s <= until_s]
    if due:
        records = [{"stream_name": line.stream, "time": round(line.at_s, 6), "data": line.text} for line in due]
        with folder.log.open("ab") as file:
            file.write(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    return said + len(due)


def save(path: Path, course_: Course) -> None:
    """Keep a course where a later server finds it."""
    document = asdict(course_)
    for write in document["script"]["writes"]:
        write["data"] = base64.b64encode(write["data"]).decode()
    write_atomic(path, json.dumps(document).encode())


def load(path: Path) -> Course:
    """Read one back."""
    document = json.loads(path.read_text(encoding="utf-8"))
    script = document["script"]
    writes = tuple(Write(w["at_s"], w["name"], base64.b64decode(w["data"])) for w in script["writes"])
    log = tuple(Line(**line) for line in script["log"])
    whole = Script(script["after_s"], script["code"], Ending(script["ending"]), writes, log)
    return Course(whole, document["end_s"], Ending(document["ending"]), document["code"])


# A script as JSON, for a server in another process


@dataclass(frozen=True, slots=True)
class Casting:
    """Which sessions a script is for: the ``number``-th of ``kernel``; None: each, any."""

    kernel: KernelRef | None
    number: int | None
    script: Script


_KEYS = {"kernel", "number", "after_s", "code", "as", "output", "log"}
_ENDINGS = {
    "exit": Ending.EXIT,
    "limit": Ending.LIMIT,
    "memory": Ending.MEMORY,
    "error": Ending.KILLED,
    "cancel": Ending.CANCEL,
}


def parse_casting(data: object) -> Casting:
    """Read one.

    Raises:
        UsageError: It isn't one; the message names what is wrong.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"a session's script is an object, not {data!r}")
    unknown = sorted(str(key) for key in data if key not in _KEYS)
    if unknown:
        raise UsageError(f"session script: unknown key {unknown[0]!r}; there are: {', '.join(sorted(_KEYS))}")
    after_s = _seconds(data.get("after_s"), "after_s")
    ending, code, number, kernel = (data.get(key) for key in ("as", "code", "number", "kernel"))
    if ending is not None and (not isinstance(ending, str) or ending not in _ENDINGS):
        raise UsageError(f"as: {ending!r} is not one of {', '.join(_ENDINGS)}")
    if code is not None and (isinstance(code, bool) or not isinstance(code, int) or not 0 <= code < 256):
        raise UsageError(f"code: expected an exit code, got {code!r}")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < 1 << 31):
        raise UsageError(f"number: expected a whole number from 1, got {number!r}")
    if kernel is not None and not isinstance(kernel, str):
        raise UsageError(f"kernel: expected owner/slug, got {kernel!r}")
    script = Script(
        after_s=after_s,
        code=code or 0,
        ending=_ENDINGS[ending or "exit"],
        writes=_writes(data.get("output", {}), after_s),
        log=_lines(data.get("log", ""), after_s),
    )
    return Casting(None if kernel is None else KernelRef.parse(kernel), number, script)


def _writes(output: Any, after_s: float) -> tuple[Write, ...]:
    if not isinstance(output, Mapping):
        raise UsageError(f"output: expected an object, got {output!r}")
    writes = []
    for name, value in output.items():
        parts = name.split("/") if isinstance(name, str) else []
        if not parts or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise UsageError(f"output: {name!r} is not a file below /kaggle/working")
        at_s, text = _timed(value, f"output.{name}", after_s)
        writes.append(Write(at_s, name, text.encode()))
    return tuple(sorted(writes, key=lambda write: write.at_s))


def _lines(log: Any, after_s: float) -> tuple[Line, ...]:
    entries = log if isinstance(log, list) else [{"at_s": 0, "text": log}]
    timed = [_timed(entry, "log", after_s) for entry in entries]
    return tuple(sorted((Line(at_s, text) for at_s, text in timed if text), key=lambda line: line.at_s))


def _timed(value: Any, where: str, after_s: float) -> tuple[float, str]:
    at_s: float = after_s
    if isinstance(value, Mapping):
        if set(value) - {"at_s", "text"}:
            raise UsageError(f"{where}: expected at_s and text")
        at_s, value = _seconds(value.get("at_s"), f"{where}.at_s"), value.get("text")
    if not isinstance(value, str) or any("\ud800" <= c <= "\udfff" for c in value):
        raise UsageError(f"{where}: expected a text, got {value!r}")
    return at_s, value


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise UsageError(f"{where}: expected seconds, got {value!r}")
    return float(value)
