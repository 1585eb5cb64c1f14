"""``{params.lr}`` in ``train.args``. ``{resume}`` is left for the session; other braces are the user's own."""

import json
import re
from collections.abc import Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\{params\.([^{}]*)\}")


class UnknownParameter(ValueError):
    """``args`` name a parameter that ``params`` lacks."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def substitute(arg: str, params: Mapping[str, Any]) -> str:
    """Put parameters into one argument: text as it is, numbers and booleans as TOML and JSON write them, else JSON.

    Raises:
        UnknownParameter: There is none of that name. A dot goes into a table: ``{params.optimizer.lr}``.
    """
    return _PLACEHOLDER.sub(lambda match: _text(_value(match[1], params)), arg)


def _value(name: str, params: Mapping[str, Any]) -> object:
    value: object = params
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UnknownParameter(name)
        value = value[part]
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
