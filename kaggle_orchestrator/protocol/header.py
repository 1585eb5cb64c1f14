"""The header of a pushed source: which attempt of which chain it is, and which checkpoint it goes on from.

One line of ASCII JSON behind a fixed mark. Whoever reads the source of a version back from Kaggle learns from it
all that the journal knew, so the journal can be lost.
"""

import hashlib
import json
from dataclasses import dataclass

from kaggle_orchestrator.protocol.jsonable import from_jsonable, to_jsonable

MARK = "# kgo-header: "
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Parent:
    """The checkpoint that an attempt goes on from.

    Attributes:
        kernel: ``owner/slug`` of the kernel whose output holds it.
        version: The version of that kernel.
        token: Token of the attempt that wrote it.
        step: Its global step.
        sha256: sha256 of its ``manifest.json``.
    """

    kernel: str
    version: int
    token: str
    step: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Header:
    """What a pushed source says of itself.

    Attributes:
        chain: Chain id.
        leg: From 1.
        attempt: From 1, counted over the whole chain.
        token: ``attempt_token(chain, leg, attempt)``.
        parent: None on a leg that starts from nothing.
        code_sha256: Fingerprint of the user's files.
        config_sha256: Fingerprint of the configuration that training depends on.
        kgo_version: The version that rendered it.
    """

    chain: str
    leg: int
    attempt: int
    token: str
    parent: Parent | None
    code_sha256: str
    config_sha256: str
    kgo_version: str
    schema: int = SCHEMA

    def line(self) -> str:
        """The line that carries it, without a newline."""
        return MARK + json.dumps(to_jsonable(self), sort_keys=True, separators=(",", ":"))


def attempt_token(chain: str, leg: int, attempt: int) -> str:
    """16 hex digits that name one attempt; the same for the same attempt, whoever asks and when."""
    return hashlib.sha256(f"kgo-attempt\n{chain}\n{leg}\n{attempt}".encode()).hexdigest()[:16]


def parse_header(source: str) -> Header | None:
    """The header in a kernel's source (a script, or a notebook's JSON text), or None where there is none."""
    start = source.find(MARK)
    if start < 0:
        return None
    text = source[start + len(MARK) :]
    if source.lstrip().startswith("{"):  # a notebook: the line lies inside a JSON string
        text = text.replace('\\"', '"')
    try:
        data, _ = json.JSONDecoder().raw_decode(text)
        return from_jsonable(Header, data)
    except (ValueError, RecursionError):
        return None
