"""A session's log: records ``{stream_name, time, data}``, one a line, bounded by leaving out its middle.

A record is a whole line where the session wrote one, since readers look for marks at a line's start. The end of the
log always survives the bound: the last lines are what tells how a session ended.
"""

import codecs
import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

_LINE = 64 << 10
"""A line longer than this is written in pieces."""
_PATIENCE = 0.25
"""Seconds after which a line without an end is written as it is."""


@dataclass(slots=True)
class _Stream:
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )
    text: str = ""
    since: float = 0.0


class LogWriter:
    """Writes a log of at most about ``limit`` bytes. Times are seconds since the session's start."""

    def __init__(self, path: Path, limit: int) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._streams: dict[str, _Stream] = {}
        self._tail: deque[bytes] = deque()
        self._tail_limit = limit // 4
        self._room = limit - self._tail_limit
        self._tail_size = 0
        self._dropped = 0

    def feed(self, stream: str, data: bytes, now: float) -> None:
        """Take what a stream wrote."""
        state = self._streams.setdefault(stream, _Stream())
        if not state.text:
            state.since = now
        *lines, state.text = (state.text + state.decoder.decode(data)).split("\n")
        for line in lines:
            self._record(stream, now, line + "\n")
        while len(state.text) > _LINE:
            self._record(stream, now, state.text[:_LINE])
            state.text = state.text[_LINE:]
        if lines:
            state.since = now

    def tick(self, now: float) -> None:
        """Write lines that have waited long for their end."""
        for stream, state in self._streams.items():
            if state.text and now - state.since > _PATIENCE:
                self._record(stream, now, state.text)
                state.text = ""

    def close(self, now: float) -> None:
        """Write all that is left."""
        for stream, state in self._streams.items():
            rest = state.text + state.decoder.decode(b"", final=True)
            if rest:
                self._record(stream, now, rest)
        if self._dropped:
            note = f"kgo: the local Kaggle left out {self._dropped} records here: the log is too long\n"
            self._write(_encode("stderr", now, note))
        for record in self._tail:
            self._write(record)
        self._file.close()

    def _record(self, stream: str, now: float, text: str) -> None:
        record = _encode(stream, now, text)
        if self._room >= len(record):
            self._room -= len(record)
            self._dropped += not self._write(record)
            return
        self._room = 0
        self._tail.append(record)
        self._tail_size += len(record)
        while self._tail_size > self._tail_limit and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft())
            self._dropped += 1

    def _write(self, record: bytes) -> bool:
        """Append a record, whole or not at all: on a full disk the session goes on without its log."""
        start = self._file.tell()
        try:
            if self._file.write(record) == len(record):
                return True
        except OSError:
            pass
        self._file.truncate(start)
        self._file.seek(start)
        return False


def _encode(stream: str, now: float, text: str) -> bytes:
    record = {"stream_name": stream, "time": round(now, 6), "data": text}
    return json.dumps(record, ensure_ascii=True).encode() + b"\n"


class LogReader:
    """Reads a log's records as JSON texts, also while it is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[str]:
        """The records since the last call; a half-written one waits for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode().splitlines()


def whole_log(path: Path) -> str:
    """The log as Kaggle hands it out once a session is over: a JSON array."""
    return "[" + "\n,".join(LogReader(path).new()) + "\n]"
