"""Signals to the session itself, noted and nothing more: whatever it is doing is finished in order."""

import signal
import threading
from types import FrameType
from typing import Any


class Signals:
    """Notes SIGTERM, SIGINT and SIGHUP inside its ``with`` block; where Python allows no handlers, nothing."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)

    @property
    def name(self) -> str | None:
        """The first one's name."""
        return signal.Signals(self.received[0]).name if self.received else None
