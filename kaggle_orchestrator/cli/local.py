"""``kgo local``: the local Kaggle in the foreground, what runs on it, and its end."""

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kaggle_orchestrator.cli.options import json_option, print_json
from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.profile import Profile

SCHEMA = 1
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group("local")
def command() -> None:
    """The local Kaggle: a server on this machine that needs no account."""


@command.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 lets the system pick one.")
@click.option("--root", type=click.Path(path_type=Path, file_okay=False), help="Folder of its world.")
@click.option("--faults", type=_FILE, help="JSON list of faults.")
@click.option("--sessions", type=_FILE, help="JSON list of courses of sessions that then need no process.")
@click.option("--profile", type=_FILE, help="Knobs as `kgo probe` measured them; --knob goes before.")
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="Turn a knob; may be repeated.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--public", is_flag=True, help="Allow an address that isn't loopback. Who reaches it runs code here.")
def serve(
    port: int,
    root: Path | None,
    faults: Path | None,
    sessions: Path | None,
    profile: Path | None,
    knobs: tuple[str, ...],
    host: str,
    public: bool,
) -> None:
    """Serve in the foreground; Ctrl-C ends it and its sessions.

    The first line on stdout is its address.
    """
    from kaggle_orchestrator.cli.context import home
    from kaggle_orchestrator.localkaggle.background import root_of
    from kaggle_orchestrator.localkaggle.identity import TOKEN
    from kaggle_orchestrator.localkaggle.knobs import parse_settings
    from kaggle_orchestrator.localkaggle.server import Options, Serving
    from kaggle_orchestrator.localkaggle.server import serve as serve_

    def ready(serving: Serving) -> None:
        click.echo(serving.server.url)
        mode = "in namespaces of their own" if serving.boxed else "through session variables, not isolated"
        click.echo(f"kgo: sessions run {mode}: {serving.box_reason}", err=True)
        click.echo(f"export KAGGLE_API_TOKEN={TOKEN} KGO_ENDPOINT={serving.server.url}", err=True)

    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    options = Options(
        root=root or root_of(home()),
        port=port,
        host=host,
        public=public,
        knobs={**(Profile.load(profile).measured() if profile else {}), **parse_settings(knobs)},
        faults=_read_list(faults, "faults"),
        scripts=_read_list(sessions, "courses of sessions"),
    )
    serve_(options, ready)


def _read_list(path: Path | None, of: str) -> list[Any]:
    if path is None:
        return []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise UsageError(f"{path}: expected a list of {of}")
    return entries


@command.command()
@json_option
def ps(as_json: bool) -> None:
    """Show the server in the background and its sessions."""
    from kaggle_orchestrator.cli.context import home
    from kaggle_orchestrator.localkaggle import admin, background

    server = background.running(home())
    sessions = admin.sessions(server.url) if server else []
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "server": {"url": server.url, "pid": server.pid, "root": str(server.root)} if server else None,
                "sessions": [{**asdict(s), "output": str(s.output), "log": str(s.log)} for s in sessions],
            }
        )
        return
    if server is None:
        click.echo("kgo: no local Kaggle runs", err=True)
        return
    click.echo(f"kgo: {server.url}, pid {server.pid}, {server.root}", err=True)
    now = admin.health(server.url)["clock"]["now"]
    for s in sessions:
        ran = f"{(s.ended or now) - s.started:.0f} s" if s.started else ""
        click.echo(f"{s.id}  {s.kernel}  v{s.version}  {s.status.value}  {ran}  {s.output}")


@command.command()
def stop() -> None:
    """End the server in the background and its sessions; what they made stays."""
    from kaggle_orchestrator.cli.context import home
    from kaggle_orchestrator.localkaggle import background

    click.echo("kgo: stopped" if background.stop(home()) else "kgo: no local Kaggle runs", err=True)
