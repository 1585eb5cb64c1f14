"""Downloads: output files by signed URL, and a session's log, live or whole."""

import asyncio
import hmac
import math
import os
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kaggle_orchestrator.localkaggle.context import Call, Context
from kaggle_orchestrator.localkaggle.failing import LINE, Broken, Line, Silent
from kaggle_orchestrator.localkaggle.faultkinds import DownloadFault
from kaggle_orchestrator.localkaggle.kernels import readable, session_of
from kaggle_orchestrator.localkaggle.outputs import read_listing
from kaggle_orchestrator.localkaggle.sessionlog import LogReader, whole_log
from kaggle_orchestrator.localkaggle.spec import SessionFolder, Standing
from kaggle_orchestrator.localkaggle.wire import Fields, Refusal, denied, parse_label
from kaggle_orchestrator.protocol.globs import matches

END_OF_LOG = "END_OF_LOG"
_POLL = 0.1


class _File(FileResponse):
    chunk_size = 1 << 20  # 64 KiB, the default, takes twice as long


def output_file(context: Context, request: Request) -> Response:
    """One output file. Only what the listing names is ever opened."""
    name = request.path_params["name"]
    number, expires = request.path_params["session"], request.query_params.get("expires", "")
    if not all(text.isascii() and text.isdigit() and len(text) < 12 for text in (number, expires)):
        raise denied()
    session_id = int(number)
    signature = context.signature(session_id, name, int(expires))
    if not hmac.compare_digest(signature.encode(), request.query_params.get("signature", "").encode()):
        raise denied()
    if context.clock.now() > int(expires):
        raise Refusal(403, "The URL has expired.")
    session = context.world.session(session_id)
    if session is None:
        raise Refusal(404, "The output is gone.")
    folder = context.sessions.folder(session)
    path = folder.working / name
    if name not in read_listing(folder):
        raise Refusal(404, f"{name!r} is not in the output.")
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or not os.access(path, os.R_OK):
            raise Refusal(404, f"{name!r} can't be read.")
    except OSError as error:
        raise Refusal(404, f"{name!r} is gone.") from error
    plain = _File(path, media_type="application/octet-stream", stat_result=status)
    fault = context.faults.take(DownloadFault, lambda fault: matches(name, (fault.names,)))
    return plain if fault is None else _faulty(fault, plain, path, status.st_size, request)


def _faulty(fault: DownloadFault, plain: FileResponse, path: Path, size: int, request: Request) -> Response:
    if fault.status is not None:
        raise Refusal(fault.status, "Scripted fault: the storage fails.")
    if fault.expire:
        raise Refusal(403, "The URL has expired.")
    if fault.silence:
        return Silent()
    head = {key: plain.headers[key] for key in ("etag", "last-modified", "content-type", "accept-ranges")}
    start = _resumed(request, head["etag"], size)
    if start is not None:
        head["content-range"] = f"bytes {start}-{size - 1}/{size}"
    first = start or 0
    if fault.flip:
        data = bytearray(path.read_bytes()[first:])
        if data:
            data[len(data) // 2] ^= 1
        return Response(bytes(data), 200 if start is None else 206, head)
    part = fault.break_at if fault.break_at is not None else 0.5
    until = first + int((size - first) * part)
    return Broken(path, first, size, until, head, (lambda: _swap(path)) if fault.swap else (lambda: None))


def _resumed(request: Request, etag: str, size: int) -> int | None:
    """The first byte that is asked for, where the rest of this very file is."""
    match = re.fullmatch(r"bytes=(\d{1,18})-", request.headers.get("range", ""))
    if not match or request.headers.get("if-range", etag) != etag or int(match[1]) >= size:
        return None
    return int(match[1])


def _swap(path: Path) -> None:
    """Put another file of the same size in its place."""
    status, data = path.stat(), path.read_bytes()
    path.parent.chmod(0o755)
    path.chmod(0o644)
    path.write_bytes(bytes(byte ^ 1 for byte in data))
    path.chmod(status.st_mode)
    os.utime(path, (status.st_atime, status.st_mtime + 10))


def log_stream(context: Context, user: str, request: Request) -> Response:
    """While the session lives: server-sent events from the start; afterwards: the whole log."""
    names = {"userName": request.path_params["owner"], "kernelSlug": request.path_params["slug"]}
    call = Call(user, Fields(names), "")
    kernel = readable(context, user, call.fields.kernel())
    label = request.query_params.get("versionLabel")
    session = session_of(context, kernel, parse_label(label) if label else None)
    if session is None:
        raise Refusal(404, f"{kernel.ref} has no session")
    folder = context.sessions.folder(session)
    if session.status.terminal:
        return Response(whole_log(folder.log), media_type="application/json")
    return _Live(context, folder, session.id)


class _Live(StreamingResponse):
    """A log's events as they come, on a connection that may be dropped."""

    def __init__(self, context: Context, folder: SessionFolder, number: int) -> None:
        super().__init__(self._events(context, folder, number), media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._line: Line = scope[LINE]
        await super().__call__(scope, receive, send)

    async def _events(self, context: Context, folder: SessionFolder, number: int) -> AsyncIterator[str]:
        reader, until = LogReader(folder.log), context.clock.now() + (context.knobs.log_drop_s or math.inf)
        while not context.stopping:
            # A deleted session's folder is soon gone, too, and would look like one that is still to start.
            over = folder.standing() in (Standing.ENDED, Standing.LOST) or context.world.session(number) is None
            for record in reader.new():
                yield f"data: {record}\n\n"
            if over:
                yield f"data: {END_OF_LOG}\n\n"
                return
            if context.clock.now() >= until:
                await asyncio.sleep(0.05)  # what was said has left
                await self._line.cut()
                return
            if not context.patient:
                return
            context.last_used = context.machine.now()
            await asyncio.sleep(_POLL)
