"""The routes: which address answers what; a route that isn't served says so by name (501)."""

import asyncio
import inspect
import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, assert_never

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kaggle_orchestrator.localkaggle import adminroutes, blobs, datasets, downloads, kernels
from kaggle_orchestrator.localkaggle.context import OUTPUT_ROUTE, Call, Context
from kaggle_orchestrator.localkaggle.failing import Cut, Silent, on_lines
from kaggle_orchestrator.localkaggle.faultkinds import ANY, Body, RpcFault
from kaggle_orchestrator.localkaggle.identity import user_of_authorization, user_of_token
from kaggle_orchestrator.localkaggle.push import save_kernel
from kaggle_orchestrator.localkaggle.throttle import Throttle
from kaggle_orchestrator.localkaggle.wire import Refusal, parse_body

_log = logging.getLogger(__name__)

_MAX_BODY = 32 << 20
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?")
SERVICES: dict[str, dict[str, kernels.Handler]] = {
    "kernels.KernelsApiService": {"SaveKernel": save_kernel, **kernels.HANDLERS},
    "datasets.DatasetApiService": {**datasets.HANDLERS},
    "blobs.BlobApiService": {"StartBlobUpload": blobs.start_upload},
}
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(context: Context, *, any_host: bool = False) -> ASGIApp:
    """The whole server as an ASGI application.

    Args:
        context: Its state.
        any_host: Answer under any host name. By default only loopback names are answered, so that no web page can
            reach the server through a name of its own.
    """
    guard = _Guard(context, any_host)
    register_url_convertor("name", _Name())
    routes = [
        Route(f"{OUTPUT_ROUTE}/{{session}}/{{name:name}}", guard(_output(context)), methods=["GET", "HEAD"]),
        Route(f"{blobs.ROUTE}/{{token}}", guard(_blob(context)), methods=["PUT"]),
        *(Route(path, guard(adminroutes.admin(context, h)), methods=[m]) for path, m, h in adminroutes.ROUTES),
    ]
    for prefix in ("/v1", "/api/v1"):
        routes += [
            Route(f"{prefix}/kernels/logs/stream/{{owner}}/{{slug}}", guard(_log_stream(context)), methods=["GET"]),
            Route(f"{prefix}/{{service}}/{{rpc}}", guard(_rpc(context)), methods=["POST"]),
        ]
    everything = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]
    routes.append(Route("/{path:path}", guard(_unserved), methods=everything))
    return on_lines(Starlette(routes=routes))


class _Name(PathConvertor):
    """An output's name: whatever a session could call a file, lines broken in it included."""

    regex = "(?s:.*)"


class _Guard:
    """Wraps an endpoint: host check, sessions looked at first, refusals as Kaggle's error bodies."""

    def __init__(self, context: Context, any_host: bool) -> None:
        self._context = context
        self._any_host = any_host

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        context = self._context

        async def guarded(request: Request) -> Response:
            try:
                if not (_HOST if self._any_host else _LOOPBACK).fullmatch(request.headers.get("host", "")):
                    raise Refusal(403, "The local Kaggle answers to loopback names only.")
                if request.scope["path"] != adminroutes.HEALTH:
                    context.last_used = context.machine.now()
                if context.knobs.latency_ms and adminroutes.HEADER not in request.headers:
                    await asyncio.sleep(context.knobs.latency_ms / 1000)
                context.sessions.refresh()
                return await endpoint(request)
            except Refusal as refusal:
                return error_response(context, refusal.status, refusal.message, refusal.headers)
            except ClientDisconnect:
                return error_response(context, 400, "The client went away.")
            except (OSError, sqlite3.Error) as error:  # a full disk, as a rule
                _log.exception("%s %s", request.method, request.scope["path"])
                return error_response(context, 503, f"The local Kaggle can't do that now: {error}")

        return guarded


def error_response(
    context: Context, status: int, message: str, headers: Mapping[str, str] | None = None, form: Body | None = None
) -> Response:
    """An error in the form that the knob ``error_body`` has, or in another one."""
    form = form or Body(context.knobs.error_body.value)
    error = {"code": status, "message": message}
    match form:
        case Body.FLAT:
            return JSONResponse(error, status, headers)
        case Body.NESTED:
            return JSONResponse({"error": error | {"status": _WORDS.get(status, "UNKNOWN")}}, status, headers)
        case Body.HTML:
            return HTMLResponse(f"<!DOCTYPE html><title>{status}</title><h1>Error</h1>\n", status, headers)
        case Body.TEXT:
            return PlainTextResponse("upstream connect error or disconnect/reset before headers", status, headers)
        case Body.EMPTY:
            return Response(b"", status, headers, "application/json")
        case Body.CUT:
            return Response(b'{"ref": "/co', status, headers, "application/json")
        case Body.LIST:
            return JSONResponse([1], status, headers)
        case unknown:
            assert_never(unknown)


_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def _rpc(context: Context) -> Endpoint:
    throttle = Throttle(context)

    async def endpoint(request: Request) -> Response:
        service, rpc = request.path_params["service"], request.path_params["rpc"]
        if (service, rpc) == ("security.OAuthService", "IntrospectToken"):
            return await _with_faults(context, rpc, lambda: _introspect(request))
        handler = SERVICES.get(service, {}).get(rpc)
        if handler is None:
            raise Refusal(501, f"The local Kaggle does not serve {service[:100]}/{rpc[:100]}.")
        user = user_of_authorization(request.headers.get("authorization"))
        if user is None:
            raise Refusal(401, "Unauthenticated: the local Kaggle knows only the token kgo-local.")
        throttle.count(user)
        call = Call(user, parse_body(await _body(request)), base_of(request))

        async def answer() -> Response:
            result: Any = handler(context, call)
            if inspect.isawaitable(result):
                result = await result
            return result if isinstance(result, Response) else JSONResponse(result)

        return await _with_faults(context, rpc, answer)

    return endpoint


async def _with_faults(context: Context, rpc: str, answer: Callable[[], Awaitable[Response]]) -> Response:
    due = context.faults.take(RpcFault, lambda fault: fault.rpc in (ANY, rpc))
    if due is None:
        return await answer()
    if due.delay_s is not None:
        await asyncio.sleep(due.delay_s)
        return await answer()
    if due.after_landing:
        with suppress(Refusal):
            await answer()
    if due.silence:
        return Silent()
    if due.reset:
        return Cut()
    if due.refuse is not None:
        return JSONResponse({"error": due.refuse})
    headers = {} if due.retry_after is None else {"Retry-After": f"{due.retry_after:.0f}"}
    return error_response(context, due.status, f"Scripted fault: {rpc} answers {due.status}", headers, due.body)


async def _introspect(request: Request) -> Response:
    user = user_of_token(parse_body(await _body(request)).text("token"))
    return JSONResponse({"active": True, "username": user} if user else {"active": False})


def _log_stream(context: Context) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        user = user_of_authorization(request.headers.get("authorization"))
        if user is None:
            raise Refusal(401, "Unauthenticated")
        return downloads.log_stream(context, user, request)

    return endpoint


def _output(context: Context) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return downloads.output_file(context, request)

    return endpoint


def _blob(context: Context) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await blobs.put(context, request)

    return endpoint


async def _unserved(request: Request) -> Response:
    raise Refusal(501, f"The local Kaggle does not serve {request.method} {request.scope['path'][:200]}.")


def base_of(request: Request) -> str:
    """The address that the client used."""
    return str(request.base_url).rstrip("/")


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            raise Refusal(413, f"The request is larger than {_MAX_BODY} bytes.")
    return body
