"""Lines come out of a log whole, whatever form it has and wherever it is cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaggle_orchestrator.client.logtext import log_lines


def piece(data: str, stream: str = "stdout") -> dict[str, object]:
    return {"stream_name": stream, "time": 1.5, "data": data}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        ("one\ntwo", ("one", "two")),
        ("one\r\ntwo\n", ("one", "two")),
        ("\n", ("",)),
        ("[INFO] begins like an array\n", ("[INFO] begins like an array",)),
        ("[1, 2]\n", ("[1, 2]",)),
        ("[]", ("[]",)),
        ("[" * 100_000, ("[" * 100_000,)),
        (json.dumps([piece("one\ntw"), piece("o\n")]), ("one", "two")),
        (json.dumps([piece("no end")]), ("no end",)),
        ("[" + json.dumps(piece("a\n")) + "\n," + json.dumps(piece("b\n")) + "\n]", ("a", "b")),
        (json.dumps([piece("a\n"), piece("b\n")])[:-20], ("a",)),
        (json.dumps([piece("a\n"), 7, {"data": 1}, piece("b\n")]), ("a", "b")),
    ],
)
def test_lines(text: str, lines: tuple[str, ...]) -> None:
    assert log_lines(text) == lines


def test_a_line_stays_whole_when_the_other_stream_speaks_in_its_middle() -> None:
    pieces = [piece("KGO_RES"), piece("warning\n", "stderr"), piece('ULT {"a":1}\n')]
    assert log_lines(json.dumps(pieces)) == ("warning", 'KGO_RESULT {"a":1}')


def test_many_small_pieces_take_no_more_than_a_moment() -> None:
    assert log_lines(json.dumps([piece("x" * 50 + "\r")] * 100_000))[0].startswith("xxx")


@given(st.text(alphabet="ab\n", max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_how_it_is_cut_into_pieces_makes_no_difference(text: str, cuts: list[int]) -> None:
    ends = [0, *sorted(min(c, len(text)) for c in cuts), len(text)]
    pieces = [piece(text[a:b]) for a, b in pairwise(ends)]
    whole = text.split("\n")
    assert log_lines(json.dumps(pieces)) == tuple(whole if whole[-1] else whole[:-1])
