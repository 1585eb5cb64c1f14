"""The log: bounded, whole lines, nothing secret, and never in the script's way."""

import io
import os
import time

from hypothesis import given
from hypothesis import strategies as st

from kaggle_orchestrator.runtime.supervisor.log import LINE_LIMIT, Budget, Log, Splitter, secrets_in


def test_lines_however_they_are_cut() -> None:
    splitter = Splitter()
    assert splitter.feed(b"one\ntw", 0.0) == [b"one\n"]
    assert splitter.feed(b"o\r", 0.0) == []
    assert splitter.feed(b"\nthree\n\n", 0.0) == [b"two\n", b"three\n", b"\n"]
    assert splitter.take() == b""


@given(st.lists(st.text("ab\n", max_size=5)))
def test_nothing_is_lost_of_plain_lines(chunks: list[str]) -> None:
    splitter = Splitter()
    out = b"".join(b"".join(splitter.feed(c.encode(), 0.0)) for c in chunks) + splitter.take()
    assert out == "".join(chunks).encode()


def test_a_progress_bar_is_shown_now_and_then_and_at_its_end() -> None:
    splitter = Splitter()
    shown: list[bytes] = []
    for tick in range(100):
        shown += splitter.feed(b"\r%d%%" % tick, tick * 0.2)
    shown += splitter.feed(b"\r100%\n", 20.0)
    assert shown[0] == b"0%\n"
    assert shown[-1] == b"100%\n"
    assert len(shown) <= 6


def test_a_line_without_end_is_cut() -> None:
    splitter = Splitter()
    for _ in range(100):
        assert splitter.feed(b"z" * 10_000, 0.0) == []
    (line,) = splitter.feed(b"\n", 0.0)
    assert len(line) < LINE_LIMIT + 100
    assert b"left out" in line


@given(st.lists(st.tuples(st.integers(1, 20_000), st.floats(0, 5)), max_size=200))
def test_the_budget_is_kept(prints: list[tuple[int, float]]) -> None:
    budget = Budget(rate=1000, burst=10_000, total=50_000)
    now = spent = 0.0
    for size, pause in prints:
        now += pause
        if budget.admit(size, now):
            spent += size
    assert spent <= 10_000 + 1000 * now
    assert spent <= 50_000 + 10_000 + 100 * now + 2 * LINE_LIMIT


def through(log: Log, *pieces: bytes, err: bool = False, pause: float = 0.0) -> None:
    """Print through a pipe, as a script does."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        thread = log.stream(pipe, err=err)
        for piece in pieces:
            os.write(writer, piece)
            time.sleep(pause)
        os.close(writer)
        thread.join()


def test_an_unfinished_line_is_shown_and_ours_starts_its_own() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    log = Log(out, err)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        thread = log.stream(pipe, err=False)
        os.write(writer, b"...")
        give_up = time.monotonic() + 10
        while out.getvalue() != b"..." and time.monotonic() < give_up:
            time.sleep(0.02)
        log.say("hello\nyou")
        os.write(writer, b".\n")
        os.close(writer)
        thread.join()
    assert out.getvalue() == b"...\nkgo: hello\nkgo: you\n.\n"


def test_streams_stay_apart_and_their_ends_are_remembered() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    log = Log(out, err)
    through(log, b"a\nb")
    through(log, b"c\n" * 100 + b"\xff\n", err=True)
    assert out.getvalue() == b"a\nb\n"
    assert err.getvalue() == b"c\n" * 100 + b"\xff\n"
    stdout, stderr = log.tail()
    assert stdout == ["a", "b"]
    assert stderr == ["c"] * 39 + ["�"]


def test_secrets_are_named_instead() -> None:
    environ = {
        "KAGGLE_DATA_PROXY_TOKEN": "abcdefgh-live",
        "HF_TOKEN": "hf_12345678",
        "WANDB_API_KEY": "0123456789",
        "KGO_TOKEN": "0123456789abcdef",
        "KAGGLE_URL_BASE": "https-url",
    }
    assert set(secrets_in(environ).values()) == {"KAGGLE_DATA_PROXY_TOKEN", "HF_TOKEN", "WANDB_API_KEY"}
    out = io.BytesIO()
    log = Log(out, out, environ=environ)
    through(log, b"token=abcdefgh", b"-live;\n")
    log.say("hf_12345678")
    assert out.getvalue() == b"token=[KAGGLE_DATA_PROXY_TOKEN];\nkgo: [HF_TOKEN]\n"
    assert log.tail()[0] == ["token=[KAGGLE_DATA_PROXY_TOKEN];"]


class Broken(io.RawIOBase):
    """A log whose reader is gone."""

    def write(self, data: object, /) -> int:
        raise BrokenPipeError


def test_a_log_that_nobody_reads_ends_nothing() -> None:
    log = Log(Broken(), Broken())
    through(log, b"a\n" * 1000)
    log.say("b")
    log.result("c")
