"""Errors to messages and exit codes."""

import sys

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
