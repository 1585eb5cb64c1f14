"""Following a log over whatever connection there is: nothing twice, nothing lost, no credential let out, an end."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kaggle_orchestrator.client import Kaggle, Policy, connect
from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.errors import BadAnswer, NotAccessible, Throttled, Unavailable
from kaggle_orchestrator.models import KernelRef, LogRecord
from tests.client.faulty import FaultyServer, Out, Reply, Seen, answer, broken, closed, hang, reset

REF = KernelRef("me", "digits")
STREAM = "/v1/kernels/logs/stream/me/digits"
LIVE = {"Content-Type": "text/event-stream"}


def entry(data: object, **more: object) -> dict[str, object]:
    return {"stream_name": "stdout", "time": 1.5, "data": data} | more


def live(*said: object, end: bool = False) -> bytes:
    events = [text if isinstance(text, str) else json.dumps(text) for text in said]
    return "".join(f"data: {event}\n\n" for event in [*events, *(["END_OF_LOG"] if end else [])]).encode()


def events(body: bytes) -> Reply:
    return answer(body, headers=LIVE)


def heard(kaggle: Kaggle) -> list[str]:
    return [record.data for record in kaggle.follow(REF, 3)]


ONE, TWO, THREE = entry("one\n"), entry("two\n"), entry("three\n")


@pytest.mark.parametrize(
    "replies",
    [
        [events(live(ONE, TWO, THREE, end=True))],
        [events(live(ONE)), events(live(ONE, TWO)), events(live(ONE, TWO, THREE, end=True))],
        [events(live(ONE, TWO)), answer([ONE, TWO, THREE])],
        [events(live(ONE)), reset, closed, events(b""), answer([ONE, TWO, THREE])],
        [events(live(ONE)), answer({"code": 502}, 502), hang, events(live(ONE, TWO, THREE, end=True))],
        [broken(live(ONE, TWO), len(live(ONE)) + 9), answer([ONE, TWO, THREE])],
        [events(live(ONE, TWO) + b'data: {"stream_name": "std'), events(live(ONE, TWO, THREE, end=True))],
        [broken(json.dumps([ONE, TWO, THREE]).encode(), 40), answer([ONE, TWO, THREE])],
        [answer(b'[{"data": "on'), answer([ONE, TWO, THREE])],
        [events(live(ONE)), answer(b"<html>no</html>"), answer([ONE, TWO, THREE])],
        [events(b": still here\n\nevent: x\nid: 4\n" + live(ONE, TWO, THREE, end=True))],
    ],
    ids=range(11),
)
def test_each_record_is_told_once(server: FaultyServer, kaggle: Kaggle, replies: Sequence[Reply]) -> None:
    server.on(STREAM, *replies)
    assert heard(kaggle) == ["one\n", "two\n", "three\n"]
    assert len(server.calls(STREAM)) == len(replies)
    assert {seen.query for seen in server.calls(STREAM)} == {"versionLabel=v3"}


def test_odd_events_are_told_as_they_are_and_counted(server: FaultyServer, kaggle: Kaggle) -> None:
    odd = ["not JSON", [1], entry(None), entry("late", time=10**400), entry("plain", stream_name=None, time="x")]
    server.on(STREAM, events(live(*odd)), events(live(*odd, ONE, end=True)))
    assert list(kaggle.follow(REF, 3)) == [
        LogRecord("stdout", 0.0, "not JSON"),
        LogRecord("stdout", 0.0, "[1]"),
        LogRecord("stdout", 1.5, ""),
        LogRecord("stdout", 0.0, "late"),
        LogRecord("stdout", 0.0, "plain"),
        LogRecord("stdout", 1.5, "one\n"),
    ]


def test_records_after_which_it_fails_again_and_again(server: FaultyServer, kaggle: Kaggle) -> None:
    many = [entry(f"{n}") for n in range(9)]
    lost = answer({"code": 500}, 500)
    replies = [reply for n in range(1, 9) for reply in (events(live(*many[:n])), lost, lost)]
    server.on(STREAM, *replies, events(live(*many, end=True)))
    assert heard(kaggle) == [str(n) for n in range(9)], "each time there is something new, patience begins anew"


def test_a_finished_log_in_the_storage_gets_no_credentials(server: FaultyServer, kaggle: Kaggle) -> None:
    with FaultyServer() as storage:
        where = storage.on("/kept.json", answer([ONE]))
        server.on(STREAM, answer(b"", 302, {"Location": where}))
        assert heard(kaggle) == ["one\n"]
        (asked,) = server.calls(STREAM)
        assert asked.headers["authorization"] == "Bearer kgo-local"
        assert asked.headers["accept"].startswith("text/event-stream")
        assert [seen.headers.get("authorization") for seen in storage.seen] == [None]


@pytest.mark.parametrize(
    ("reply", "kind", "tries"),
    [
        (answer({"code": 403, "message": "no"}, 403), NotAccessible, 1),
        (answer({"error": {"code": 404, "message": "no"}}, 404), NotAccessible, 1),
        (answer({"code": 429}, 429, {"Retry-After": "7200"}), Throttled, 1),
        (answer({"code": 429}, 429, {"Retry-After": "2"}), Throttled, 3),
        (answer({"code": 500}, 500), Unavailable, 3),
        (answer(b"<html>"), BadAnswer, 3),
        (answer({"error": "no"}), BadAnswer, 3),
        (answer(b"", 204), BadAnswer, 3),
        (hang, Unavailable, 3),
        (reset, Unavailable, 3),
    ],
)
def test_a_log_that_can_not_be_had(
    server: FaultyServer, kaggle: Kaggle, reply: Reply, kind: type[Exception], tries: int
) -> None:
    server.on(STREAM, reply)
    with pytest.raises(kind, match=r"the log of me/digits v3"):
        heard(kaggle)
    assert len(server.calls(STREAM)) == tries


@pytest.mark.parametrize("said", [b"", live(ONE, TWO)])
def test_a_live_log_that_neither_speaks_nor_ends_is_given_up(server: FaultyServer, tmp_path: Path, said: bytes) -> None:
    server.on(STREAM, events(said))
    clock, policy = FakeClock(), Policy(silence_s=1800)
    environ, rng = {"HOME": str(tmp_path)}, random.Random(0)
    began = clock.now()
    with (
        connect(server.url, environ=environ, policy=policy, clock=clock, rng=rng) as kaggle,
        pytest.raises(Unavailable, match=r"Nothing new in the log of me/digits v3 for 0\.5 h"),
    ):
        heard(kaggle)
    assert 1800 <= clock.now() - began < 1900
    assert 150 < len(server.calls(STREAM)) < 600, "neither hammered nor left alone"


def test_an_endless_error_page_is_not_read_to_its_end(server: FaultyServer, kaggle: Kaggle) -> None:
    def endless(_: Seen, out: Out) -> None:
        out.head(403, {"Content-Type": "text/plain"})
        while not out.closing.is_set():
            try:
                out.write(b"no " * 20_000)
            except OSError:
                return

    server.on(STREAM, endless)
    with pytest.raises(NotAccessible):
        heard(kaggle)
