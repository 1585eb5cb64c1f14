"""What people read: the progress of ``kgo run`` on stderr (on a terminal also a live line a chain), lines on stdout.

A display that can't be written to (a full disk, a terminal that went) is dropped: it never stops a chain.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kaggle_orchestrator.chain.events import Adopted, Ended, Event, Pushed, StatusSeen, Waiting
from kaggle_orchestrator.chain.model import Attempt, Why
from kaggle_orchestrator.cli import words
from kaggle_orchestrator.cli.options import echo

if TYPE_CHECKING:
    from rich.progress import TaskID


@contextmanager
def _dropped() -> Iterator[None]:
    """Once stderr fails it is given up, so that neither later words nor the interpreter's end fail on it."""
    try:
        yield
    except (OSError, ValueError):  # ValueError: closed
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # it stays


class Display:
    """Plain lines: one an event, so that a CI log stays short. ``slugs`` in front of each if there are several."""

    def __init__(self, slugs: tuple[str, ...]) -> None:
        self._several = len(slugs) > 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def event(self, slug: str, event: Event) -> None:
        """Show an event."""
        text = words.line(event)
        if text is not None:
            self.say(slug, text)

    def say(self, slug: str, text: str) -> None:
        """Show a line; of a longer text each line is told apart from others'."""
        with _dropped():
            for line in text.splitlines():
                self._write(f"kgo: {slug}: {line}" if self._several else f"kgo: {line}")

    def _write(self, line: str) -> None:
        echo(line, err=True)


class LiveDisplay(Display):
    """Lines, and below them for each chain a bar over its steps and what it does now."""

    def __init__(self, slugs: tuple[str, ...]) -> None:
        super().__init__(slugs)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[steps]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=4,
        )
        self._tasks: dict[str, TaskID] = {
            slug: self._progress.add_task(f"{slug}: looking", total=None, steps="") for slug in slugs
        }

    def __enter__(self) -> Self:
        with _dropped():
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _dropped():
            self._progress.stop()

    def event(self, slug: str, event: Event) -> None:
        """Show an event: its line, and what it changes below."""
        super().event(slug, event)
        with _dropped():
            self._below(slug, event)

    def _below(self, slug: str, event: Event) -> None:
        match event:
            case Pushed(attempt) | Adopted(attempt):
                self._now(slug, attempt, f"leg {attempt.leg}: queued")
            case StatusSeen(attempt):
                self._now(slug, attempt, f"leg {attempt.leg}: {attempt.status}".lower())
            case Ended(attempt):
                self._now(slug, attempt, f"leg {attempt.leg}: {attempt.outcome}")
            case Waiting(wait) if wait.why is not Why.SESSION:
                self._progress.update(self._tasks[slug], description=f"{slug}: waiting for {words.WAITS[wait.why]}")
            case _:
                pass

    def _write(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _now(self, slug: str, attempt: Attempt, text: str) -> None:
        task = self._tasks[slug]
        self._progress.update(task, description=f"{slug}: {text}")
        result = attempt.result
        if result is not None and result.target_step:
            step = max(result.step_end, attempt.start_step)
            steps = f"step {step}/{result.target_step}"
            self._progress.update(task, completed=step, total=result.target_step, steps=steps)


def display_for(slugs: tuple[str, ...]) -> Display:
    """The live one on a terminal, plain lines elsewhere."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()  # None: it was closed before we came
    return LiveDisplay(slugs) if on_terminal else Display(slugs)
