"""Uploading a file: from where it broke, to the address that was given for it, or from the start to a new one."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import requests

from kaggle_orchestrator.client.landing import disk_errors
from kaggle_orchestrator.client.policy import Retry
from kaggle_orchestrator.client.translate import Call, file_failure, translated
from kaggle_orchestrator.client.wire import answer_of
from kaggle_orchestrator.errors import ArtifactError, KaggleError

_GONE = frozenset({404, 410})

Start = Callable[[], tuple[str, str]]
"""Begins an upload: its token, and the address to put its bytes to."""


def upload(session: requests.Session, path: Path, size: int, start: Start, call: Call, retry: Retry) -> str:
    """Upload a file of ``size`` bytes; returns the token that names it.

    Raises:
        ArtifactError: It can't be read, or was changed meanwhile.
        KaggleError: It can't be uploaded, several times in a row without progress.
    """
    with disk_errors(path), path.open("rb") as file:
        begun = os.fstat(file.fileno()).st_mtime_ns

        def check() -> None:
            found = os.fstat(file.fileno())
            if (found.st_size, found.st_mtime_ns) != (size, begun):
                hint = "Nothing was made of it; try again."
                raise ArtifactError(f"{path} was changed while it was uploaded.", hint=hint)

        check()
        token = _all_of(session, file, size, start, check, call, retry)
        check()
    return token


def _all_of(
    session: requests.Session,
    file: BinaryIO,
    size: int,
    start: Start,
    check: Callable[[], None],
    call: Call,
    retry: Retry,
) -> str:
    token, url = start()
    sent = furthest = faults = 0
    while True:
        try:
            if _put(session, url, file, sent, size, call, retry.now()):
                return token
            error = KaggleError(f"{call.what} broke off.")
        except KaggleError as found:
            if not retry.may_pass(found):
                raise
            error = found
        faults += 1
        retry.pause(error, faults)
        arrived = _arrived(session, url, size, call, retry)
        check()
        if arrived is None:
            token, url = start()
            sent = 0
        elif arrived == size:
            return token
        else:
            sent = arrived
        if sent > furthest:
            furthest, faults = sent, 0
        if faults >= retry.policy.attempts:
            raise error


def _put(session: requests.Session, url: str, file: BinaryIO, sent: int, size: int, call: Call, now: float) -> bool:
    """Send the bytes from ``sent`` on; whether all of the file has arrived."""
    file.seek(sent)
    headers = {"Content-Range": f"bytes {sent}-{size - 1}/{size}"} if sent else {}
    body = file if size > sent else b""
    with translated(call), session.put(url, data=body, headers=headers) as response:
        if response.status_code in (200, 201):
            return True
        if response.status_code == 308 or response.status_code in _GONE:
            return False
        raise file_failure(answer_of(response, b"", now), call)


def _arrived(session: requests.Session, url: str, size: int, call: Call, retry: Retry) -> int | None:
    """Bytes that the other side has; None: it doesn't know of the upload any more."""

    def once() -> int | None:
        headers = {"Content-Range": f"bytes */{size}"}
        with translated(call), session.put(url, data=b"", headers=headers) as response:
            if response.status_code in (200, 201):
                return size
            if response.status_code in _GONE:
                return None
            if response.status_code != 308:
                raise file_failure(answer_of(response, b"", retry.now()), call)
            span = re.fullmatch(r"bytes=0-(\d{1,15})", response.headers.get("Range", ""))
            return int(span[1]) + 1 if span else 0

    return retry(once)
