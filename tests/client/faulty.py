"""A small HTTP server that answers by script, over real sockets: it hangs, resets, breaks off, and remembers."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

KERNELS = "/v1/kernels.KernelsApiService/"


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> dict[str, Any]:
        data = json.loads(self.body)
        assert isinstance(data, dict)
        return data


class Out:
    """What a reply writes to."""

    def __init__(self, handler: BaseHTTPRequestHandler, closing: threading.Event) -> None:
        self.handler = handler
        self.closing = closing

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def drop(self, *, reset: bool) -> None:
        """End the connection, orderly or with a reset."""
        connection = self.handler.connection
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.shutdown(socket.SHUT_RDWR)
        self.handler.wfile.close()
        self.handler.rfile.close()
        connection.close()
        self.handler.close_connection = True


Reply = Callable[[Seen, Out], None]


def answer(body: object = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole answer; what isn't bytes is sent as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {} if isinstance(body, bytes) else {"Content-Type": "application/json"}

    def reply(_: Seen, out: Out) -> None:
        out.head(status, {**kind, "Content-Length": str(len(raw)), **(headers or {})})
        out.write(raw)

    return reply


def hang(seen: Seen, out: Out) -> None:
    """No answer while the test lasts. Who waits for ever gets a good one, and the test its failure."""
    if out.closing.wait(20):
        out.drop(reset=False)
    else:
        answer({"status": "RUNNING", "versionNumber": 1})(seen, out)


def reset(_: Seen, out: Out) -> None:
    """The connection is reset after the request was read."""
    out.drop(reset=True)


def closed(_: Seen, out: Out) -> None:
    """The connection is closed after the request was read, without a byte."""
    out.drop(reset=False)


def trickle(_: Seen, out: Out) -> None:
    """One byte at a time, for ever."""
    out.head(200, {"Content-Type": "application/json"})
    while not out.closing.wait(0.02):
        try:
            out.write(b" ")
        except OSError:
            return


def broken(data: bytes, after: int, *, etag: str | None = None, reset: bool = False) -> Reply:
    """A body that ends after some bytes of those it announced."""

    def reply(_: Seen, out: Out) -> None:
        headers = {"Content-Length": str(len(data))} | ({"ETag": etag} if etag else {})
        out.head(200, headers)
        out.write(data[:after])
        out.drop(reset=reset)

    return reply


def served(data: bytes, *, etag: str | None = '"1"') -> Reply:
    """A file as a storage server gives it, with Range and If-Range."""

    def reply(seen: Seen, out: Out) -> None:
        headers = {"ETag": etag} if etag else {}
        span = seen.headers.get("range", "")
        if span and (seen.headers.get("if-range") in (None, etag)):
            start = int(span.removeprefix("bytes=").rstrip("-"))
            rest = data[start:]
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            out.head(206, {**headers, "Content-Length": str(len(rest))})
            out.write(rest)
        else:
            out.head(200, {**headers, "Content-Length": str(len(data))})
            out.write(data)

    return reply


@dataclass
class FaultyServer:
    """Replies by path, in order; the last one stays."""

    replies: dict[str, list[Reply]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    _closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _connections: int = 0

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with outer._lock:
                    outer._connections += 1
                    self.number = outer._connections

            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                url = urlsplit(self.path)
                headers = {k.lower(): v for k, v in self.headers.items()}
                seen = Seen(self.command, url.path, url.query, headers, body, self.number)
                outer.next_reply(seen)(seen, Out(self, outer._closing))

            do_GET = do_POST = handle_one

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that leaves in the middle is what many tests are about

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, path: str, *replies: Reply) -> str:
        """Script a path; returns its URL."""
        self.replies[path] = list(replies)
        return self.url + path

    def rpc(self, name: str, *replies: Reply) -> None:
        """Script a call of the kernels service."""
        self.on(KERNELS + name, *replies)

    def next_reply(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            replies = self.replies.get(seen.path)
            if not replies:
                return answer({"code": 501, "message": f"not scripted: {seen.path}"}, 501)
            return replies.pop(0) if len(replies) > 1 else replies[0]

    def calls(self, path: str) -> list[Seen]:
        """What came to a path, or to a call of the kernels service."""
        return [s for s in self.seen if s.path in (path, KERNELS + path)]
