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
    print(f"kgo: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"     {error.hint}", file=sys.stderr)
    return exit_code(error)


def report_system(error: OSError) -> int:
    """Print what the operating system refused, where no layer below had better words; returns the exit code."""
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    with suppress(OSError):  # a full disk may be what stderr goes to
        print(f"kgo: {where}{error.strerror or error}", file=sys.stderr, flush=True)
    return EXIT_FAILED
