"""A log is whole lines, bounded, and keeps its end."""

import json
import os
from pathlib import Path

from kaggle_orchestrator.localkaggle.sessionlog import LogReader, LogWriter, whole_log


def records(path: Path) -> list[dict[str, object]]:
    found = json.loads(whole_log(path))
    assert isinstance(found, list)
    return found


def test_lines_are_put_together(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log", 1 << 20)
    log.feed("stdout", b"one", 1.0)
    log.feed("stderr", b"other\n", 1.1)
    log.feed("stdout", b" line\nnext ", 1.2)
    log.tick(1.3)
    log.tick(9.0)
    log.feed("stdout", "é".encode()[:1], 9.1)
    log.feed("stdout", "é".encode()[1:] + b"\xff", 9.2)
    log.close(9.3)
    assert records(tmp_path / "log") == [
        {"stream_name": "stderr", "time": 1.1, "data": "other\n"},
        {"stream_name": "stdout", "time": 1.2, "data": "one line\n"},
        {"stream_name": "stdout", "time": 9.0, "data": "next "},
        {"stream_name": "stdout", "time": 9.3, "data": "é\ufffd"},
    ]


def test_a_flood_is_cut_in_its_middle(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log", 100_000)
    for number in range(10_000):
        log.feed("stdout", f"line {number}\n".encode(), 1.0)
    log.feed("stdout", b"x" * 200_000, 1.0)
    log.feed("stdout", b"\nKGO_RESULT last\n", 2.0)
    log.close(2.0)
    assert (tmp_path / "log").stat().st_size < 240_000
    text = [str(r["data"]) for r in records(tmp_path / "log")]
    assert text[0] == "line 0\n"
    assert text[-1] == "KGO_RESULT last\n"
    assert any("left out" in line for line in text)


def test_a_reader_waits_for_the_end_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LogReader(path)
    assert reader.new() == []
    path.write_bytes(b'{"a": 1}\n{"b"')
    assert reader.new() == ['{"a": 1}']
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert reader.new() == ['{"b": 2}']
    assert reader.new() == []


def test_a_full_disk_costs_whole_records_only(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for the disk: writes beyond it are cut short, then fail."""
    import resource
    import signal

    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            log = LogWriter(tmp_path / "log", 1 << 20)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            for number in range(100):
                log.feed("stdout", f"line {number}\n".encode(), 1.0)
            log.close(1.0)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    kept = records(tmp_path / "log")
    assert 5 < len(kept) < 30
    assert kept[0]["data"] == "line 0\n"
