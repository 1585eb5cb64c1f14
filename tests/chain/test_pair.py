"""The two kernels' names and titles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slugify import slugify

from kaggle_orchestrator.chain.pair import MAX_TITLE, Half, Pair
from kaggle_orchestrator.models import KernelRef

PAIR = Pair("me", "digits-cnn")


def test_names() -> None:
    assert PAIR.ref(Half.A) == KernelRef("me", "digits-cnn")
    assert PAIR.ref(Half.B) == KernelRef("me", "digits-cnn-b")
    assert Half.A.other is Half.B
    assert Half.B.other is Half.A
    assert [PAIR.half(r) for r in ("me/digits-cnn", "me/digits-cnn-b", "you/digits-cnn")] == [Half.A, Half.B, None]


@pytest.mark.parametrize(
    ("title", "other"),
    [
        ("digits-cnn", "digits-cnn b"),
        ("Digits CNN", "Digits CNN b"),
        ("Digits... CNN!", "Digits... CNN! b"),
        ("Digits CNN" + " " * 39, "digits-cnn-b"),  # no room for more
    ],
)
def test_titles(title: str, other: str) -> None:
    assert PAIR.title(Half.A, title) == title
    assert PAIR.title(Half.B, title) == other


@given(st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True).filter(lambda s: 5 <= len(s) <= 40), st.booleans())
def test_a_title_always_gives_its_slug_and_has_room(slug: str, spaced: bool) -> None:
    title = slug.replace("-", " ").title() if spaced else slug
    for half in Half:
        made = Pair("me", slug).title(half, title)
        assert slugify(made) == Pair("me", slug).ref(half).slug
        assert len(made) <= MAX_TITLE
