"""The journal of an experiment's chains: ``.kgo/journal.db`` beside ``kgo.toml``.

An intent is in it before its push leaves, and each change of an attempt is one durable transaction together with the
line of history that tells of it. It is a cache with history: without it a chain is rebuilt from Kaggle.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from kaggle_orchestrator.chain.model import Attempt, Fingerprint, Park, Phase, Why
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.errors import JournalError
from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.protocol import LegResult, Outcome, Parent
from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable, to_jsonable

T = TypeVar("T")

FOLDER = ".kgo"
NAME = "journal.db"
SCHEMA = 2

_TABLES = """
CREATE TABLE chains (
    id INTEGER PRIMARY KEY,
    endpoint TEXT NOT NULL, owner TEXT NOT NULL, slug TEXT NOT NULL, generation INTEGER NOT NULL,
    chain TEXT NOT NULL, code_sha256 TEXT NOT NULL, config_sha256 TEXT NOT NULL,
    files TEXT NOT NULL, settings TEXT NOT NULL,
    seen_a INTEGER NOT NULL, seen_b INTEGER NOT NULL, forgiven INTEGER NOT NULL,
    park_until REAL, park_why TEXT, park_message TEXT, started_at REAL NOT NULL,
    UNIQUE (endpoint, owner, slug, generation)
);
CREATE TABLE attempts (
    chain INTEGER NOT NULL REFERENCES chains (id), number INTEGER NOT NULL,
    leg INTEGER NOT NULL, token TEXT NOT NULL, kernel TEXT NOT NULL, parent TEXT,
    code_sha256 TEXT NOT NULL, config_sha256 TEXT NOT NULL, session_limit_s REAL NOT NULL, leave_after_s REAL,
    intended_at REAL NOT NULL, phase TEXT NOT NULL, absent_since REAL, version INTEGER, pushed_at REAL,
    status TEXT, running_since REAL, terminal_since REAL, ended_at REAL,
    outcome TEXT, reason TEXT NOT NULL, message TEXT NOT NULL, result TEXT,
    step_start INTEGER, step_end INTEGER, checkpoint_sha256 TEXT, pulled_at REAL,
    PRIMARY KEY (chain, number)
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, chain INTEGER NOT NULL REFERENCES chains (id),
    at REAL NOT NULL, attempt INTEGER, what TEXT NOT NULL, detail TEXT NOT NULL
);
"""
_UPGRADES = {1: "ALTER TABLE attempts ADD COLUMN pulled_at REAL"}
"""What makes a file of each older schema one of the next."""


@dataclass(frozen=True, slots=True)
class ChainKey:
    """What a chain is found by: the same name at another address is another chain."""

    endpoint: str
    owner: str
    slug: str


@dataclass(frozen=True, slots=True)
class ChainRecord:
    """One generation of a chain.

    Attributes:
        id: Row in the journal; 0 before it has one.
        chain: Chain id, as pushed headers carry it.
        fingerprint: What it was started or accepted with.
        files: sha256 of each of the user's files then, by path; empty after a rebuild.
        settings: The configuration then, by dotted key; empty after a rebuild.
        seen_a, seen_b: The highest version of each kernel that was looked at.
        forgiven: Attempts up to this number don't count as failures.
    """

    key: ChainKey
    generation: int
    chain: str
    fingerprint: Fingerprint
    started_at: float
    files: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    seen_a: int = 0
    seen_b: int = 0
    forgiven: int = 0
    park: Park | None = None
    id: int = 0

    def seen(self, half: Half) -> int:
        """The highest version of a kernel that was looked at."""
        return self.seen_a if half is Half.A else self.seen_b

    def saw(self, half: Half, version: int) -> Self:
        """Versions up to this one were looked at."""
        top = max(self.seen(half), version)
        return replace(self, seen_a=top) if half is Half.A else replace(self, seen_b=top)


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """Something that happened; ``at`` in seconds since the epoch."""

    at: float
    attempt: int | None
    what: str
    detail: str


class Journal:
    """An open journal. One writer at a time steers a chain (see ``lock``); readers need no lock."""

    def __init__(self, path: Path) -> None:
        """Open it, making it (and its folder, which git is told to ignore) if need be.

        Raises:
            JournalError: It is damaged, made by a newer kgo, or its folder can't be written.
        """
        self.path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            ignore = path.parent / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            self._db = sqlite3.connect(path, isolation_level=None, timeout=10.0)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def of(cls, root: Path) -> "Journal":
        """The journal of the experiment in ``root``."""
        return cls(root / FOLDER / NAME)

    @classmethod
    def exists(cls, root: Path) -> bool:
        """Whether that experiment has one."""
        return (root / FOLDER / NAME).exists()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; what was written is durable already."""
        self._db.close()

    def chain(self, key: ChainKey) -> ChainRecord | None:
        """The newest generation of a chain, or None."""
        rows = self._read(
            _chain,
            "SELECT * FROM chains WHERE endpoint = ? AND owner = ? AND slug = ? ORDER BY generation DESC LIMIT 1",
            (key.endpoint, key.owner, key.slug),
        )
        return rows[0] if rows else None

    def keys(self, slug: str) -> tuple[ChainKey, ...]:
        """Chains of that name at any address, the last started first; for when Kaggle can't be asked."""
        return self._read(
            lambda row: ChainKey(row["endpoint"], row["owner"], row["slug"]),
            "SELECT endpoint, owner, slug FROM chains WHERE slug = ? GROUP BY endpoint, owner"
            " ORDER BY max(started_at) DESC",
            (slug,),
        )

    def attempts(self, chain: ChainRecord) -> tuple[Attempt, ...]:
        """All attempts of a chain, by number."""
        return self._read(_attempt, "SELECT * FROM attempts WHERE chain = ? ORDER BY number", (chain.id,))

    def history(self, chain: ChainRecord) -> tuple[HistoryLine, ...]:
        """What happened, oldest first."""
        return self._read(
            lambda row: HistoryLine(row["at"], row["attempt"], row["what"], row["detail"]),
            "SELECT * FROM events WHERE chain = ? ORDER BY id",
            (chain.id,),
        )

    def save_chain(self, chain: ChainRecord, now: float, what: str, detail: str = "") -> ChainRecord:
        """Insert or update a chain, with a line of history; returns it with its row."""
        values = _chain_values(chain)
        with self._transaction():
            if chain.id:
                self._db.execute(
                    f"UPDATE chains SET {', '.join(f'{k} = :{k}' for k in values)} WHERE id = :id",
                    _storable(values | {"id": chain.id}),
                )
            else:
                cursor = self._db.execute(_insert("chains", values), _storable(values))
                assert cursor.lastrowid is not None
                chain = replace(chain, id=cursor.lastrowid)
            self._tell(chain, now, None, what, detail)
        return chain

    def save_attempt(self, chain: ChainRecord, attempt: Attempt, now: float, what: str, detail: str = "") -> None:
        """Insert or replace an attempt, with a line of history."""
        values = {"chain": chain.id} | _attempt_values(attempt)
        with self._transaction():
            self._db.execute(_insert("attempts", values, "OR REPLACE "), _storable(values))
            self._tell(chain, now, attempt.number, what, detail)

    def drop_attempt(self, chain: ChainRecord, attempt: Attempt, now: float, what: str, detail: str) -> None:
        """Take back an intent whose push was refused: it's no attempt, and its number and token are free again."""
        with self._transaction():
            self._db.execute("DELETE FROM attempts WHERE chain = ? AND number = ?", (chain.id, attempt.number))
            self._tell(chain, now, attempt.number, what, detail)

    def _prepare(self) -> None:
        # The schema number comes first: a newer file is left untouched.
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise JournalError(
                f"{self.path}: was written by a newer kgo (schema {version}, this one knows {SCHEMA}).",
                hint="Upgrade kgo, or move the file away: the chain is then rebuilt from Kaggle.",
            )
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        complaint = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if complaint != "ok":
            raise sqlite3.DatabaseError(complaint)
        if version < SCHEMA:
            with self._transaction():
                version = self._db.execute("PRAGMA user_version").fetchone()[0]  # another process may have been first
                statements = _TABLES.split(";\n") if version == 0 else [_UPGRADES[v] for v in range(version, SCHEMA)]
                for statement in statements:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {max(version, SCHEMA)}")

    def _tell(self, chain: ChainRecord, now: float, attempt: int | None, what: str, detail: str) -> None:
        self._db.execute(
            "INSERT INTO events (chain, at, attempt, what, detail) VALUES (?, ?, ?, ?, ?)",
            (chain.id, now, attempt, what, _text(detail)),
        )

    def _read(self, convert: Callable[[sqlite3.Row], T], query: str, values: tuple[object, ...]) -> tuple[T, ...]:
        bound = tuple(_text(value) for value in values)
        with self._explained():
            rows = self._db.execute(query, bound).fetchall()
        try:
            return tuple(convert(row) for row in rows)
        except (Malformed, ValueError, KeyError, IndexError) as error:
            raise self._damaged(error) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # no room, no right, locked
            raise JournalError(
                f"{self.path}: {error}.", hint="Check the free space and the rights of its folder."
            ) from error
        except OSError as error:
            raise JournalError(
                f"{self.path}: {error.strerror or error}.", hint="Check the free space and the rights of its folder."
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> JournalError:
        return JournalError(
            f"{self.path}: the journal is damaged ({error}).",
            hint="Move the file away: the chain is then rebuilt from Kaggle.",
        )


def _text(value: object) -> object:
    """Text as a database can hold it: a lone surrogate (of a file's name, of a script's words) is spelt out.

    Within JSON that spelling is the escape that is read back as the same text.
    """
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _storable(values: Mapping[str, object]) -> dict[str, object]:
    return {name: _text(value) for name, value in values.items()}


def _insert(table: str, values: Mapping[str, object], how: str = "") -> str:
    return f"INSERT {how}INTO {table} ({', '.join(values)}) VALUES ({', '.join(f':{k}' for k in values)})"


def _chain_values(chain: ChainRecord) -> dict[str, Any]:
    return {
        "endpoint": chain.key.endpoint,
        "owner": chain.key.owner,
        "slug": chain.key.slug,
        "generation": chain.generation,
        "chain": chain.chain,
        "code_sha256": chain.fingerprint.code,
        "config_sha256": chain.fingerprint.config,
        "files": json.dumps(dict(chain.files)),
        "settings": json.dumps(dict(chain.settings)),
        "seen_a": chain.seen_a,
        "seen_b": chain.seen_b,
        "forgiven": chain.forgiven,
        "park_until": chain.park.until if chain.park else None,
        "park_why": chain.park.why if chain.park else None,
        "park_message": chain.park.message if chain.park else None,
        "started_at": chain.started_at,
    }


def _chain(row: sqlite3.Row) -> ChainRecord:
    park = None
    if row["park_until"] is not None:
        park = Park(row["park_until"], Why(row["park_why"]), row["park_message"])
    return ChainRecord(
        key=ChainKey(row["endpoint"], row["owner"], row["slug"]),
        generation=row["generation"],
        chain=row["chain"],
        fingerprint=Fingerprint(row["code_sha256"], row["config_sha256"]),
        started_at=row["started_at"],
        files=json.loads(row["files"]),
        settings=json.loads(row["settings"]),
        seen_a=row["seen_a"],
        seen_b=row["seen_b"],
        forgiven=row["forgiven"],
        park=park,
        id=row["id"],
    )


def _attempt_values(attempt: Attempt) -> dict[str, Any]:
    result = attempt.result
    return {
        "number": attempt.number,
        "leg": attempt.leg,
        "token": attempt.token,
        "kernel": attempt.kernel,
        "parent": json.dumps(to_jsonable(attempt.parent)) if attempt.parent else None,
        "code_sha256": attempt.fingerprint.code,
        "config_sha256": attempt.fingerprint.config,
        "session_limit_s": attempt.session_limit_s,
        "leave_after_s": attempt.leave_after_s,
        "intended_at": attempt.intended_at,
        "phase": attempt.phase,
        "absent_since": attempt.absent_since,
        "version": attempt.version,
        "pushed_at": attempt.pushed_at,
        "status": attempt.status,
        "running_since": attempt.running_since,
        "terminal_since": attempt.terminal_since,
        "ended_at": attempt.ended_at,
        "outcome": attempt.outcome,
        "reason": attempt.reason,
        "message": attempt.message,
        "result": result.dumps() if result else None,
        # For people with a SQLite shell; read back from `result`.
        "step_start": result.step_start if result else None,
        "step_end": result.step_end if result else None,
        "checkpoint_sha256": result.checkpoint.sha256 if result and result.checkpoint else None,
        "pulled_at": attempt.pulled_at,
    }


def _attempt(row: sqlite3.Row) -> Attempt:
    return Attempt(
        leg=row["leg"],
        number=row["number"],
        token=row["token"],
        kernel=Half(row["kernel"]),
        parent=from_jsonable(Parent, json.loads(row["parent"])) if row["parent"] else None,
        fingerprint=Fingerprint(row["code_sha256"], row["config_sha256"]),
        session_limit_s=row["session_limit_s"],
        leave_after_s=row["leave_after_s"],
        intended_at=row["intended_at"],
        phase=Phase(row["phase"]),
        absent_since=row["absent_since"],
        version=row["version"],
        pushed_at=row["pushed_at"],
        status=SessionStatus(row["status"]) if row["status"] else None,
        running_since=row["running_since"],
        terminal_since=row["terminal_since"],
        ended_at=row["ended_at"],
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        reason=row["reason"],
        message=row["message"],
        result=LegResult.loads(row["result"]) if row["result"] else None,
        pulled_at=row["pulled_at"],
    )
