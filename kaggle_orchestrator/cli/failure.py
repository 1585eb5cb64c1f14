"""Errors to messages and exit codes."""

import os
import sys
from contextlib import suppress

from kaggle_orchestrator.errors import ChainError, ChainLive, UserError
from kaggle_orchestrator.protocol import KgoError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PERSON = 3
EXIT_IN_PROGRESS = 4


def exit_code(error: KgoError) -> int:
    """The exit code that an error means."""
    if isinstance(error, UserError):
        return EXIT_USAGE
    if isinstance(error, ChainLive):
        return EXIT_IN_PROGRESS
    if isinstance(error, ChainError):
        return EXIT_PERSON
    return EXIT_FAILED


def report(error: KgoError) -> int:
    """Print an error to stderr; returns its exit code."""
    _say(f"kgo: {error.message}" + (f"\n     {error.hint}" if error.hint else ""))
    return exit_code(error)


def report_system(error: OSError) -> int:
    """Print what the operating system refused, where no layer below had better words; returns the exit code."""
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    _say(f"kgo: {where}{error.strerror or error}")
    return EXIT_FAILED


def _say(text: str) -> None:
    if sys.stderr is None:  # closed by the caller
        return
    with suppress(OSError):  # a full disk may be what stderr goes to
        print(text, file=sys.stderr, flush=True)
