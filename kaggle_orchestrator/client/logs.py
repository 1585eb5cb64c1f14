"""A session's log as it is written: live events while it runs, the whole log afterwards, each record told once.

Kaggle's balancer drops a live log every few minutes, and who comes back is told everything from the start; a stream
that ends without its last word was dropped, however cleanly.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import islice

import requests

from kaggle_orchestrator.client.policy import Retry
from kaggle_orchestrator.client.translate import Call, bad_answer, document, translated
from kaggle_orchestrator.client.wire import answer_of, blocks
from kaggle_orchestrator.errors import KaggleError, Unavailable
from kaggle_orchestrator.models import LogRecord

END_OF_LOG = "END_OF_LOG"
_LONGEST = 256 << 20
_BLOCK = 1 << 16
_ERROR_BLOCKS = 16
"""Blocks of an error's body that are read."""
_SLOWEST = 4
"""Drops in a row after which the waits don't grow any more: a line shouldn't come much too late."""

Open = Callable[[], AbstractContextManager[requests.Response]]
"""Opens the log anew."""


class _Dropped(Exception):
    """A live log broke off."""


def follow(open_: Open, call: Call, retry: Retry) -> Iterator[LogRecord]:
    """Every record once, as it comes, until the session is over.

    Raises:
        KaggleError: The log can't be had, several times in a row without a new record.
        Unavailable: A live log said nothing new for ``policy.silence_s``, and didn't end.
    """
    told = faults = drops = 0
    heard = retry.now()
    while True:
        count = 0
        error: KaggleError | None = None
        try:
            for record in _records(open_, call, retry.now()):
                count += 1
                if count > told:
                    told, faults, drops, heard = count, 0, 0, retry.now()
                    yield record
            return
        except _Dropped as dropped:
            faults, drops = 0, drops + 1
            if retry.now() - heard > retry.policy.silence_s:
                hours = retry.policy.silence_s / 3600
                raise Unavailable(f"Nothing new in {call.what} for {hours:.3g} h, and it doesn't end.") from dropped
        except KaggleError as found:
            error, faults = found, faults + 1
            if not retry.may_pass(found) or faults >= retry.policy.attempts:
                raise
        retry.pause(error, max(1, faults, min(drops, _SLOWEST)))


def _records(open_: Open, call: Call, now: float) -> Iterator[LogRecord]:
    """The records of one connection, up to the log's end.

    Raises:
        _Dropped: A live log's connection ended before its last word, or was silent for too long.
        KaggleError: There is no log to be had.
    """
    with ExitStack() as stack:
        with translated(call):
            response = stack.enter_context(open_())
            if response.status_code != 200:
                body = b"".join(islice(blocks(response, _BLOCK), _ERROR_BLOCKS))
                document(answer_of(response, body, now), call)
                raise bad_answer(call, f"it has status {response.status_code}")
            live = "event-stream" in response.headers.get("content-type", "")
            if not live:
                yield from _whole(response, call)
                return
        try:
            with translated(call):
                for line in _lines(response):
                    if not line.startswith(b"data:"):
                        continue
                    text = line[5:].strip().decode("utf-8", errors="replace")
                    if text == END_OF_LOG:
                        return
                    yield _record(text)
        except Unavailable as error:  # a training may say nothing for hours
            raise _Dropped from error
        raise _Dropped


def _lines(response: requests.Response) -> Iterator[bytes]:
    """Whole lines, each as soon as it's there."""
    rest = b""
    for block in blocks(response, _BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines


def _whole(response: requests.Response, call: Call) -> Iterator[LogRecord]:
    body = bytearray()
    for block in blocks(response, _BLOCK):
        body += block
        if len(body) > _LONGEST:
            raise bad_answer(call, "it is endless")
    try:
        entries = json.loads(bytes(body) or b"[]")
    except (ValueError, RecursionError) as error:
        raise bad_answer(call, "it is not JSON") from error
    if not isinstance(entries, list):
        raise bad_answer(call, "it is not a list")
    yield from (_parsed(entry) for entry in entries if isinstance(entry, dict))


def _record(text: str) -> LogRecord:
    """One event's record; what isn't one is told as it is, as the official client does, since it counts in a replay."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        entry = None
    return _parsed(entry) if isinstance(entry, dict) else LogRecord("stdout", 0.0, text)


def _parsed(entry: dict[str, object]) -> LogRecord:
    stream, time, data = entry.get("stream_name"), entry.get("time"), entry.get("data")
    try:
        seconds = float(time) if isinstance(time, int | float) else 0.0
    except OverflowError:
        seconds = 0.0
    return LogRecord(str(stream or "stdout"), seconds, data if isinstance(data, str) else "")
