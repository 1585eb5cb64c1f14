"""An HTTP answer as it came: status, headers, bytes; nothing in it is judged yet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import requests


@dataclass(frozen=True, slots=True)
class Answer:
    """Header names are in lower case; ``at`` is when it came, in seconds since the epoch."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    at: float


def answer_of(response: requests.Response, body: bytes, now: float) -> Answer:
    """A response whose body was read, or isn't wanted."""
    return Answer(response.status_code, {k.lower(): v for k, v in response.headers.items()}, body, now)


def blocks(response: requests.Response, size: int) -> Iterator[bytes]:
    """The body in pieces of at most ``size`` bytes, each handed over as soon as it's there.

    requests' own iterator waits for whole pieces: what arrived before a cut is lost, and a trickle is never noticed.
    """
    while block := response.raw.read1(size, decode_content=True):
        yield block
