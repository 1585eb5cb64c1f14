"""The small notations: durations, sizes, sources, accelerators, globs, parameters."""

import pytest

from kaggle_orchestrator.experiment.params import UnknownParameter, substitute
from kaggle_orchestrator.experiment.values import (
    ACCELERATORS,
    format_duration,
    parse_accelerator,
    parse_duration,
    parse_size,
    shown,
)
from kaggle_orchestrator.protocol.globs import matches


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("12h", 43200), ("1.5h", 5400), (" 2 m ", 120), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "10 min", "1d", "-5m", "1h30m", "٣m٣", "1e3s", 10, None, True])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["90s", "10m", "12h", "1.5s"])
def test_durations_are_written_as_they_are_read(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize(("text", "size"), [("1GB", 10**9), ("500MB", 5 * 10**8), ("1.5KB", 1500), ("3B", 3)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["1", "1gb", "GB", "1GiB", "-1GB", 5])
def test_no_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size(text)


def test_an_accelerator_has_kgos_name_and_kaggles() -> None:
    for accelerator in ACCELERATORS.values():
        assert parse_accelerator(accelerator.name) is accelerator
        if accelerator.machine_shape:
            assert parse_accelerator(accelerator.machine_shape) is accelerator
            assert accelerator.gpus > 0
        else:
            assert accelerator.gpus == 0


def test_what_a_message_shows_stays_on_one_short_line() -> None:
    assert shown("a\nb\x1b[31m") == '"a\\nb\\x1b[31m"'
    assert len(shown("x" * 1000)) == 80


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("src/**", ["src/a.py", "src/a/b.py"], ["a.py", "srcs/a.py", "x/src/a.py"]),
        ("src", ["src/a.py", "src"], ["src.py"]),
        ("./src/", ["src/a/b.py"], ["a.py"]),
        ("*.py", ["a.py"], ["a/b.py", "a.pyc"]),
        ("**/*.py", ["a.py", "a/b/c.py"], ["a.txt"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z/inside"], ["a", "b/z", "a/zz"]),
        ("**", ["a", "a/b"], []),
        (".", ["a", "a/b"], []),
        ("a?[0-9].txt", ["ab1.txt"], ["a1.txt", "abc.txt"]),
        ("[!a]*", ["b", "b/a"], ["a"]),
        ("a+b(c).txt", ["a+b(c).txt"], ["aab(c).txt"]),
        ("A", ["A"], ["a"]),
        ("a\nb", ["a\nb"], ["ab"]),
    ],
)
def test_globs(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [p for p in yes if not matches(p, [pattern])] == []
    assert [p for p in no if matches(p, [pattern])] == []


def test_parameters_in_arguments() -> None:
    params = {"lr": 0.1, "name": "a {params.lr}", "on": True, "n": 3, "list": [1, "x"], "opt": {"beta": 0.9}}
    assert substitute("--lr={params.lr}", params) == "--lr=0.1"
    assert substitute("{params.name}", params) == "a {params.lr}", "what is put in isn't read again"
    assert substitute("{params.on} {params.n} {params.list}", params) == 'true 3 [1, "x"]'
    assert substitute("{params.opt.beta}", params) == "0.9"
    for text in ("{resume}", "{epoch:02d}", "{{params.lr", "{}", "{params}"):
        assert substitute(text, params) == text
    for text in ("{params.}", "{params.missing}", "{params.lr.x}"):
        with pytest.raises(UnknownParameter):
            substitute(text, params)
