"""The admin routes from the client's side, over plain HTTP with the standard library."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from kaggle_orchestrator.errors import LocalKaggleError
from kaggle_orchestrator.models import SessionStatus

_TIMEOUT_S = 600.0
"""A dataset is copied within one call."""


@dataclass(frozen=True, slots=True)
class LocalSession:
    """A session as ``kgo local ps`` shows it. Times in seconds since the epoch.

    Attributes:
        id: Its number (``kernelSessionId``).
        kernel: ``owner/slug``.
        version: The version it runs.
        status: Kaggle's word.
        message: Kaggle's failure message, or empty.
        started, ended: None if it hasn't.
        limit_s: Seconds it may run.
        output: Its working folder.
        log: Its log, one JSON record a line.
    """

    id: int
    kernel: str
    version: int
    status: SessionStatus
    message: str
    started: float | None
    ended: float | None
    limit_s: float
    output: Path
    log: Path


def put_dataset(url: str, name: str, folder: Path) -> int:
    """Make a snapshot of ``folder`` the current version of dataset ``owner/slug`` and return its number.

    Unchanged content makes no new version. ``competitions/<slug>`` makes a competition's data.

    Raises:
        LocalKaggleError: The folder can't be read, or the server isn't there.
    """
    return int(_call(url, "dataset", {"name": name, "folder": str(folder.absolute())})["version"])


def configure_kernel(url: str, kernel: str, python: str | Path | None) -> None:
    """Set the interpreter of the sessions of kernel ``owner/slug``; None: the server's own.

    Raises:
        LocalKaggleError: It doesn't run, or the server isn't there.
    """
    _call(url, "kernel", {"kernel": kernel, "python": str(Path(python).absolute()) if python else ""})


def add_faults(url: str, faults: Sequence[Mapping[str, Any]]) -> None:
    """Add scripted faults; they count from now on.

    Raises:
        LocalKaggleError: One isn't a fault; none is added then.
    """
    _call(url, "faults", {"faults": list(faults)})


def add_scripts(url: str, scripts: Sequence[Mapping[str, Any]]) -> None:
    """Add courses of sessions that then need no process; see ``docs/local-kaggle.md``.

    Raises:
        LocalKaggleError: One isn't a script; none is added then.
    """
    _call(url, "scripts", {"scripts": list(scripts)})


def set_knobs(url: str, knobs: Mapping[str, object]) -> dict[str, Any]:
    """Turn knobs and return all of them.

    Raises:
        LocalKaggleError: No such knob, or not a value of it.
    """
    return _call(url, "knobs", dict(knobs))


def sessions(url: str) -> list[LocalSession]:
    """All sessions, oldest first."""
    return [
        LocalSession(
            id=s["id"],
            kernel=s["kernel"],
            version=s["version"],
            status=SessionStatus(s["status"]),
            message=s["message"],
            started=s["started"],
            ended=s["ended"],
            limit_s=s["limit_s"],
            output=Path(s["output"]),
            log=Path(s["log"]),
        )
        for s in _call(url, "sessions")["sessions"]
    ]


def health(url: str, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Who answers there: ``nonce``, ``pid``, ``root``, ``box`` (bool), ``box_reason``.

    Raises:
        LocalKaggleError: Nobody, or no local Kaggle.
    """
    return _call(url, "health", timeout_s=timeout_s)


def stop(url: str) -> None:
    """Ask the server to end its sessions and itself; it goes on doing so after this returns."""
    _call(url, "stop", {})


def _call(
    url: str, route: str, document: Mapping[str, Any] | None = None, *, timeout_s: float = _TIMEOUT_S
) -> dict[str, Any]:
    data = None if document is None else json.dumps(document).encode()
    request = Request(f"{url}/_kgo/{route}", data=data, headers={"X-Kgo-Admin": "1"})
    try:
        opener = build_opener(ProxyHandler({}))  # a proxy has no business here
        with opener.open(request, timeout=timeout_s) as response:
            answer = json.load(response)
    except HTTPError as error:
        raise LocalKaggleError(f"The local Kaggle refuses: {_message(error)}") from error
    except (URLError, OSError, ValueError, HTTPException) as error:  # or what answers isn't HTTP
        raise LocalKaggleError(f"No local Kaggle answers at {url}: {error}") from error
    if not isinstance(answer, dict):
        raise LocalKaggleError(f"What answers at {url} is no local Kaggle")
    return answer


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return f"HTTP {error.code}"
