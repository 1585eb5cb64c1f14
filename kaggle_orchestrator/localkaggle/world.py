"""The state of the local Kaggle's world: accounts' kernels, versions, sessions, datasets, faults, in one SQLite file.

Every change is one transaction in WAL mode, so a server killed at any point leaves the world as it was before or
after a change. Used from one thread.
"""

import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from kaggle_orchestrator.localkaggle.records import (
    Blob,
    Collection,
    Dataset,
    DatasetFile,
    Interpreter,
    Kernel,
    Session,
    Settings,
    Version,
)
from kaggle_orchestrator.models import KernelRef, SessionStatus
from kaggle_orchestrator.protocol.jsonable import from_jsonable, to_jsonable

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kernels (
    id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, slug TEXT NOT NULL, title TEXT NOT NULL,
    private INTEGER NOT NULL, created REAL NOT NULL, UNIQUE (owner, slug));
CREATE TABLE IF NOT EXISTS versions (
    kernel INTEGER NOT NULL REFERENCES kernels ON DELETE CASCADE, number INTEGER NOT NULL, source TEXT NOT NULL,
    settings TEXT NOT NULL, created REAL NOT NULL, PRIMARY KEY (kernel, number));
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kernel INTEGER NOT NULL REFERENCES kernels ON DELETE CASCADE,
    version INTEGER NOT NULL, gpu INTEGER NOT NULL, limit_s REAL NOT NULL, created REAL NOT NULL,
    status TEXT NOT NULL, message TEXT NOT NULL DEFAULT '', started REAL, ended REAL, cancelled REAL,
    UNIQUE (kernel, version));
