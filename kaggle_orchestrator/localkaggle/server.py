"""Runs the server: one a folder, on loopback unless told otherwise, until it's told to stop or nobody needs it."""

import asyncio
import fcntl
import ipaddress
import logging
import os
import secrets
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.errors import LocalKaggleError, UsageError
from kaggle_orchestrator.localkaggle import datasets, detect
from kaggle_orchestrator.localkaggle.address import LocalServer, Record, lock_path, remove_record, write_record
from kaggle_orchestrator.localkaggle.app import make_app
from kaggle_orchestrator.localkaggle.context import Context
from kaggle_orchestrator.localkaggle.faultscript import parse_fault
from kaggle_orchestrator.localkaggle.knobs import BoxMode, Knobs
from kaggle_orchestrator.localkaggle.outputs import remove_tree
from kaggle_orchestrator.localkaggle.scripted import parse_casting
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.protocol.jsonable import Malformed

_log = logging.getLogger(__name__)
_TICK = 0.25
_AFTER_TROUBLE = 5.0
_LOCK_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve.

    Attributes:
        root: Folder of the world.
        port: 0 lets the system pick one.
        host: Address to listen on.
        public: Allow an address that isn't loopback.
        idle_s: End after so many seconds without a session or a request; None: never.
        knobs: Knobs to turn first.
        faults: Scripted faults to add first.
        scripts: Courses of sessions that need no process.
    """

    root: Path
    port: int = 0
    host: str = "127.0.0.1"
    public: bool = False
    idle_s: float | None = None
    knobs: Mapping[str, object] = field(default_factory=dict)
    faults: Sequence[Mapping[str, Any]] = ()
    scripts: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that is ready, and how it keeps sessions apart."""

    server: LocalServer
    boxed: bool
    box_reason: str


def serve(options: Options, ready: Callable[[Serving], None]) -> None:
    """Serve until SIGINT, SIGTERM, the stop route or idleness; then end all sessions.

    Args:
        options: How.
        ready: Called once requests are answered.

    Raises:
        LocalKaggleError: Another server has the folder, its world can't be used, or the address can't be had.
        UsageError: A knob or fault is wrong, or the address is public without permission.
    """
    if not options.public and not _is_loopback(options.host):
        raise UsageError(
            f"{options.host} is not loopback: whoever reaches this server runs code on this machine.",
            hint="--public allows it all the same.",
        )
    Knobs().changed(options.knobs)
    for fault in options.faults:
        parse_fault(fault)
    for script in options.scripts:
        parse_casting(script)
    root = options.root.absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds sources and the key of signed URLs
    _become_only_server(root)
    with _listen(options.host, options.port) as listener:
        try:
            asyncio.run(_serve(options, root, listener, ready))
        except sqlite3.OperationalError as error:  # no room, no right
            hint = "Check the free space and the rights of its folder; KGO_HOME or --root names another one."
            raise LocalKaggleError(f"The world in {root} can't be used: {error}.", hint=hint) from error
        except (sqlite3.DatabaseError, Malformed) as error:
            hint = "Move the folder away to start afresh; its sessions' outputs lie in it."
            raise LocalKaggleError(f"The world in {root} is damaged: {error}.", hint=hint) from error


async def _serve(options: Options, root: Path, listener: socket.socket, ready: Callable[[Serving], None]) -> None:
    for leftover in (*root.glob(f"{detect.PROBE}*"), root / "datasets" / datasets.INCOMING):  # of a killed server
        remove_tree(leftover)
    world = World(root)
    turned = Knobs().remembered(world.fact("knobs")).changed(options.knobs)
    boxed, reason = detect.detect(root) if turned.box is BoxMode.AUTO else (False, "turned off by a knob")
    context = Context(world, SystemClock(), boxed, reason, secrets.token_hex(8))
    context.set_knobs(turned.jsonable())
    context.faults.add(list(options.faults))
    world.add_castings(options.scripts)
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    context.sessions.url = url
    config = uvicorn.Config(
        make_app(context, any_host=options.public),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,  # an open log stream would hold it up for ever
        server_header=False,
        timeout_keep_alive=75,
    )
    server = _Uvicorn(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: setattr(context, "stopping", True))
    context.sessions.refresh()  # sessions that ended while no server looked
    serving = loop.create_task(server.serve(sockets=[listener]))
    try:
        write_record(root, Record(url, os.getpid(), context.nonce))
        ready(Serving(LocalServer(url, os.getpid(), root), boxed, reason))
        await _until_done(context, options.idle_s, serving)
    finally:
        remove_record(root)
        context.stopping = True
        server.should_exit = True
        await serving
        context.sessions.end_all()
        world.close()


async def _until_done(context: Context, idle_s: float | None, serving: "asyncio.Task[None]") -> None:
    while not context.stopping and not serving.done():
        await asyncio.sleep(_TICK)
        try:
            alive = context.sessions.refresh()
        except (OSError, sqlite3.Error):  # a full disk ends no session: the next look tries again
            _log.exception("sessions can't be looked at")
            await asyncio.sleep(_AFTER_TROUBLE)
            continue
        now = context.machine.now()
        if alive:
            context.last_used = now
        elif idle_s is not None and now - context.last_used > idle_s:
            _log.info("idle for %g s", idle_s)
            return


class _Uvicorn(uvicorn.Server):
    """Leaves signals to this module: uvicorn would raise them again and cut the ending of sessions short."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _become_only_server(root: Path) -> None:
    """Take the folder's lock. It's kept until the process is gone, so that whoever sees it free sees no server."""
    lock = os.open(lock_path(root), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _LOCK_PATIENCE
    while not _try_lock(lock):  # whoever looks whether a server runs holds it for a moment
        if time.monotonic() > until:
            os.close(lock)
            hint = "Ctrl-C ends it, or `kgo local stop` where it's the one in KGO_HOME; --root serves another folder."
            raise LocalKaggleError(f"A local Kaggle already serves {root}.", hint=hint)
        time.sleep(0.02)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio turns Nagle's algorithm off only where the protocol is named; it would cost 40 ms an answer.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        raise LocalKaggleError(f"{host}:{port} can't be had: {error.strerror or error}") from error
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
