import base64

import pytest

from kaggle_orchestrator.localkaggle.identity import user_of_authorization, user_of_token


def basic(user: str, key: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{key}".encode()).decode()


@pytest.mark.parametrize(
    ("token", "user"),
    [
        ("kgo-local", "me"),
        ("kgo-local-acme-lab", "acme-lab"),
        ("kgo-local-", None),
        ("kgo-local-a/b", None),
        ("kgo-localx", None),
        ("", None),
        ("KGAT_0123456789abcdef", None),
    ],
)
def test_tokens(token: str, user: str | None) -> None:
    assert user_of_token(token) == user
    assert user_of_authorization(f"Bearer {token}") == user


def test_legacy_keys_name_their_user() -> None:
    assert user_of_authorization(basic("ann", "kgo-local")) == "ann"
    assert user_of_authorization(basic("ann", "0123456789abcdef0123456789abcdef")) is None
    assert user_of_authorization(basic("../x", "kgo-local")) is None


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic", "Basic %%%", "Basic /w==", "Digest kgo-local"])
def test_anything_else_is_nobody(header: str | None) -> None:
    assert user_of_authorization(header) is None
