"""Whatever the network and the disk do: a file is under its name whole and right, or it isn't there."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kaggle_orchestrator.client import Kaggle, connect, download
from kaggle_orchestrator.client.landing import landed, landing
from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.errors import ArtifactError, BadAnswer, Damaged, Throttled, Unavailable
from kaggle_orchestrator.models import Artifact, OutputFile
from kaggle_orchestrator.protocol import FileDigest
from tests.client.conftest import QUICK
from tests.client.faulty import FaultyServer, Out, Reply, Seen, answer, broken, hang, reset, served

MIB = 1 << 20
BIG = random.Random(0).randbytes(3 * MIB + 12345)


def digest(data: bytes) -> FileDigest:
    return FileDigest(hashlib.sha256(data).hexdigest(), len(data))


def fetch(kaggle: Kaggle, folder: Path, url: str, data: bytes | None = None) -> Artifact:
    (artifact,) = kaggle.download([OutputFile("f", url)], folder, {"f": digest(data)} if data is not None else {})
    return artifact


def left(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_many_files_at_once(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    contents = {f"a{n % 5}/b/{n}.bin": random.Random(n).randbytes(n * 301) for n in range(120)}
    files = [OutputFile(name, server.on(f"/{name}", served(data))) for name, data in contents.items()]
    artifacts = kaggle.download(files, tmp_path, {n: digest(d) for n, d in contents.items()})
    assert [a.name for a in artifacts] == list(contents)
    for artifact in artifacts:
        data = contents[artifact.name]
        assert Path(artifact.path).read_bytes() == data
        assert FileDigest(artifact.sha256, artifact.size) == digest(data)
    assert left(tmp_path) == sorted(contents)
    assert 1 < len({s.connection for s in server.seen}) <= 32
    assert not any("authorization" in s.headers for s in server.seen)


def test_they_come_in_parallel(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    together = threading.Barrier(8, timeout=5)

    def waits_for_the_others(seen: Seen, out: Out) -> None:
        together.wait()
        served(b"x")(seen, out)

    files = [OutputFile(str(n), server.on(f"/{n}", waits_for_the_others)) for n in range(8)]
    assert len(kaggle.download(files, tmp_path, {})) == 8


def test_an_empty_file_and_no_file(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    assert fetch(kaggle, tmp_path, server.on("/f", served(b"")), b"").size == 0
    assert kaggle.download([], tmp_path, {}) == ()


def test_what_is_there_and_right_is_not_fetched_again(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    url = server.on("/f", served(b"right"))
    (tmp_path / "f").write_bytes(b"right")
    assert fetch(kaggle, tmp_path, url, b"right") == Artifact("f", str(tmp_path / "f"), digest(b"right").sha256, 5)
    assert server.seen == []
    for stale in (b"wrong", b"right but longer"):
        (tmp_path / "f").write_bytes(stale)
        fetch(kaggle, tmp_path, url, b"right")
        assert (tmp_path / "f").read_bytes() == b"right"
    assert len(server.seen) == 2


@pytest.mark.parametrize("cut_by_reset", [False, True])
def test_a_body_that_breaks_off_is_continued(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, cut_by_reset: bool
) -> None:
    first = broken(BIG, 2 * MIB, etag='"1"', reset=cut_by_reset)
    fetch(kaggle, tmp_path, server.on("/f", first, served(BIG)), BIG)
    assert (tmp_path / "f").read_bytes() == BIG
    ranges = [s.headers.get("range") for s in server.seen]
    assert ranges[0] is None
    start = int(str(ranges[1]).removeprefix("bytes=").rstrip("-"))
    assert 0 < start <= 2 * MIB
    if not cut_by_reset:  # a reset may throw away what is on its way
        assert start == 2 * MIB
    assert server.seen[1].headers["if-range"] == '"1"'


def test_a_small_body_is_continued_from_its_last_byte(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    fetch(kaggle, tmp_path, server.on("/f", broken(b"0123456789", 4, etag='"1"'), served(b"0123456789")), b"0123456789")
    assert server.seen[1].headers["range"] == "bytes=4-"


@pytest.mark.parametrize("etag", [None, 'W/"1"'])
def test_without_a_strong_validator_it_begins_anew(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, etag: str | None
) -> None:
    fetch(kaggle, tmp_path, server.on("/f", broken(BIG, MIB, etag=etag), served(BIG, etag=etag)), BIG)
    assert "range" not in server.seen[1].headers
    assert (tmp_path / "f").read_bytes() == BIG


def test_a_file_that_changes_between_tries_is_never_mixed(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    old, new = b"A" * len(BIG), b"B" * len(BIG)
    fetch(kaggle, tmp_path, server.on("/f", broken(old, MIB, etag='"1"'), served(new, etag='"2"')))
    assert (tmp_path / "f").read_bytes() == new


def partial(start: int, data: bytes, total: int, etag: str) -> Reply:
    span = {"Content-Range": f"bytes {start}-{start + len(data) - 1}/{total}", "ETag": etag}
    return answer(data, 206, span)


@pytest.mark.parametrize(
    "wrong",
    [
        partial(4, b"BBBBBB", 10, '"2"'),  # another file's rest
        partial(3, b"BBBBBBB", 10, '"1"'),  # from elsewhere
        partial(4, b"BBBBBBB", 11, '"1"'),  # of another length
        answer(b"BBBBBB", 206),  # doesn't say what it is
        answer(b"", 416),
    ],
    ids=["etag", "start", "total", "silent", "416"],
)
def test_a_rest_that_does_not_fit_is_thrown_away(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, wrong: Reply
) -> None:
    data = b"AAAAAAAAAA"
    fetch(kaggle, tmp_path, server.on("/f", broken(data, 4, etag='"1"'), wrong, served(data)))
    assert (tmp_path / "f").read_bytes() == data
    assert [s.headers.get("range") for s in server.seen] == [None, "bytes=4-", None]


def test_a_rest_that_is_too_short_is_continued_too(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    some = answer(b"456", 206, {"Content-Range": "bytes 4-9/10", "ETag": '"1"'})
    fetch(kaggle, tmp_path, server.on("/f", broken(b"0123456789", 4, etag='"1"'), some, served(b"0123456789")))
    assert (tmp_path / "f").read_bytes() == b"0123456789"
    assert [s.headers.get("range") for s in server.seen] == [None, "bytes=4-", "bytes=7-"]


@pytest.mark.parametrize("status", [503, 500, 429, 408])
def test_a_server_that_fails_in_between_costs_nothing_that_came(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, status: int
) -> None:
    url = server.on("/f", broken(BIG, 2 * MIB, etag='"1"'), answer(b"", status), served(BIG))
    fetch(kaggle, tmp_path, url, BIG)
    assert [s.headers.get("range") for s in server.seen] == [None, *[f"bytes={2 * MIB}-"] * 2]
    assert (tmp_path / "f").read_bytes() == BIG


def test_a_rest_tells_the_size_that_the_beginning_did_not(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    def chunked(_: Seen, out: Out) -> None:
        out.head(200, {"Transfer-Encoding": "chunked", "ETag": '"1"'})
        out.write(b"4\r\n0123\r\n")
        out.drop(reset=False)

    some = answer(b"456", 206, {"Content-Range": "bytes 4-6/10", "ETag": '"1"'})
    fetch(kaggle, tmp_path, server.on("/f", chunked, some, served(b"0123456789")))
    assert (tmp_path / "f").read_bytes() == b"0123456789"
    assert [s.headers.get("range") for s in server.seen] == [None, "bytes=4-", "bytes=7-"]


def test_a_partial_answer_that_nobody_asked_for(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    with pytest.raises(BadAnswer):
        fetch(kaggle, tmp_path, server.on("/f", partial(0, b"AAAA", 4, '"1"')))
    assert left(tmp_path) == []


def test_progress_renews_patience(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    """Three tries are allowed; it takes four, but each brings more than a mebibyte."""

    def a_mebibyte_more(seen: Seen, out: Out) -> None:
        start = int(seen.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if start == 0:
            broken(BIG, MIB, etag='"1"')(seen, out)
            return
        span = f"bytes {start}-{len(BIG) - 1}/{len(BIG)}"
        out.head(206, {"Content-Range": span, "Content-Length": str(len(BIG) - start)})
        out.write(BIG[start : start + MIB])
        out.drop(reset=False)

    fetch(kaggle, tmp_path, server.on("/f", a_mebibyte_more), BIG)
    assert len(server.seen) == 4
    assert (tmp_path / "f").read_bytes() == BIG


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (broken(BIG, 1000), Unavailable),
        (answer(b"", 500), Unavailable),
        (answer(b"", 403), Unavailable),
        (answer(b"", 404), Damaged),
        (answer(b"", 418), BadAnswer),
        (reset, Unavailable),
        (hang, Unavailable),
    ],
    ids=["broken", "500", "403", "404", "418", "reset", "hang"],
)
def test_what_never_comes_is_given_up_and_leaves_nothing(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, reply: Reply, kind: type[Exception]
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(kind):
        fetch(kaggle, tmp_path, server.on("/f", reply), b"new")
    assert left(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"
    assert 1 <= len(server.seen) <= 3


def test_throttled_downloads_wait(server: FaultyServer, kaggle: Kaggle, clock: FakeClock, tmp_path: Path) -> None:
    url = server.on("/f", answer(b"slow", 429, {"Retry-After": "30"}), served(b"x"))
    fetch(kaggle, tmp_path, url)
    assert 30 <= sum(clock.slept) <= 31
    server.on("/f", answer(b"slow", 429, {"Retry-After": "3600"}))
    with pytest.raises(Throttled):
        fetch(kaggle, tmp_path, url)


def test_damage_is_tried_once_more_and_then_named(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    fetch(kaggle, tmp_path, server.on("/f", served(b"wrong"), served(b"right")), b"right")
    (tmp_path / "f").unlink()
    with pytest.raises(Damaged, match="its sha256 differs") as damaged:
        fetch(kaggle, tmp_path, server.on("/f", served(b"wrong")), b"right")
    assert damaged.value.files == ("f",)
    with pytest.raises(Damaged, match="4 bytes where 5 were recorded"):
        fetch(kaggle, tmp_path, server.on("/f", served(b"shor")), b"right")
    assert left(tmp_path) == []
    assert len(server.seen) == 6


def test_the_good_files_are_in_place_when_the_damaged_are_named(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path
) -> None:
    good = [OutputFile(f"good/{n}", server.on(f"/{n}", served(b"x"))) for n in range(40)]
    bad = [OutputFile(f"bad/{n}", server.on(f"/b{n}", served(b"y"))) for n in range(2)]
    gone = OutputFile("gone", server.on("/gone", answer(b"", 410)))
    with pytest.raises(Damaged) as damaged:
        kaggle.download([*bad, *good, gone], tmp_path, {f.name: digest(b"x") for f in [*good, *bad]})
    assert damaged.value.files == ("bad/0", "bad/1", "gone")
    assert left(tmp_path) == sorted(f.name for f in good)


def test_all_expired_addresses_are_signed_again_at_once(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    names = [f"f{n}" for n in range(20)]
    expired = [OutputFile(n, server.on(f"/old/{n}", answer(b"<Error>Expired</Error>", 403))) for n in names]
    listings = []

    def resign() -> dict[str, str]:
        listings.append(1)
        return {n: server.on(f"/new/{n}", served(n.encode())) for n in names}

    artifacts = kaggle.download(expired, tmp_path, {}, resign=resign)
    assert [Path(a.path).read_text() for a in artifacts] == names
    assert len(listings) == 1


def test_an_address_that_expires_in_mid_file(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    old = server.on("/old", broken(BIG, MIB, etag='"1"'), answer(b"", 400))
    new = server.on("/new", served(BIG))
    (artifact,) = kaggle.download([OutputFile("f", old)], tmp_path, {"f": digest(BIG)}, resign=lambda: {"f": new})
    assert Path(artifact.path).read_bytes() == BIG
    assert server.calls("/new")[0].headers["range"] == f"bytes={MIB}-"


def test_a_file_that_left_the_listing_is_missing(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    files = [OutputFile("f", server.on("/old", answer(b"", 403)))]
    with pytest.raises(Damaged, match="isn't in the output any more") as damaged:
        kaggle.download(files, tmp_path, {}, resign=dict)
    assert damaged.value.files == ("f",)


def test_new_addresses_that_are_not_taken_either(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    url = server.on("/f", answer(b"", 403))
    with pytest.raises(Unavailable, match="nor is a new one"):
        kaggle.download([OutputFile("f", url)], tmp_path, {}, resign=lambda: {"f": url})
    assert len(server.seen) == 3


class BriefClock(FakeClock):
    """Waits for real, but not for long: threads that never wait would ask for all files before one is given up."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        time.sleep(0.005)


