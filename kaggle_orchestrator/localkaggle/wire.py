"""Reading requests: what isn't a well-formed call is refused here, so nothing odd is ever stored or answered 500."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from kaggle_orchestrator.models import KernelRef

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_LABEL = re.compile(r"v([1-9]\d{0,8})")
_MAX_INT = 1 << 53


class Refusal(Exception):
    """A call is answered with an HTTP error.

    Attributes:
        status: The HTTP status.
        message: What the client is told.
        headers: Of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def denied() -> Refusal:
    """Kaggle's answer for a kernel that isn't there, and for one that isn't yours."""
    return Refusal(403, "Permission 'kernels.get' was denied")


def parse_body(body: bytes) -> "Fields":
    """The fields of a call.

    Raises:
        Refusal: 400, it isn't a JSON object (NaN and endless nesting included).
    """
    try:
        data = json.loads(body or b"{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The request is not JSON: {str(error)[:200]}") from error
    if not isinstance(data, dict):
        raise Refusal(400, f"The request must be a JSON object, not {type(data).__name__}")
    return Fields(data)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a call; each accessor refuses (400) what isn't of its type. Absent and null are the default."""

    data: Mapping[str, Any]

    def text(self, name: str, default: str = "") -> str:
        """A string that can be stored and answered: no lone surrogate, no NUL."""
        value = self.data.get(name)
        return default if value is None else _text(name, value)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise Refusal(400, f"{name}: expected true or false")
        return value

    def integer(self, name: str) -> int | None:
        """A whole number that fits a double."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_INT:
            raise Refusal(400, f"{name}: expected a whole number")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise Refusal(400, f"{name}: expected a list")
        return tuple(_text(name, item) for item in value)

    def inner(self, name: str) -> "Fields":
        """An object."""
        value = self.data.get(name)
        if value is None:
            return Fields({})
        if not isinstance(value, dict):
            raise Refusal(400, f"{name}: expected an object")
        return Fields(value)

    def objects(self, name: str) -> tuple["Fields", ...]:
        """A list of objects."""
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise Refusal(400, f"{name}: expected a list of objects")
        return tuple(Fields(item) for item in value)

    def kernel(self, owner: str = "userName", slug: str = "kernelSlug") -> KernelRef:
        """A kernel's name; one that can't be a name is refused as Kaggle refuses unknown ones."""
        ref = KernelRef(self.text(owner), self.text(slug).lower())
        if not _NAME.fullmatch(ref.owner) or not _NAME.fullmatch(ref.slug):
            raise denied()
        return ref

    def version(self) -> int | None:
        """``versionLabel`` as a number. A bare number is unknown to Kaggle."""
        label = self.text("versionLabel")
        return parse_label(label) if label else None

    def page(self, default: int = 20, most: int = 200) -> tuple[int, int]:
        """Offset and size of the page asked for."""
        size = self.integer("pageSize")
        if size is not None and size < 0:
            raise Refusal(400, "pageSize: expected a number from 0")
        token = self.text("pageToken")
        if token and not (token.isascii() and token.isdigit() and len(token) < 10):
            raise Refusal(400, "pageToken: not one of this server's")
        return int(token or 0), min(size or default, most)


def parse_label(label: str) -> int:
    """The number in a version label.

    Raises:
        Refusal: 404, it isn't one.
    """
    match = _LABEL.fullmatch(label)
    if not match:
        raise Refusal(404, f"Version {label[:40]!r} not found")
    return int(match[1])


def is_name(text: str) -> bool:
    """Whether it can be an owner or a slug."""
    return bool(_NAME.fullmatch(text))


def timestamp(seconds: float) -> str:
    """A time as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """A duration as the API writes it, e.g. ``108000s``."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise Refusal(400, f"{name}: expected a string")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise Refusal(400, f"{name}: not valid text")
    return value
