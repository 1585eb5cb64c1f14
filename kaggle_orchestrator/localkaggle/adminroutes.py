"""Routes below ``/_kgo/``: what the local Kaggle has besides Kaggle's own API.

They can set an interpreter and read folders, so they want a header that no web page can send.
"""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle import datasets
from kaggle_orchestrator.localkaggle.context import Context
from kaggle_orchestrator.localkaggle.records import Interpreter
from kaggle_orchestrator.localkaggle.scripted import parse_casting
from kaggle_orchestrator.localkaggle.wire import Fields, Refusal, is_name, parse_body
from kaggle_orchestrator.models import KernelRef
from kaggle_orchestrator.protocol import KgoError

HEALTH = "/_kgo/health"
HEADER = "x-kgo-admin"

Handler = Callable[[Context, Fields], Awaitable[dict[str, Any]]]


def admin(context: Context, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of an admin route."""

    async def endpoint(request: Request) -> Response:
        if HEADER not in request.headers:
            raise Refusal(403, f"Admin routes want the header {HEADER}.")
        try:
            return JSONResponse(await handler(context, parse_body(await request.body())))
        except KgoError as error:
            raise Refusal(400, error.message) from error

    return endpoint


async def health(context: Context, fields: Fields) -> dict[str, Any]:
    """Who this is."""
    return {
        "nonce": context.nonce,
        "pid": os.getpid(),
        "root": str(context.world.root),
        "box": context.boxed,
        "box_reason": context.box_reason,
        "clock": {"now": context.clock.now(), "factor": context.clock.factor},
    }


async def put_dataset(context: Context, fields: Fields) -> dict[str, Any]:
    """Take a snapshot of a folder."""
    owner, _, slug = fields.text("name").partition("/")
    folder = Path(fields.text("folder"))
    if not is_name(owner) or not is_name(slug):
        raise Refusal(400, f"{fields.text('name')!r} is not a dataset: expected owner/slug")
    if not folder.is_absolute() or not folder.exists():
        raise Refusal(400, f"{folder} doesn't exist")
    try:
        current = context.world.dataset(owner, slug, now=context.clock.now())
        if current and current.digest == await asyncio.to_thread(datasets.content_digest, folder):
            return {"version": current.version}
        taken = await asyncio.to_thread(datasets.snapshot, folder, context.world.root)
    except (OSError, shutil.Error) as error:
        raise Refusal(400, f"{folder} can't be copied: {error}") from error
    return {"version": datasets.keep_snapshot(context, owner, slug, taken)}


async def configure_kernel(context: Context, fields: Fields) -> dict[str, Any]:
    """Set the interpreter of a kernel's sessions."""
    ref = KernelRef.parse(fields.text("kernel"))
    python = fields.text("python")
    interpreter = await asyncio.to_thread(_inspect, python) if python else None
    context.world.set_interpreter(ref, interpreter)
    return {}


def _inspect(python: str) -> Interpreter:
    question = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix]))"
    if not Path(python).is_absolute():
        raise UsageError(f"interpreter {python!r}: expected an absolute path")
    try:
        command = [python, "-I", "-c", question]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd="/").stdout
        return Interpreter(python, tuple(dict.fromkeys(str(p) for p in json.loads(found))))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UsageError(f"interpreter {python!r} doesn't run: {error}") from error


async def add_faults(context: Context, fields: Fields) -> dict[str, Any]:
    """Add scripted faults: all, or none."""
    faults = fields.data.get("faults")
    if not isinstance(faults, list):
        raise UsageError("faults: expected a list")
    context.faults.add(faults)
    return {"added": len(faults)}


async def add_scripts(context: Context, fields: Fields) -> dict[str, Any]:
    """Add courses of sessions: all, or none."""
    scripts = fields.data.get("scripts")
    if not isinstance(scripts, list):
        raise UsageError("scripts: expected a list")
    for script in scripts:
        parse_casting(script)
    context.world.add_castings(scripts)
    return {"added": len(scripts)}


async def set_knobs(context: Context, fields: Fields) -> dict[str, Any]:
    """Turn knobs; what all of them are then."""
    context.set_knobs(dict(fields.data))
    return context.knobs.jsonable()


async def list_sessions(context: Context, fields: Fields) -> dict[str, Any]:
    """All sessions, oldest first."""
    return {
        "sessions": [
            {
                "id": session.id,
                "kernel": str(session.kernel),
                "version": session.version,
                "status": session.status.value,
                "message": session.message,
                "created": session.created,
                "started": session.started,
                "ended": session.ended,
                "limit_s": session.limit_s,
                "output": str(context.sessions.folder(session).working),
                "log": str(context.sessions.folder(session).log),
            }
            for session in context.world.sessions()
        ]
    }


async def stop(context: Context, fields: Fields) -> dict[str, Any]:
    """End the server and its sessions."""
    context.stopping = True
    return {}


ROUTES: list[tuple[str, str, Handler]] = [
    (HEALTH, "GET", health),
    ("/_kgo/dataset", "POST", put_dataset),
    ("/_kgo/kernel", "POST", configure_kernel),
    ("/_kgo/faults", "POST", add_faults),
    ("/_kgo/scripts", "POST", add_scripts),
    ("/_kgo/knobs", "POST", set_knobs),
    ("/_kgo/sessions", "GET", list_sessions),
    ("/_kgo/stop", "POST", stop),
]
