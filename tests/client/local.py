"""Versions on a real local Kaggle whose output is known to the byte."""

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path

from kaggle_orchestrator.client import Kaggle, connect
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.models import KernelRef, PushRequest


def user(server: LocalServer, name: str, folder: Path) -> Kaggle:
    """A client of a user of one's own, so that tests don't get into each other's way."""
    return connect(server.url, environ={"HOME": str(folder), "KAGGLE_API_TOKEN": f"kgo-local-{name}"})


def writing(files: Mapping[str, bytes], then: str = "") -> str:
    """A script that writes these files."""
    data = json.dumps({name: base64.b64encode(content).decode() for name, content in files.items()})
    return (
        "import base64, json, pathlib, sys, time\n"
        f"for name, content in json.loads({data!r}).items():\n"
        "    path = pathlib.Path(name)\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        "    path.write_bytes(base64.b64decode(content))\n"
        f"{then}\n"
    )


def request(ref: KernelRef, source: str) -> PushRequest:
    return PushRequest(ref, ref.slug.replace("-", " ").title(), source)


def ended(kaggle: Kaggle, ref: KernelRef, version: int) -> int:
    """Wait for a version's session; returns the version."""
    until = time.monotonic() + 60
    while not kaggle.status(ref, version).status.terminal:
        assert time.monotonic() < until, f"{ref} v{version} does not end"
        time.sleep(0.02)
    return version


def ran(kaggle: Kaggle, ref: KernelRef, files: Mapping[str, bytes], then: str = "") -> int:
    """Push a script that writes ``files``, wait for its end; returns the version."""
    return ended(kaggle, ref, kaggle.push(request(ref, writing(files, then))).version)
