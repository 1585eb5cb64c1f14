"""What the validator found wrong, said as ``key.path: message`` in plain words."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

from kaggle_orchestrator.errors import Fault
from kaggle_orchestrator.experiment.schema import TABLES, Document
from kaggle_orchestrator.experiment.values import shown

_EXPECTED = {
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")

_ELSEWHERE = {
    "machine_shape": "kernel.accelerator",
    "enable_gpu": "kernel.accelerator",
    "gpu": "kernel.accelerator",
    "enable_internet": "kernel.internet",
    "is_private": "kernel.private",
    "id": "kernel.slug",
    "name": "kernel.slug",
    "dataset_sources": "kernel.datasets",
    "competition_sources": "kernel.competitions",
    "kernel_sources": "kernel.kernels",
    "model_sources": "kernel.models",
    "code_file": "train.entry",
    "script": "train.entry",
    "timeout": "chain.session_limit",
}
"""Keys of ``kernel-metadata.json`` and other habits."""


def dotted(location: Sequence[str | int]) -> str:
    """``("kernel", "datasets", 0)`` as ``kernel.datasets[0]``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else shown(part))
    return text


def fault_of(error: ErrorDetails) -> Fault:
    """One of the validator's findings."""
    location = tuple(error["loc"])
    return Fault(dotted(location), _message(error, location))


def _message(error: ErrorDetails, location: tuple[str | int, ...]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(location)
    if kind == "value_error":
        return str(context["error"])
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind]}, got {shown(error['input'])}"
    return error["msg"].lower()


def unknown_key(location: Sequence[str | int]) -> str:
    """What to say to a key that doesn't exist: the one that was probably meant."""
    name = str(location[-1])
    if len(location) == 1:
        kind, known = "unknown table", dict.fromkeys(Document.model_fields, "")
    else:
        kind, known = "unknown key", dict.fromkeys(TABLES[str(location[0])].model_fields, "")
    if close := get_close_matches(name.replace("-", "_").casefold(), known, n=1, cutoff=0.7):
        return f"{kind}; did you mean {close[0]}?"
    if elsewhere := _elsewhere(name):
        return f"{kind}; did you mean {elsewhere}?"
    return f"{kind}; known: {', '.join(known)}"


def _elsewhere(name: str) -> str | None:
    """The full name of a key that is right, but in another table."""
    for table, model in TABLES.items():
        if name in model.model_fields:
            return f"{table}.{name}"
    return _ELSEWHERE.get(name)


def without(document: Mapping[str, Any], locations: Sequence[Sequence[str | int]]) -> dict[str, Any]:
    """A copy of ``document`` that lacks the keys at fault, so that the rest can be looked at."""
    copy = {k: dict(v) if isinstance(v, dict) else v for k, v in document.items()}
    for location in locations:
        table, *rest = location
        if rest and isinstance(copy.get(str(table)), dict):
            copy[str(table)].pop(rest[0], None)
        else:
            copy.pop(str(table), None)
    return copy