def test_a_dead_server_is_not_asked_for_every_file(gone: str, tmp_path: Path) -> None:
    clock = BriefClock()
    files = [OutputFile(str(n), f"{gone}/{n}") for n in range(2000)]
    kaggle = connect(gone, environ={}, policy=QUICK, clock=clock)
    with kaggle, pytest.raises(Unavailable, match="of 2000 files"):
        kaggle.download(files, tmp_path, {})
    assert len(clock.slept) < 1000  # all of them would be some 6000
    assert left(tmp_path) == []


def test_an_address_that_is_none(kaggle: Kaggle, tmp_path: Path) -> None:
    for url in ("file:///etc/passwd", "nonsense", "http://"):
        with pytest.raises(BadAnswer, match="can't be used"):
            fetch(kaggle, tmp_path, url)


def test_gzip_on_the_way_is_undone(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    import gzip

    zipped = gzip.compress(b"plain text")
    url = server.on("/f", answer(zipped, headers={"Content-Encoding": "gzip", "ETag": '"1"'}))
    assert fetch(kaggle, tmp_path, url, b"plain text").size == 10
    assert server.seen[0].headers["accept-encoding"] == "identity"


# The disk.


def test_a_folder_in_the_files_place(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(ArtifactError, match="is a folder"):
        fetch(kaggle, tmp_path, server.on("/f", served(b"x")))


def test_a_file_in_a_folders_place(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    with pytest.raises(ArtifactError, match="can't be written"):
        kaggle.download([OutputFile("a/f", server.on("/f", served(b"x")))], tmp_path, {})
    assert (tmp_path / "a").read_text() == "mine"


def test_a_name_that_is_too_long(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    url = server.on("/f", served(b"x"))
    kaggle.download([OutputFile("n" * 255, url)], tmp_path, {})
    with pytest.raises(ArtifactError, match="name too long"):
        kaggle.download([OutputFile("n" * 256, url)], tmp_path, {})


def test_a_target_that_another_pull_is_writing(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    url = server.on("/f", served(b"mine"))
    with landing(tmp_path / "f", checked=True) as other:
        other.file.write(b"theirs")
        with pytest.raises(ArtifactError, match="Another pull"):
            fetch(kaggle, tmp_path, url)
    assert (tmp_path / "f").read_bytes() == b"theirs"
    assert left(tmp_path) == ["f"]


def test_a_file_that_another_pull_has_just_finished(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it's there and the lock on its part."""
    looked = landed

    def just_missed(target: Path, expected: FileDigest) -> bool:
        there = looked(target, expected)
        if not there:
            target.write_bytes(BIG)
        return there

    monkeypatch.setattr(download, "landed", just_missed)
    fetch(kaggle, tmp_path, server.on("/f", served(b"never asked for")), BIG)
    assert left(tmp_path) == ["f"]
    assert server.seen == []


def test_two_pulls_into_one_folder_wait_for_each_other(server: FaultyServer, tmp_path: Path) -> None:
    """Each holds a file that the other one wants too; none is fetched twice."""
    both_hold_one = threading.Barrier(2, timeout=20)

    def meets(seen: Seen, out: Out) -> None:
        both_hold_one.wait()
        served(seen.path.encode())(seen, out)

    files = [OutputFile(name, server.on(f"/{name}", meets)) for name in ("a", "b")]
    expected = {name: digest(f"/{name}".encode()) for name in ("a", "b")}
    policy = replace(QUICK, connections=1, read_s=20.0)
    results: list[int] = []

    def pulling(turned: list[OutputFile]) -> None:
        with connect(server.url, environ={"HOME": str(tmp_path / "home")}, policy=policy) as kaggle:
            results.append(len(kaggle.download(turned, tmp_path / "out", expected)))

    pulls = [threading.Thread(target=pulling, args=(turned,)) for turned in (files, files[::-1])]
    for one in pulls:
        one.start()
    for one in pulls:
        one.join()
    assert results == [2, 2]
    assert {name: (tmp_path / "out" / name).read_bytes() for name in left(tmp_path / "out")} == {"a": b"/a", "b": b"/b"}
    assert len(server.seen) == 2


def killed_in_mid_file(folder: Path, data: bytes, etag: str | None, total: int | None) -> None:
    """What a pull leaves that was killed when it had written ``data``."""
    child = os.fork()
    if child == 0:
        try:
            with landing(folder / "f", checked=True) as part:
                part.remember(etag, total)
                part.file.write(data)
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_the_next_pull_takes_over_what_a_killed_one_left(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    killed_in_mid_file(tmp_path, b"half of something long", None, None)
    assert len(left(tmp_path)) == 1
    fetch(kaggle, tmp_path, server.on("/f", served(b"whole")), b"whole")
    assert left(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"whole"
    assert "range" not in server.seen[0].headers


@pytest.mark.parametrize("known", [True, False])
def test_a_killed_pull_goes_on_inside_the_file(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, known: bool
) -> None:
    killed_in_mid_file(tmp_path, BIG[: 2 * MIB], '"1"', len(BIG))
    url = server.on("/f", served(BIG, etag='"1"'))
    artifact = fetch(kaggle, tmp_path, url, BIG if known else None)
    assert (artifact.sha256, artifact.size) == (digest(BIG).sha256, len(BIG))
    assert (tmp_path / "f").read_bytes() == BIG
    assert left(tmp_path) == ["f"]
    (seen,) = server.seen
    assert (seen.headers["range"], seen.headers["if-range"]) == (f"bytes={2 * MIB}-", '"1"')


def test_one_that_was_killed_at_the_last_byte_is_still_compared(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path
) -> None:
    killed_in_mid_file(tmp_path, BIG, '"1"', len(BIG))
    fetch(kaggle, tmp_path, server.on("/f", served(BIG, etag='"1"')))
    assert server.seen[0].headers["range"] == f"bytes={len(BIG) - 1}-"
    assert (tmp_path / "f").read_bytes() == BIG


@pytest.mark.parametrize("known", [True, False])
def test_what_changed_since_the_kill_is_never_mixed(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path, known: bool
) -> None:
    killed_in_mid_file(tmp_path, b"A" * 2 * MIB, '"1"', len(BIG))
    fetch(kaggle, tmp_path, server.on("/f", served(BIG, etag='"2"')), BIG if known else None)
    assert (tmp_path / "f").read_bytes() == BIG
    assert left(tmp_path) == ["f"]


def test_a_part_with_holes_is_found_out(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    killed_in_mid_file(tmp_path, bytes(2 * MIB), '"1"', len(BIG))
    fetch(kaggle, tmp_path, server.on("/f", served(BIG, etag='"1"')), BIG)
    assert (tmp_path / "f").read_bytes() == BIG
    assert [seen.headers.get("range") for seen in server.seen] == [f"bytes={2 * MIB}-", None]


@pytest.mark.parametrize("note", ["", "{", "[]", '{"etag": 1, "total": 2, "boot": "x"}', '{"etag": "W/1", "total": 9}'])
def test_a_note_that_is_none(server: FaultyServer, kaggle: Kaggle, tmp_path: Path, note: str) -> None:
    killed_in_mid_file(tmp_path, BIG[:MIB], '"1"', len(BIG))
    (path,) = tmp_path.glob(".kgo-*.note")
    path.write_text(note)
    fetch(kaggle, tmp_path, server.on("/f", served(BIG, etag='"1"')))
    assert "range" not in server.seen[0].headers
    assert left(tmp_path) == ["f"]


def test_an_unchecked_part_from_before_the_machine_s_last_start_is_not_taken_up(
    server: FaultyServer, kaggle: Kaggle, tmp_path: Path
) -> None:
    for data, ranges in ((None, [None]), (BIG, [f"bytes={MIB}-"])):
        killed_in_mid_file(tmp_path, BIG[:MIB], '"1"', len(BIG))
        (path,) = tmp_path.glob(".kgo-*.note")
        path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))
        before = len(server.seen)
        fetch(kaggle, tmp_path, server.on("/f", served(BIG, etag='"1"')), data)
        assert [seen.headers.get("range") for seen in server.seen[before:]] == ranges
        (tmp_path / "f").unlink()


def test_a_pull_that_was_killed_while_it_wrote_its_note(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    def killed(path: Path, text: str, encoding: str | None = None) -> int:
        with path.open("w", encoding=encoding) as file:
            file.write(text[: len(text) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    child = os.fork()
    if child == 0:
        try:
            Path.write_text = killed  # type: ignore[method-assign, assignment]
            with landing(tmp_path / "f", checked=True) as part:
                part.remember('"1"', len(BIG))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    (tmp_path / "f").write_bytes(BIG)
    fetch(kaggle, tmp_path, server.on("/f", served(BIG, etag='"1"')), BIG)
    assert left(tmp_path) == ["f"]
    assert server.seen == []


def test_a_small_file_is_fetched_again(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    killed_in_mid_file(tmp_path, b"some", '"1"', 9)
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    fetch(kaggle, tmp_path, server.on("/f", served(b"something", etag='"1"')), b"something")
    assert "range" not in server.seen[0].headers


def test_a_pull_that_was_given_up_goes_on_the_next_time(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    url = server.on("/f", broken(BIG, MIB // 2, etag='"1"'), *[answer(b"", 503)] * 5)
    with pytest.raises(Unavailable):
        fetch(kaggle, tmp_path, url, BIG)
    assert "f" not in left(tmp_path)
    fetch(kaggle, tmp_path, server.on("/f", served(BIG, etag='"1"')), BIG)
    assert server.seen[-1].headers["range"] == f"bytes={MIB // 2}-"
    assert left(tmp_path) == ["f"]


def test_parts_of_a_file_that_is_right_by_now_are_removed(server: FaultyServer, kaggle: Kaggle, tmp_path: Path) -> None:
    killed_in_mid_file(tmp_path, b"some", '"1"', len(BIG))
    (tmp_path / "f").write_bytes(b"something")
    fetch(kaggle, tmp_path, server.on("/f", served(b"something")), b"something")
    assert left(tmp_path) == ["f"]
    assert server.seen == []


SCRIPT = """
import sys
from pathlib import Path
from kaggle_orchestrator.client import connect
from kaggle_orchestrator.errors import ArtifactError
from kaggle_orchestrator.models import OutputFile

url, folder = sys.argv[1], Path(sys.argv[2])
print("begins", flush=True)
try:
    connect(url).download([OutputFile("small", f"{url}/small"), OutputFile("big", f"{url}/big")], folder, {})
except ArtifactError as error:
    print(type(error).__name__, error.message, error.hint)
print(sorted(p.name for p in folder.iterdir()))
"""


def test_a_full_disk_is_said_and_leaves_nothing_half(server: FaultyServer, tmp_path: Path) -> None:
    """On a real file system of one mebibyte."""
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"']
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run([*mount, folder, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    server.on("/small", served(b"x" * 1000))
    server.on("/big", served(BIG))
    command = [*mount, str(folder), sys.executable, "-c", SCRIPT, server.url, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "ArtifactError The disk is full" in done.stdout
    assert "Free some space" in done.stdout
    assert done.stdout.splitlines()[-1] in ("['small']", "[]")


def test_an_interrupt_does_not_wait_for_a_silent_server(server: FaultyServer, tmp_path: Path) -> None:
    came = threading.Event()

    def silent(seen: Seen, out: Out) -> None:
        came.set()
        hang(seen, out)

    server.on("/small", silent)
    server.on("/big", silent)
    command = [sys.executable, "-c", SCRIPT, server.url, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert came.wait(30)
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=10)  # a read may be silent for 60 s
    assert "KeyboardInterrupt" in talk
