"""Who a credential is. The local Kaggle knows only credentials of its own, so a real one is never of use to it."""

import base64
import binascii
import re

USER = "me"
"""The user of the plain token."""
TOKEN = "kgo-local"
"""The token of ``me``; ``kgo-local-<name>`` is ``<name>``'s."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def user_of_token(token: str) -> str | None:
    """The user of a bearer token, or None if it isn't one of the local Kaggle's."""
    if token == TOKEN:
        return USER
    name = token.removeprefix(f"{TOKEN}-")
    return name if name != token and _NAME.fullmatch(name) else None


def user_of_authorization(header: str | None) -> str | None:
    """The user of an ``Authorization`` header, or None: ``Bearer kgo-local[-name]`` or ``Basic name:kgo-local``."""
    scheme, _, value = (header or "").strip().partition(" ")
    if scheme.lower() == "bearer":
        return user_of_token(value.strip())
    if scheme.lower() == "basic":
        try:
            name, _, key = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        return name if key == TOKEN and _NAME.fullmatch(name) else None
    return None
