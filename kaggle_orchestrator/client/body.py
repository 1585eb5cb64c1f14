"""One file's body over one or several connections: hashed in order, continued only where it is surely the same file."""

import hashlib
import io
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import requests

from kaggle_orchestrator.client.landing import disk_errors
from kaggle_orchestrator.client.translate import Call, file_failure, translated
from kaggle_orchestrator.client.wire import answer_of, blocks
from kaggle_orchestrator.errors import Damaged, KaggleError, Throttled, Unavailable
from kaggle_orchestrator.protocol import FileDigest

_BLOCK = 1 << 20
EXPIRED = frozenset({400, 401, 403, 404, 410})
"""How storage servers answer to a signature that ended; a file that is gone looks the same."""


class Expired(Exception):
    """A signed URL isn't taken any more."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Stopped(Exception):
    """The download was called off."""


@dataclass(slots=True)
class Body:
    """What has come of one file so far, written to ``sink``.

    Attributes:
        largest: More bytes than this are an error.
        size: Bytes so far.
        etag: The strong validator of the file they are of; None: they can't be continued.
        total: The file's size as its server says.
        began: Called with validator and size whenever the body begins anew, before its first byte is written.
    """

    name: str
    sink: BinaryIO
    largest: int | None = None
    size: int = 0
    etag: str | None = None
    total: int | None = None
    began: Callable[[str | None, int | None], None] = lambda etag, total: None
    _sha256: Any = field(default_factory=hashlib.sha256)

    def go_on(self, etag: str, total: int | None) -> None:
        """Go on with what is in the sink already: a part of the file that has this validator.

        Raises:
            ArtifactError: It can't be read.
        """
        with disk_errors(self.name):
            if total is not None:  # the last byte is asked for in any case: only then the validator is compared
                size = self.sink.seek(0, io.SEEK_END)
                self.sink.truncate(min(size, max(0, total - 1)))
            self.sink.seek(0)
            while block := self.sink.read(_BLOCK):
                self._sha256.update(block)
                self.size += len(block)
        self.etag, self.total = etag, total

    def fetch(self, session: requests.Session, url: str, stop: threading.Event, now: float) -> None:
        """Get the rest of the body, or all of it.

        Raises:
            Expired: The URL isn't taken.
            Stopped: ``stop`` was set.
            Unavailable, Throttled, BadAnswer: Not all of it came; :attr:`size` bytes did.
            ArtifactError: It can't be written.
        """
        call = Call(self.name)
        headers = {"Accept-Encoding": "identity"}
        resume = self.etag is not None and self.size > 0
        if resume:
            headers |= {"Range": f"bytes={self.size}-", "If-Range": str(self.etag)}
        with translated(call), session.get(url, headers=headers, stream=True) as response:
            status = response.status_code
            if status == 200:
                self._begin(response)
            elif not (resume and status == 206 and self._goes_on(response)):
                if status in EXPIRED:
                    raise Expired(status)
                failure = file_failure(answer_of(response, b"", now), call)
                if not isinstance(failure, (Throttled, Unavailable)):
                    self.etag = None  # whatever this is, it isn't the rest of what is there
                raise failure
            for block in blocks(response, _BLOCK):
                if stop.is_set():
                    raise Stopped
                self._write(block)
        if self.total is not None and self.size != self.total:
            raise Unavailable(f"{self.name} broke off after {self.size} of {self.total} bytes.")

    def check(self, expected: FileDigest | None) -> FileDigest:
        """The digest of the whole body.

        Raises:
            Damaged: It isn't the expected one; the next fetch begins anew.
        """
        found = FileDigest(self._sha256.hexdigest(), self.size)
        if expected is None or found == expected:
            return found
        self.etag = None
        if found.size != expected.size:
            why = f"{found.size} bytes where {expected.size} were recorded"
        else:
            why = "its sha256 differs from the recorded one"
        raise Damaged(f"{self.name}: {why}.", files=[self.name])

    def _begin(self, response: requests.Response) -> None:
        if self.size:
            with disk_errors(self.name):
                self.sink.seek(0)
                self.sink.truncate()
        self.size, self._sha256 = 0, hashlib.sha256()
        plain = response.headers.get("Content-Encoding", "identity") == "identity"
        length, etag = response.headers.get("Content-Length", ""), response.headers.get("ETag", "")
        self.total = int(length) if plain and length.isdecimal() else None
        self.etag = etag if plain and etag.startswith('"') else None
        self.began(self.etag, self.total)

    def _goes_on(self, response: requests.Response) -> bool:
        """Whether a partial answer is what comes next, of the same file."""
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        same = (
            span is not None
            and int(span[1]) == self.size
            and (span[2] == "*" or self.total is None or int(span[2]) == self.total)
            and response.headers.get("ETag", self.etag) == self.etag
        )
        if same and span is not None and span[2] != "*":
            self.total = int(span[2])  # the first answer may not have told
        return same

    def _write(self, block: bytes) -> None:
        if self.largest is not None and self.size + len(block) > self.largest:
            raise KaggleError(f"{self.name} is larger than {self.largest} bytes.")
        with disk_errors(self.name):
            rest = memoryview(block)
            while rest:
                rest = rest[self.sink.write(rest) :]
        self._sha256.update(block)
        self.size += len(block)
