"""The session's log: training's output streamed through, bounded, with our own lines whole between its lines.

However much a script prints, the log stays below a fixed size and the script is never held up by it; the value of a
live Kaggle token never gets into it.
"""

import contextlib
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, BinaryIO, Protocol

LINE_LIMIT = 16 * 1024
"""Bytes of one line that are kept."""
RATE, BURST, TOTAL = 64 * 1024, 1024 * 1024, 16 * 1024 * 1024
"""Bytes a second, at once, and in all, that training may print; after ``TOTAL`` a trickle is let through."""
TRICKLE = 100
REDRAW_S = 5.0
"""Progress bars redraw with a carriage return: one redraw in this time is shown, as a line."""
NOTICE_S = 60.0
TAIL_LINES = 40
LINE_OVERHEAD = 64
"""Bytes that Kaggle's log needs around each line."""
_SECRET = re.compile(r"KAGGLE_\w*(TOKEN|KEY)|\w+_(TOKEN|API_KEY)")


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> object:
        """Take them."""

    def flush(self) -> object:
        """Pass them on."""


def secrets_in(environ: Mapping[str, str]) -> dict[str, str]:
    """The values in an environment that must never be printed, with their names."""
    return {v: k for k, v in environ.items() if _SECRET.fullmatch(k) and k != "KGO_TOKEN" and len(v) >= 8}


@dataclass(slots=True)
class Budget:
    """A token bucket in bytes that becomes a trickle once ``total`` is spent."""

    rate: float = RATE
    burst: float = BURST
    total: float = TOTAL
    level: float = field(init=False)
    spent: float = 0.0
    at: float | None = None

    def __post_init__(self) -> None:
        self.level = self.burst

    def admit(self, size: int, now: float) -> bool:
        """Whether ``size`` bytes may be printed at ``now`` (monotonic seconds); if so they are charged."""
        rate, burst = (self.rate, self.burst) if self.spent < self.total else (TRICKLE, 2 * LINE_LIMIT)
        elapsed = 0.0 if self.at is None else now - self.at
        self.at = now
        self.level = min(burst, self.level + elapsed * rate)
        if size > self.level:
            return False
        self.level -= size
        self.spent += size
        return True


@dataclass(slots=True)
class Splitter:
    """Bytes to lines: long lines are cut, redraws of a progress bar thinned."""

    line: bytearray = field(default_factory=bytearray)
    cut: int = 0
    returned: bytes = b""
    redrawn_at: float | None = None

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """The lines that are complete now, each with its newline."""
        found: list[bytes] = []
        data = self.returned + data
        body = data.rstrip(b"\r")  # the last carriage return may be half of a line's end
        data, self.returned = body, data[len(body) :]
        for piece in re.split(rb"(\r*\n|\r+)", data):
            if piece.endswith(b"\n"):
                found.append(self.take() + b"\n")
            elif piece.startswith(b"\r"):
                redraw = self.take()
                if redraw and (self.redrawn_at is None or now - self.redrawn_at >= REDRAW_S):
                    self.redrawn_at = now
                    found.append(redraw + b"\n")
            else:
                room = max(0, LINE_LIMIT - len(self.line))
                self.line += piece[:room]
                self.cut += max(0, len(piece) - room)
        return found

    def take(self) -> bytes:
        """The line so far, which is then forgotten."""
        text = bytes(self.line)
        if self.cut:
            text += b" ... (kgo: %d bytes of this line left out)" % self.cut
        self.line.clear()
        self.cut = 0
        return text


