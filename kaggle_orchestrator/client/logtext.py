"""A session's log to lines: Kaggle keeps it as a JSON array of pieces that end anywhere, or as plain text."""

import json
from collections.abc import Iterator


def log_lines(text: str) -> tuple[str, ...]:
    """The lines of a version's log, without line ends.

    Pieces are put together by stream: a line of stdout stays whole when stderr speaks in its middle. An array that
    breaks off gives the lines up to there.
    """
    pieces = list(_pieces(text))
    if not pieces:
        return tuple(_split(text))
    lines: list[str] = []
    begun: dict[str, list[str]] = {}
    for stream, data in pieces:
        first, *more = data.split("\n")
        begun.setdefault(stream, []).append(first)
        if more:
            lines += ["".join(begun[stream]), *more[:-1]]
            begun[stream] = [more[-1]]
    lines += [rest for rest in map("".join, begun.values()) if rest]
    return tuple(line.removesuffix("\r") for line in lines)


def _split(text: str) -> Iterator[str]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return (line.removesuffix("\r") for line in lines)


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Stream and text of each object of an array, as far as it can be read; nothing if it isn't one."""
    decoder, at = json.JSONDecoder(), len(text) - len(text.lstrip())
    if not text[at:].startswith("["):
        return
    at += 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            item, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(item, dict) and isinstance(item.get("data"), str):
            yield str(item.get("stream_name", "")), item["data"]
