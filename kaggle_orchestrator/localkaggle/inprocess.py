"""A local Kaggle in this process: the same server behind an HTTP adapter, without sockets, on a clock of the caller's.

With a clock that only waiting moves and an actor that plays the sessions, thousands of sessions take no time.
"""

import asyncio
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from http.client import RemoteDisconnected, responses
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

import requests
from requests.adapters import BaseAdapter
from starlette.types import ASGIApp, Receive
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import ProtocolError, ReadTimeoutError
from urllib3.response import HTTPResponse

from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.localkaggle.app import make_app
from kaggle_orchestrator.localkaggle.context import Context
from kaggle_orchestrator.localkaggle.failing import LINE
from kaggle_orchestrator.localkaggle.records import Session
from kaggle_orchestrator.localkaggle.scripted import Actor
from kaggle_orchestrator.localkaggle.world import World

T = TypeVar("T")
URL = "http://127.0.0.1:9"
"""Looks like a local Kaggle's address; nothing is ever sent there."""


class LocalKaggle:
    """A world and the server over it, until the block ends. Sessions that live are left as they are."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock,
        knobs: Mapping[str, object] | None = None,
        faults: Sequence[Mapping[str, Any]] = (),
        actor: Actor | None = None,
    ) -> None:
        """Nothing is made yet.

        Args:
            root: Folder of the world.
            clock: Its time.
            knobs: Knobs to turn first.
            faults: Scripted faults to add first.
            actor: Plays the sessions; all without one, and those that it leaves, are real processes (the latter in
                namespaces), and want a clock that runs.

        Raises:
            UsageError: A knob or fault is wrong; when entered.
        """
        self._root = root
        self._clock = clock
        self._knobs = dict(knobs or {})
        self._faults = list(faults)
        self._actor = actor
        self.url = URL

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local Kaggle", daemon=True)
        self._thread.start()
        try:
            self._context = self.do(self._open)
        except BaseException:
            self._close()
            raise
        self.adapter = Adapter(self._loop, make_app(self._context))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self._context.world.close)
        self._close()

    def _open(self) -> Context:
        world = World(self._root, durable=False)
        boxed = self._actor is not None  # what is played needs no namespaces
        try:
            context = Context(world, self._clock, boxed, "there is no server process", "", self._actor, patient=False)
            context.sessions.url = URL
            context.set_knobs(self._knobs)
            context.faults.add(self._faults)
        except BaseException:
            world.close()
            raise
        return context

    def _close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, action: Callable[[], T]) -> T:
        """Call something in the server's own thread, where alone the world may be touched."""

        async def call() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def sessions(self) -> list[Session]:
        """All sessions up to now, oldest first."""

        def look() -> list[Session]:
            self._context.sessions.refresh()
            return self._context.world.sessions()

        return self.do(look)

    def set_knobs(self, **knobs: object) -> None:
        """Turn knobs.

        Raises:
            UsageError: No such knob, or not a value of it.
        """
        self.do(lambda: self._context.set_knobs(knobs))

    def add_faults(self, faults: Sequence[Mapping[str, Any]]) -> None:
        """Add scripted faults; they count from now on.

        Raises:
            UsageError: One isn't a fault.
        """
        self.do(lambda: self._context.faults.add(list(faults)))


class Adapter(BaseAdapter):
    """Hands requests to an ASGI application in another thread's loop, one whole answer at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: ASGIApp) -> None:
        super().__init__()
        self._loop = loop
        self._app = app

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        """Answer a request.

        Raises:
            requests.ReadTimeout: A fault keeps the server silent; nothing waits for it.
            requests.ConnectionError: A fault cuts the connection.
        """
        exchange = _Exchange(request)
        # However busy the machine is, no answer is late: what happens depends on the caller's clock alone.
        asyncio.run_coroutine_threadsafe(exchange.run(self._app), self._loop).result()
        if exchange.held:
            late = ReadTimeoutError(HTTPConnectionPool("127.0.0.1"), request.url or "", "Read timed out.")
            raise requests.exceptions.ReadTimeout(late, request=request)
        if exchange.status == 0:
            gone = RemoteDisconnected("Remote end closed connection without response")
            raise requests.exceptions.ConnectionError(ProtocolError("Connection aborted.", gone), request=request)
        return exchange.response()

    def close(self) -> None:
        """Nothing is open."""


class _Exchange:
    """One request, its answer, and the line between: see :class:`kaggle_orchestrator.localkaggle.failing.Line`.

    Attributes:
        status: Of the answer; 0 as long as there is none.
        held: A fault keeps the server silent.
    """

    def __init__(self, request: requests.PreparedRequest) -> None:
        assert request.url
        self._request = request
        self._body = io.BytesIO()
        self.status = 0
        self.held = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._asked = False

    async def cut(self) -> None:
        """What came is all that comes."""

    async def hold(self, receive: Receive) -> None:
        """Nothing comes."""
        self.held = True

    async def run(self, app: ASGIApp) -> None:
        parts = urlsplit(self._request.url or "")
        path = parts.path if isinstance(parts.path, str) else ""
        headers = [(k.lower().encode(), str(v).encode("latin-1")) for k, v in self._request.headers.items()]
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self._request.method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": str(parts.query).encode(),
            "root_path": "",
            "headers": [(b"host", str(parts.netloc).encode()), *headers],
            "server": (parts.hostname, parts.port),
            "client": ("127.0.0.1", 1),
            LINE: self,
        }
        await app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._asked:
            await asyncio.Event().wait()  # the client stays as long as it takes
        self._asked = True
        body = self._request.body or b""
        if isinstance(body, str):
            body = body.encode()
        elif not isinstance(body, bytes):
            body = body.read() if hasattr(body, "read") else b"".join(body)
        return {"type": "http.request", "body": body, "more_body": False}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self._headers = message["status"], list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._body.write(message.get("body", b""))

    def response(self) -> requests.Response:
        """The answer as requests has it."""
        self._body.seek(0)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in self._headers}
        raw = HTTPResponse(
            body=self._body,
            headers=headers,
            status=self.status,
            reason=responses.get(self.status, ""),
            preload_content=False,
            enforce_content_length=True,
            request_method=self._request.method,
        )
        response = requests.Response()
        response.status_code = self.status
        response.headers = requests.structures.CaseInsensitiveDict(headers)
        response.raw = raw
        response.url = self._request.url or ""
        response.request = self._request
        response.reason = raw.reason or ""
        response.encoding = requests.utils.get_encoding_from_headers(response.headers)
        return response
