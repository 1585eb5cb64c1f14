"""The journal: what is written is there after a kill; what can't be read says so and how to get on."""

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaggle_orchestrator.chain import ChainKey, ChainRecord, Journal
from kaggle_orchestrator.chain.journal import SCHEMA
from kaggle_orchestrator.chain.lock import steering
from kaggle_orchestrator.chain.model import Attempt, Park, Why
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.errors import ChainLive, JournalError
from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.protocol import Outcome
from tests.chain.facts import NOW, PRINT, ended, intended, live, parent_of

KEY = ChainKey("https://api.kaggle.com", "me", "x")
RECORD = ChainRecord(KEY, 1, "c0ffee", PRINT, NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".kgo" / "journal.db"


def test_a_chain_comes_back_as_it_was_written(path: Path) -> None:
    record = replace(
        RECORD,
        files={"train.py": "abc"},
        settings={"train.params.lr": "0.1"},
        seen_a=3,
        seen_b=2,
        forgiven=1,
        park=Park(NOW + 60, Why.SESSION_CAP, "Maximum batch CPU session count of 5 reached."),
    )
    with Journal(path) as journal:
        saved = journal.save_chain(record, NOW, "begun")
    with Journal(path) as journal:
        assert journal.chain(KEY) == saved == replace(record, id=saved.id)
        assert journal.chain(replace(KEY, owner="you")) is None
        assert journal.chain(replace(KEY, endpoint="local:/x")) is None


won = ended(1, step=100)
ATTEMPTS = [
    intended(),
    replace(intended(), absent_since=NOW, leave_after_s=None),
    live(2, leg=2, kernel=Half.B, parent=parent_of(won)),
    replace(live(), status=SessionStatus.RUNNING, running_since=NOW, terminal_since=NOW + 1),
    won,
    ended(1, Outcome.KILLED),
    replace(ended(1, Outcome.USER_ERROR), reason="exit 1", message="ValueError: a '\"\n∞"),
]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_comes_back_as_it_was_written(path: Path, attempt: Attempt) -> None:
    with Journal(path) as journal:
        chain = journal.save_chain(RECORD, NOW, "begun")
        journal.save_attempt(chain, attempt, NOW, "noted", "detail")
    with Journal(path) as journal:
        assert journal.attempts(chain) == (attempt,)
        assert [(h.attempt, h.what, h.detail) for h in journal.history(chain)] == [
            (None, "begun", ""),
            (attempt.number, "noted", "detail"),
        ]


def test_a_refused_push_leaves_history_but_no_attempt(path: Path) -> None:
    with Journal(path) as journal:
        chain = journal.save_chain(RECORD, NOW, "begun")
        journal.save_attempt(chain, intended(), NOW, "intended")
        journal.drop_attempt(chain, intended(), NOW, "refused", "Maximum …")
        assert journal.attempts(chain) == ()
        assert [h.what for h in journal.history(chain)] == ["begun", "intended", "refused"]


def test_the_newest_generation_counts(path: Path) -> None:
    with Journal(path) as journal:
        journal.save_chain(RECORD, NOW, "begun")
        second = journal.save_chain(replace(RECORD, generation=2, chain="beef"), NOW, "begun")
        assert journal.chain(KEY) == second
        assert journal.keys("x") == (KEY,)


@settings(max_examples=25, deadline=None)
@given(st.text())
def test_any_text_survives(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    with TemporaryDirectory() as folder, Journal(Path(folder) / "journal.db") as journal:
        chain = journal.save_chain(RECORD, NOW, "begun")
        journal.save_attempt(chain, replace(ended(), message=text), NOW, "ended", text)
        assert journal.attempts(chain)[0].message == journal.history(chain)[1].detail == text


def test_a_lone_surrogate_is_no_damage(path: Path) -> None:
    odd = "caf\udce9.py"
    attempt = ended(step=100)
    assert attempt.result is not None
    attempt = replace(attempt, message=odd, result=replace(attempt.result, message=odd))
    record = replace(RECORD, files={odd: "abc"}, key=replace(KEY, endpoint=f"local:/{odd}"))
    with Journal(path) as journal:
        chain = journal.save_chain(record, NOW, "begun")
        journal.save_attempt(chain, attempt, NOW, "ended", odd)
    with Journal(path) as journal:
        found = journal.chain(record.key)
        assert found is not None
        assert found.files == record.files
        (read,) = journal.attempts(chain)
        assert read.message == "caf\\udce9.py"
        assert read.result == attempt.result


def test_one_of_the_first_schema_is_upgraded_with_all_that_it_holds(path: Path) -> None:
    with Journal(path) as journal:
        chain = journal.save_chain(RECORD, NOW, "begun")
        journal.save_attempt(chain, ended(), NOW, "ended")
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE attempts DROP COLUMN pulled_at")
        db.execute("PRAGMA user_version = 1")
    with Journal(path) as journal:
        assert journal.attempts(chain) == (ended(),)
        pulled = replace(ended(), pulled_at=NOW)
        journal.save_attempt(chain, pulled, NOW, "pulled")
    with Journal(path) as journal:
        assert journal.attempts(chain) == (pulled,)
        assert journal._db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA


def test_git_is_told_to_pass_it_over(path: Path) -> None:
    with Journal(path):
        assert (path.parent / ".gitignore").read_text() == "*\n"


def test_it_is_as_durable_as_sqlite_gets(path: Path) -> None:
    with Journal(path) as journal:
        assert journal._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert journal._db.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL


def test_what_a_killed_writer_wrote_is_there(path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from kaggle_orchestrator.chain import Journal;"
        "from tests.chain.test_journal import RECORD, NOW; from tests.chain.facts import intended;"
        "j = Journal(Path(sys.argv[1])); c = j.save_chain(RECORD, NOW, 'begun');"
        "j.save_attempt(c, intended(), NOW, 'intended'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    with Journal(path) as journal:
        chain = journal.chain(KEY)
        assert chain is not None
        assert journal.attempts(chain) == (intended(),)


def test_a_newer_one_is_left_untouched(path: Path) -> None:
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="newer kgo") as refused:
        Journal(path)
    assert "Upgrade" in str(refused.value.hint)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "head", "middle", "column"])
