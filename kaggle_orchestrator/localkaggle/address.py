"""Where a running server says that it runs: ``server.json`` in its folder, beside the lock it holds for life."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kaggle_orchestrator.protocol import write_atomic


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running local Kaggle: its address, its process, its folder."""

    url: str
    pid: int
    root: Path


@dataclass(frozen=True, slots=True)
class Record:
    """What ``server.json`` holds; the nonce tells whether the one at that address is still the one that wrote it."""

    url: str
    pid: int
    nonce: str


def lock_path(root: Path) -> Path:
    """Held by the server of this folder while it lives."""
    return root / "server.lock"


def log_path(root: Path) -> Path:
    """What a background server has to say."""
    return root / "server.log"


def write_record(root: Path, record: Record) -> None:
    """Announce a server."""
    write_atomic(root / "server.json", json.dumps(asdict(record)).encode())


def read_record(root: Path) -> Record | None:
    """The last announcement, or None."""
    try:
        return Record(**json.loads((root / "server.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def remove_record(root: Path) -> None:
    """Withdraw it."""
    (root / "server.json").unlink(missing_ok=True)
