"""Uploads: a token and an address for each file, whose bytes may come in several pieces.

What arrived before a break stays and is told on asking, so an upload goes on where it broke.
"""

import re
import secrets
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from kaggle_orchestrator.localkaggle.context import Call, Context
from kaggle_orchestrator.localkaggle.records import Blob
from kaggle_orchestrator.localkaggle.wire import Refusal

ROUTE = "/_kgo/blob"
_LARGEST = 100 << 30
_TOKEN = re.compile(r"[0-9a-f]{32}")
_SPAN = re.compile(r"bytes (?:(\d{1,15})-(\d{1,15})|\*)/(\d{1,15})")


def path_of(root: Path, token: str) -> Path:
    """Where a blob's bytes lie."""
    return root / "blobs" / token


def start_upload(context: Context, call: Call) -> dict[str, object]:
    """A token, and where to put the bytes."""
    fields = call.fields
    name, size = fields.text("name"), fields.integer("contentLength")
    if not name or "/" in name or name in (".", "..") or len(name.encode()) > 255:
        raise Refusal(400, f"name: {name[:100]!r} is not a file's name")
    if size is not None and not 0 <= size < _LARGEST:
        raise Refusal(400, "contentLength: expected a size in bytes")
    fields.integer("lastModifiedEpochSeconds")
    token = secrets.token_hex(16)
    path = path_of(context.world.root, token)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    context.world.add_blob(Blob(token, call.user, name, size, context.clock.now()))
    return {"token": token, "createUrl": f"{call.base}{ROUTE}/{token}"}


async def put(context: Context, request: Request) -> Response:
    """Bytes of a blob, or the question how many there are. The address is all the credentials it needs."""
    token = request.path_params["token"]
    blob = context.world.blob(token) if _TOKEN.fullmatch(token) else None
    if blob is None or context.clock.now() > blob.created + context.knobs.url_ttl_s:
        raise Refusal(404, "The upload is unknown, or has expired.")
    path, start = path_of(context.world.root, token), 0
    have = path.stat().st_size
    whole = blob.size
    if header := request.headers.get("content-range"):
        span = _SPAN.fullmatch(header)
        if not span or (whole is not None and int(span[3]) != whole):
            raise Refusal(400, f"Content-Range: {header[:60]!r} doesn't fit")
        whole = int(span[3])
        if span[1] is None:
            return _standing(have, whole)
        start = int(span[1])
        if start > have:
            return _standing(have, whole)
    have = await _append(path, start, whole, request)
    return _standing(have, have if whole is None else whole)


async def _append(path: Path, start: int, whole: int | None, request: Request) -> int:
    """Write what comes from ``start`` on; how many bytes there are then, though the client may have gone."""
    with path.open("r+b", buffering=0) as file:
        file.seek(start)
        file.truncate()
        try:
            async for block in request.stream():
                if whole is not None and file.tell() + len(block) > whole:
                    raise Refusal(400, f"More bytes came than the {whole} that were announced.")
                file.write(block)
        except ClientDisconnect:
            pass
        return file.tell()


def _standing(have: int, whole: int) -> Response:
    if have == whole:
        return Response(status_code=200)
    return Response(status_code=308, headers={"Range": f"bytes=0-{have - 1}"} if have else {})


def whole_blob(context: Context, user: str, token: str) -> tuple[Blob, Path]:
    """A blob that has all its bytes.

    Raises:
        Refusal: It isn't there, or isn't whole.
    """
    blob = context.world.blob(token) if _TOKEN.fullmatch(token) else None
    path = path_of(context.world.root, token)
    if blob is None or blob.owner != user or not path.exists():
        raise Refusal(404, "A file's token is unknown.")
    if blob.size is not None and path.stat().st_size != blob.size:
        raise Refusal(400, f"The upload of {blob.name!r} isn't complete.")
    return blob, path