def test_a_damaged_one_says_so_and_what_to_do(path: Path, damage: str) -> None:
    with Journal(path) as journal:
        chain = journal.save_chain(RECORD, NOW, "begun")
        for number in range(1, 60):
            journal.save_attempt(chain, replace(ended(number, step=9), message="x" * 500), NOW, "ended")
    if damage == "column":
        with sqlite3.connect(path) as db:
            db.execute("UPDATE attempts SET phase = 'sideways'")
    else:
        data = bytearray(path.read_bytes())
        match damage:
            case "text":
                data = bytearray(b"not a database, but somebody's notes\n" * 100)
            case "head":
                data[:16] = b"\0" * 16
            case "middle":
                data[4096:-4096] = b"\xa5" * (len(data) - 8192)
        path.write_bytes(data)

    def read() -> None:
        with Journal(path) as journal:
            journal.attempts(chain)

    with pytest.raises(JournalError, match="damaged") as refused:
        read()
    assert "rebuilt from Kaggle" in str(refused.value.hint)


def test_a_folder_that_cant_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / ".kgo").write_text("a file where the folder should be")
    with pytest.raises(JournalError):
        Journal.of(tmp_path)


def test_a_full_disk_is_told_and_nothing_half_is_left(path: Path) -> None:
    with Journal(path) as journal:
        chain = journal.save_chain(RECORD, NOW, "begun")
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(JournalError, match="full"):
            journal.save_attempt(chain, replace(intended(), message="x" * 100_000), NOW, "intended")
        assert journal.attempts(chain) == ()
        assert len(journal.history(chain)) == 1


def test_one_process_steers_at_a_time(tmp_path: Path) -> None:
    with (
        steering(tmp_path, "me", "x"),
        pytest.raises(ChainLive, match=f"Process {os.getpid()}"),
        steering(tmp_path, "me", "x"),
    ):
        pass
    with steering(tmp_path, "me", "x"), steering(tmp_path, "me", "y"):
        pass


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from kaggle_orchestrator.chain.lock import steering\n"
        "with steering(Path(sys.argv[1]), 'me', 'x'):\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    with steering(tmp_path, "me", "x"):
        pass