CREATE TABLE IF NOT EXISTS usage (owner TEXT NOT NULL, ended REAL NOT NULL, gpu_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS datasets (
    owner TEXT NOT NULL, slug TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL, files TEXT NOT NULL,
    created REAL NOT NULL, current_at REAL NOT NULL DEFAULT 0, PRIMARY KEY (owner, slug, version));
CREATE TABLE IF NOT EXISTS collections (
    id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, slug TEXT NOT NULL, title TEXT NOT NULL,
    private INTEGER NOT NULL, license TEXT NOT NULL, UNIQUE (owner, slug));
CREATE TABLE IF NOT EXISTS blobs (
    token TEXT PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, size INTEGER, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS interpreters (kernel TEXT PRIMARY KEY, interpreter TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS faults (
    id INTEGER PRIMARY KEY AUTOINCREMENT, fault TEXT NOT NULL, seen INTEGER NOT NULL DEFAULT 0,
    added REAL NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS castings (
    id INTEGER PRIMARY KEY AUTOINCREMENT, casting TEXT NOT NULL, seen INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO sqlite_sequence (name, seq) SELECT 'sessions', 1000
    WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'sessions');
"""


_LATER_COLUMNS = (
    ("sessions", "cancelled REAL"),
    ("faults", "added REAL NOT NULL DEFAULT 0"),
    ("datasets", "current_at REAL NOT NULL DEFAULT 0"),
)


class World:
    """The world kept in one folder."""

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        """Open it, or make it.

        Args:
            root: Its folder.
            durable: Each change survives a power cut; False is for a world that its process takes with it.
        """
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = root
        self._db = sqlite3.connect(root / "world.sqlite", isolation_level=None, timeout=10)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.executescript(_SCHEMA)
        for table, column in _LATER_COLUMNS:
            if column.split()[0] not in {row["name"] for row in self._rows(f"PRAGMA table_info({table})")}:
                self._db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")  # a world that is older than it

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def change(self) -> Iterator[None]:
        """All changes within take place, or none."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have ended it
                self._db.execute("ROLLBACK")
            raise

    def _rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        return self._db.execute(sql, values).fetchall()

    def _row(self, sql: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(sql, values).fetchone()
        return row

    def _run(self, sql: str, *values: object) -> int:
        return self._db.execute(sql, values).lastrowid or 0

    # Kernels and versions

    def kernel(self, ref: KernelRef) -> Kernel | None:
        """By name."""
        row = self._row(f"{_KERNEL} WHERE k.owner = ? AND k.slug = ?", ref.owner, ref.slug)
        return _kernel(row) if row else None

    def kernel_by_id(self, number: int) -> Kernel | None:
        """By number."""
        row = self._row(f"{_KERNEL} WHERE k.id = ?", number)
        return _kernel(row) if row else None

    def kernels(self) -> list[Kernel]:
        """All, the one pushed to last first."""
        return [_kernel(r) for r in self._rows(f"{_KERNEL} ORDER BY last DESC, k.id DESC")]

    def title_taken(self, owner: str, title: str, *, besides: int | None) -> bool:
        """Whether another kernel of the owner has this title."""
        row = self._row("SELECT id FROM kernels WHERE owner = ? AND title = ?", owner, title)
        return row is not None and row["id"] != besides

    def add_kernel(self, ref: KernelRef, title: str, private: bool, now: float) -> Kernel:
        """Make a kernel without a version."""
        sql = "INSERT INTO kernels (owner, slug, title, private, created) VALUES (?, ?, ?, ?, ?)"
        self._run(sql, ref.owner, ref.slug, title, private, now)
        kernel = self.kernel(ref)
        assert kernel
        return kernel

    def update_kernel(self, kernel: Kernel, title: str, private: bool) -> None:
        """Set what each push sets."""
        self._run("UPDATE kernels SET title = ?, private = ? WHERE id = ?", title, private, kernel.id)

    def remove_kernel(self, kernel: Kernel) -> None:
        """With versions and sessions; the quota it used stays used."""
        self._run("DELETE FROM kernels WHERE id = ?", kernel.id)

    def add_version(self, kernel: Kernel, source: str, settings: Settings, now: float) -> int:
        """Make the next version and return its number."""
        number = kernel.current + 1
        sql = "INSERT INTO versions (kernel, number, source, settings, created) VALUES (?, ?, ?, ?, ?)"
        self._run(sql, kernel.id, number, source, json.dumps(to_jsonable(settings)), now)
        return number

    def version(self, kernel: Kernel, number: int) -> Version | None:
        """One version."""
        row = self._row("SELECT * FROM versions WHERE kernel = ? AND number = ?", kernel.id, number)
        if not row:
            return None
        return Version(kernel, row["number"], row["source"], _settings(row["settings"]), row["created"])

    # Sessions

    def add_session(self, kernel: Kernel, version: int, gpu: bool, limit_s: float, now: float) -> Session:
        """A session that waits for its start."""
        sql = "INSERT INTO sessions (kernel, version, gpu, limit_s, created, status) VALUES (?, ?, ?, ?, ?, ?)"
        number = self._run(sql, kernel.id, version, gpu, limit_s, now, SessionStatus.QUEUED.value)
        session = self.session(number)
        assert session
        return session

    def session(self, number: int) -> Session | None:
        """By number."""
        row = self._row(f"{_SESSION} WHERE s.id = ?", number)
        return _session(row) if row else None

    def session_of(self, kernel: Kernel, version: int | None) -> Session | None:
        """Of one version, or the last one that there is."""
        if version is None:
            row = self._row(f"{_SESSION} WHERE s.kernel = ? ORDER BY s.version DESC LIMIT 1", kernel.id)
        else:
            row = self._row(f"{_SESSION} WHERE s.kernel = ? AND s.version = ?", kernel.id, version)
        return _session(row) if row else None

    def session_before(self, kernel: Kernel, version: int) -> Session | None:
        """Of the last version before that ran."""
        where = "WHERE s.kernel = ? AND s.version < ? ORDER BY s.version DESC LIMIT 1"
        row = self._row(f"{_SESSION} {where}", kernel.id, version)
        return _session(row) if row else None

    def last_complete(self, kernel: Kernel) -> Session | None:
        """The last version that ended well: the one whose output mounts."""
        where = "WHERE s.kernel = ? AND s.status = ? ORDER BY s.version DESC LIMIT 1"
        row = self._row(f"{_SESSION} {where}", kernel.id, SessionStatus.COMPLETE.value)
        return _session(row) if row else None

    def sessions(self, *, live: bool = False) -> list[Session]:
        """All, or those that haven't ended; in order of their start."""
        where = "WHERE s.ended IS NULL " if live else ""
        return [_session(r) for r in self._rows(f"{_SESSION} {where}ORDER BY s.id")]

    def mark_cancelled(self, session: Session, now: float) -> None:
        """Its end was asked for."""
        sql = "UPDATE sessions SET status = ?, cancelled = ? WHERE id = ? AND cancelled IS NULL"
        self._run(sql, SessionStatus.CANCEL_REQUESTED.value, now, session.id)

    def mark_started(self, session: Session, now: float) -> None:
        """It runs."""
        sql = "UPDATE sessions SET status = ?, started = ? WHERE id = ?"
        self._run(sql, SessionStatus.RUNNING.value, now, session.id)

    def mark_ended(self, session: Session, status: SessionStatus, message: str, started: float, ended: float) -> None:
        """It's over; what it used of the GPU quota is written down."""
        with self.change():
            sql = "UPDATE sessions SET status = ?, message = ?, started = ?, ended = ? WHERE id = ? AND ended IS NULL"
            changed = self._db.execute(sql, (status.value, message, started, ended, session.id)).rowcount
            if changed and session.gpu:
                sql = "INSERT INTO usage (owner, ended, gpu_s) VALUES (?, ?, ?)"
                self._run(sql, session.kernel.owner, ended, max(0.0, ended - started))

    def gpu_used_s(self, owner: str, since: float) -> float:
        """GPU seconds of sessions that ended after ``since``."""
        sql = "SELECT TOTAL(gpu_s) AS used FROM usage WHERE owner = ? AND ended >= ?"
        row = self._row(sql, owner, since)
        return float(row["used"]) if row else 0.0

    # Datasets

    def dataset(self, owner: str, slug: str, version: int | None = None, *, now: float) -> Dataset | None:
        """One version, or the one that is current by now."""
        sql = "SELECT * FROM datasets WHERE owner = ? AND slug = ? "
        if version is None:
            row = self._row(sql + "AND current_at <= ? ORDER BY version DESC LIMIT 1", owner, slug, now)
        else:
            row = self._row(sql + "AND version = ?", owner, slug, version)
        if not row:
            return None
        files = tuple(DatasetFile(name, size) for name, size in json.loads(row["files"]))
        return Dataset(owner, slug, row["version"], row["digest"], files, row["created"], row["current_at"])

    def latest_version(self, owner: str, slug: str) -> int:
        """Number of a dataset's latest version, current or not; 0 if there is none."""
        row = self._row("SELECT MAX(version) AS latest FROM datasets WHERE owner = ? AND slug = ?", owner, slug)
        return int(row["latest"] or 0) if row else 0

    def add_dataset(self, dataset: Dataset) -> None:
        """Its next version."""
        names = "owner, slug, version, digest, files, created, current_at"
        sql = f"INSERT INTO datasets ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        files = json.dumps([(f.name, f.size) for f in dataset.files])
        version = (dataset.owner, dataset.slug, dataset.version)
        self._run(sql, *version, dataset.digest, files, dataset.created, dataset.current_at)

    def remove_dataset(self, owner: str, slug: str) -> None:
        """All its versions."""
        with self.change():
            self._run("DELETE FROM datasets WHERE owner = ? AND slug = ?", owner, slug)
            self._run("DELETE FROM collections WHERE owner = ? AND slug = ?", owner, slug)

    def collection(self, owner: str, slug: str) -> Collection | None:
        """By name."""
        row = self._row("SELECT * FROM collections WHERE owner = ? AND slug = ?", owner, slug)
        return _collection(row) if row else None

    def collection_by_id(self, number: int) -> Collection | None:
        """By number."""
        row = self._row("SELECT * FROM collections WHERE id = ?", number)
        return _collection(row) if row else None

    def collections(self) -> list[Collection]:
        """All, the newest first."""
        return [_collection(row) for row in self._rows("SELECT * FROM collections ORDER BY id DESC")]

    def add_collection(self, owner: str, slug: str, title: str, private: bool, license_: str) -> None:
        """A dataset that has no version yet."""
        sql = "INSERT INTO collections (owner, slug, title, private, license) VALUES (?, ?, ?, ?, ?)"
        self._run(sql, owner, slug, title, private, license_)

    def blob(self, token: str) -> Blob | None:
        """By its token."""
        row = self._row("SELECT * FROM blobs WHERE token = ?", token)
        return Blob(**row) if row else None

    def add_blob(self, blob: Blob) -> None:
        """One whose bytes are still to come."""
        sql = "INSERT INTO blobs (token, owner, name, size, created) VALUES (?, ?, ?, ?, ?)"
        self._run(sql, blob.token, blob.owner, blob.name, blob.size, blob.created)

    def remove_blob(self, token: str) -> None:
        """It's part of a dataset now."""
        self._run("DELETE FROM blobs WHERE token = ?", token)

    # Interpreters, faults, facts

    def interpreter(self, ref: KernelRef) -> Interpreter | None:
        """The interpreter of a kernel's sessions, if one was set."""
        row = self._row("SELECT interpreter FROM interpreters WHERE kernel = ?", str(ref))
        return from_jsonable(Interpreter, json.loads(row["interpreter"])) if row else None

    def set_interpreter(self, ref: KernelRef, interpreter: Interpreter | None) -> None:
        """Set or forget it."""
        with self.change():
            self._run("DELETE FROM interpreters WHERE kernel = ?", str(ref))
            if interpreter is not None:
                document = json.dumps(to_jsonable(interpreter))
                self._run("INSERT INTO interpreters (kernel, interpreter) VALUES (?, ?)", str(ref), document)

    def add_faults(self, faults: Sequence[Mapping[str, Any]], now: float) -> None:
        """All, or none."""
        with self.change():
            for fault in faults:
                self._run("INSERT INTO faults (fault, added) VALUES (?, ?)", json.dumps(fault), now)

    def faults(self) -> list[tuple[int, Any, float]]:
        """Number, document and time of each fault, those that have fired included."""
        rows = self._rows("SELECT * FROM faults ORDER BY id")
        return [(row["id"], json.loads(row["fault"]), row["added"]) for row in rows]

    def count_fault(self, number: int) -> int:
        """One more occasion for a fault; how many there were."""
        self._run("UPDATE faults SET seen = seen + 1 WHERE id = ?", number)
        row = self._row("SELECT seen FROM faults WHERE id = ?", number)
        return int(row["seen"]) if row else 0

    def add_castings(self, castings: Sequence[Mapping[str, Any]]) -> None:
        """Scripts of sessions: all, or none."""
        with self.change():
            for casting in castings:
                self._run("INSERT INTO castings (casting) VALUES (?)", json.dumps(casting))

    def castings(self) -> list[tuple[int, Any]]:
        """Number and document of each."""
        return [(row["id"], json.loads(row["casting"])) for row in self._rows("SELECT * FROM castings ORDER BY id")]

    def count_casting(self, number: int) -> int:
        """One more session that a script could be for; how many there were."""
        self._run("UPDATE castings SET seen = seen + 1 WHERE id = ?", number)
        row = self._row("SELECT seen FROM castings WHERE id = ?", number)
        return int(row["seen"]) if row else 0

    def fact(self, name: str) -> Any:
        """A remembered JSON value, or None."""
        row = self._row("SELECT value FROM facts WHERE name = ?", name)
        return json.loads(row["value"]) if row else None

    def set_fact(self, name: str, value: object) -> None:
        """Remember a JSON value."""
        self._run("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", name, json.dumps(value))

    def secret(self) -> bytes:
        """The key that signs download URLs; made once, so that URLs outlive a restart."""
        if self.fact("secret") is None:
            self.set_fact("secret", secrets.token_hex(32))
        return bytes.fromhex(self.fact("secret"))


_KERNEL = """
SELECT k.*, (SELECT MAX(number) FROM versions v WHERE v.kernel = k.id) AS current,
       (SELECT MAX(created) FROM versions v WHERE v.kernel = k.id) AS last
FROM kernels k
"""
_SESSION = "SELECT s.*, k.owner, k.slug FROM sessions s JOIN kernels k ON k.id = s.kernel"


@lru_cache(maxsize=1024)
def _settings(text: str) -> Settings:
    """Read at each call about a version, and never changed."""
    return from_jsonable(Settings, json.loads(text))


def _kernel(row: sqlite3.Row) -> Kernel:
    ref = KernelRef(row["owner"], row["slug"])
    return Kernel(row["id"], ref, row["title"], bool(row["private"]), row["created"], row["current"] or 0)


def _collection(row: sqlite3.Row) -> Collection:
    return Collection(row["id"], row["owner"], row["slug"], row["title"], bool(row["private"]), row["license"])


def _session(row: sqlite3.Row) -> Session:
    return Session(
        id=row["id"],
        kernel=KernelRef(row["owner"], row["slug"]),
        version=row["version"],
        gpu=bool(row["gpu"]),
        limit_s=row["limit_s"],
        created=row["created"],
        status=SessionStatus(row["status"]),
        message=row["message"],
        started=row["started"],
        ended=row["ended"],
        cancelled=row["cancelled"],
    )
