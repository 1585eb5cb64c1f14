"""Downloads: output files by signed URL, and a session's log, live or whole."""

import asyncio
import hmac
import os
import stat
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from kaggle_orchestrator.localkaggle.context import Call, Context
from kaggle_orchestrator.localkaggle.kernels import readable, session_of
from kaggle_orchestrator.localkaggle.outputs import read_listing
from kaggle_orchestrator.localkaggle.sessionlog import LogReader, whole_log
from kaggle_orchestrator.localkaggle.spec import SessionFolder, Standing
from kaggle_orchestrator.localkaggle.wire import Fields, Refusal, denied, parse_label

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
    return _File(path, media_type="application/octet-stream", stat_result=status)


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
    return StreamingResponse(_events(context, folder), media_type="text/event-stream")


async def _events(context: Context, folder: SessionFolder) -> AsyncIterator[str]:
    reader = LogReader(folder.log)
    while not context.stopping:
        alive = folder.standing() in (Standing.ALIVE, Standing.NEW)
        for record in reader.new():
            yield f"data: {record}\n\n"
        if not alive:
            yield f"data: {END_OF_LOG}\n\n"
            return
        context.last_used = context.clock.now()
        await asyncio.sleep(_POLL)
