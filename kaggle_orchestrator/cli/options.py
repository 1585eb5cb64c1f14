"""Options and arguments that several commands share, and how they print data."""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from kaggle_orchestrator.models import KernelRef

F = TypeVar("F", bound=Callable[..., Any])
_PLAIN = str.maketrans({"→": "->", "…": "...", "×": "x"})


def exp_argument(command: F) -> F:
    """``[EXP]``: a kgo.toml or its folder; the current folder by default. Passed as ``exp: Path``."""
    return click.argument("exp", default=".", type=click.Path(path_type=Path), metavar="[EXP]")(command)


def json_option(command: F) -> F:
    """``--json``. Passed as ``as_json: bool``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")(command)


def owner_option(command: F) -> F:
    """``--owner``, for what is made without asking Kaggle. Passed as ``owner: str``."""
    return click.option(
        "--owner",
        envvar="KAGGLE_USERNAME",
        default="me",
        show_default=True,
        help="Account that the kernel will belong to. [env: KAGGLE_USERNAME]",
        callback=_owner,
    )(command)


def _owner(_: click.Context, __: click.Parameter, value: str) -> str:
    return KernelRef.parse(f"{value}/x").owner


def echo(text: str, *, err: bool = False) -> None:
    """A line for a person; what the stream's encoding lacks is replaced."""
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    click.echo(text, err=err)


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown(path: str | Path) -> str:
    """A path as a person would type it: relative if it lies below the current folder."""
    with suppress(ValueError, OSError):
        return str(Path(path).relative_to(Path.cwd()))
    return str(path)


def print_json(document: Mapping[str, Any]) -> None:
    """Data to stdout, as one document."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