class Log:
    """Writes to the session's two streams; safe from several threads."""

    def __init__(
        self,
        out: Sink | None = None,
        err: Sink | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out if out is not None else _bytes_of(sys.stdout)
        self._err = err if err is not None else _bytes_of(sys.stderr)
        self._secrets = {k.encode(): b"[" + v.encode() + b"]" for k, v in secrets_in(environ or {}).items()}
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._budget = Budget()
        self._unfinished: Sink | None = None
        self._left_out = 0
        self._noticed_at: float | None = None
        self._tails: dict[bool, deque[bytes]] = {False: deque(maxlen=TAIL_LINES), True: deque(maxlen=TAIL_LINES)}
        self.heard_at = monotonic()
        """Monotonic time of the training's last output."""

    def say(self, text: str) -> None:
        """Print a line of ours: ``kgo: …``."""
        self._line("".join(f"kgo: {line}\n" for line in text.splitlines()))

    def result(self, line: str) -> None:
        """Print the session's last line."""
        with self._lock:
            self._notice(last=True)
        self._line(line + "\n")

    def tail(self) -> tuple[list[str], list[str]]:
        """The training's last lines of stdout and of stderr, whether they were printed or left out."""
        with self._lock:
            out, err = list(self._tails[False]), list(self._tails[True])
        return [line.decode("utf-8", "replace") for line in out], [line.decode("utf-8", "replace") for line in err]

    def stream(self, pipe: IO[bytes], *, err: bool) -> threading.Thread:
        """Pass a pipe on until it ends, in a thread of its own."""
        thread = threading.Thread(target=self._pass_on, args=(pipe.fileno(), err), daemon=True, name=f"log-{err:d}")
        thread.start()
        return thread

    def _line(self, text: str) -> None:
        with self._lock:
            self._write(self._out, self._clean(text.encode("utf-8", "replace")), ours=True)

    def _clean(self, data: bytes) -> bytes:
        for value, name in self._secrets.items():
            data = data.replace(value, name)
        return data

    def _write(self, sink: Sink, data: bytes, *, ours: bool = False) -> None:
        """Callers hold the lock. A log that nobody reads any more must not end the session."""
        with contextlib.suppress(OSError, ValueError):
            if self._unfinished is not None and (ours or self._unfinished is not sink):
                self._unfinished.write(b"\n")
                self._unfinished.flush()
            self._unfinished = None if data.endswith(b"\n") else sink
            sink.write(data)
            sink.flush()

    def _pass_on(self, fd: int, err: bool) -> None:
        splitter, poll = Splitter(), select.poll()
        poll.register(fd, select.POLLIN | select.POLLHUP)
        while True:
            if not poll.poll(500):  # an unfinished line, such as a row of dots, is shown as it stands
                if splitter.line:
                    self._emit([splitter.take()], err)
                continue
            try:
                data = os.read(fd, 1 << 16)
            except OSError:
                data = b""
            now = self._monotonic()
            if not data:
                rest = splitter.take()
                self._emit([rest + b"\n"] if rest else [], err)
                return
            self.heard_at = now
            self._emit(splitter.feed(data, now), err)

    def _emit(self, pieces: list[bytes], err: bool) -> None:
        with self._lock:
            sink = self._err if err else self._out
            for piece in map(self._clean, pieces):
                self._tails[err].append(piece.rstrip(b"\n")[:1000])
                if self._budget.admit(len(piece) + LINE_OVERHEAD, self._monotonic()):
                    self._write(sink, piece)
                else:
                    self._left_out += len(piece)
                    self._notice()

    def _notice(self, *, last: bool = False) -> None:
        """Say now and then how much was left out. Callers hold the lock."""
        now = self._monotonic()
        if not self._left_out or not (last or self._noticed_at is None or now - self._noticed_at >= NOTICE_S):
            return
        if self._noticed_at is None:
            text = f"kgo: the script prints more than a log can hold ({RATE >> 10} KiB a second); lines are left out\n"
        else:
            text = f"kgo: {self._left_out:,} bytes of output left out of this log so far\n"
        self._noticed_at = now
        self._write(self._out, text.encode(), ours=True)


def _bytes_of(stream: object) -> Sink:
    """The binary side of a text stream; a notebook's stream has none."""
    buffer: BinaryIO | None = getattr(stream, "buffer", None)
    return buffer if buffer is not None else _TextSink(stream)


class _TextSink:
    def __init__(self, stream: object) -> None:
        self._stream = stream

    def write(self, data: bytes) -> object:
        return self._stream.write(data.decode("utf-8", "replace"))  # type: ignore[attr-defined]

    def flush(self) -> object:
        return self._stream.flush()  # type: ignore[attr-defined]
