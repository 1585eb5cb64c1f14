"""Frozen dataclasses to JSON and back; a document that doesn't fit is refused with the key's path."""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Malformed(ValueError):
    """A JSON document isn't what the protocol says it is; the message begins with the key's path."""


def to_jsonable(value: object) -> Any:
    """Plain dicts, lists, strings and numbers for a (nested) dataclass; enums become their values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_jsonable(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_jsonable(v) for v in value]
    return value


def from_jsonable(cls: type[T], data: object) -> T:
    """Build ``cls`` from parsed JSON. Unknown keys are passed over, so that newer writers can be read.

    Raises:
        Malformed: A key is missing or has the wrong type.
    """
    return cast(T, _convert(cls, data, cls.__name__))


def _convert(hint: Any, data: object, path: str) -> object:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return data
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in args:
            return None
        choices = [a for a in args if a is not type(None)]
        exact = [a for a in choices if type(data) is a]
        return _convert((exact or choices)[0], data, path)
    if is_dataclass(hint):
        return _dataclass(cast(type, hint), data, path)
    if origin is tuple:
        if not isinstance(data, list):
            raise Malformed(f"{path}: expected a list, got {type(data).__name__}")
        return tuple(_convert(args[0], v, f"{path}[{i}]") for i, v in enumerate(data))
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        if not isinstance(data, dict):
            raise Malformed(f"{path}: expected an object, got {type(data).__name__}")
        return {str(k): _convert(args[1], v, f"{path}.{k}") for k, v in data.items()}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(str(data))
        except ValueError as error:
            raise Malformed(f"{path}: {data!r} is not one of {', '.join(hint)}") from error
    if hint in (int, float) and isinstance(data, int) and not isinstance(data, bool):
        if not -(1 << 63) <= data < 1 << 63:
            raise Malformed(f"{path}: a number of {len(hex(data)) - 2} hexadecimal digits is out of range")
        return hint(data)
    if isinstance(hint, type) and type(data) is hint:
        return data
    raise Malformed(f"{path}: expected {getattr(hint, '__name__', hint)}, got {type(data).__name__}")


def _dataclass(cls: type, data: object, path: str) -> object:
    if not isinstance(data, dict):
        raise Malformed(f"{path}: expected an object, got {type(data).__name__}")
    hints = typing.get_type_hints(cls)
    values = {}
    for f in fields(cls):
        if f.name in data:
            values[f.name] = _convert(hints[f.name], data[f.name], f"{path}.{f.name}")
        elif f.default is MISSING and f.default_factory is MISSING:
            raise Malformed(f"{path}.{f.name}: missing")
    return cls(**values)
