"""Answers that aren't: a connection that is cut, a server that says nothing, a body that breaks off."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

LINE = "kgo.line"
"""Key of the scope under which a request's line lies."""
_BLOCK = 1 << 16


class Line(Protocol):
    """What a request came over."""

    async def cut(self) -> None:
        """Break it off."""

    async def hold(self, receive: Receive) -> None:
        """Say nothing until the other side goes."""


class _Socket:
    """A connection of the HTTP server's. Its transport is reached through the function that sends: ASGI has no word
    for cutting a connection."""

    def __init__(self, send: Send) -> None:
        self._cycle = getattr(send, "__self__", None)

    async def cut(self) -> None:
        transport = getattr(self._cycle, "transport", None)
        if transport is not None:
            transport.abort()
        await asyncio.sleep(0.01)  # until the server has noticed, and tries no answer

    async def hold(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


def on_lines(app: ASGIApp) -> ASGIApp:
    """The application, with each request's line in its scope."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault(LINE, _Socket(send))
        await app(scope, receive, send)

    return wrapped


class Cut(Response):
    """The connection is aborted instead of an answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[LINE].cut()


class Silent(Response):
    """No answer at all, as long as the client waits."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[LINE].hold(receive)


class Broken(Response):
    """A file's answer that is cut off on its way.

    Args:
        path: The file.
        start: First byte.
        end: Where the answer should end; its head says so.
        until: Where it does.
        headers: Further headers.
        then: Called when it was cut.
    """

    def __init__(
        self,
        path: Path,
        start: int,
        end: int,
        until: int,
        headers: dict[str, str],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(status_code=206 if "content-range" in headers else 200)
        self._path, self._span, self._then = path, (start, until), then
        self._head = [(b"content-length", str(end - start).encode())]
        self._head += [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self._head})
        start, until = self._span
        with self._path.open("rb") as file:
            file.seek(start)
            while start < until and (block := file.read(min(_BLOCK, until - start))):
                await send({"type": "http.response.body", "body": block, "more_body": True})
                start += len(block)
        await asyncio.sleep(0.02)  # what was sent has left before the rest is cut
        self._then()
        await scope[LINE].cut()
