"""Who asks a training to leave: the supervisor by a file, a person or the system by a signal.

A request is only noted; the training saves and leaves at its next safe point. Saving inside a signal handler would
find the state half updated.
"""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from kaggle_orchestrator.protocol.progress import STOP

_MESSAGE = b"kgo: saving and leaving after this step; a second Ctrl-C interrupts at once\n"


class StopRequests:
    """Watches for requests between ``install`` and ``remove``."""

    def __init__(self, control: Path | None) -> None:
        self._file = None if control is None else control / STOP
        self._signal: int | None = None
        self._owner = os.getpid()
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take over SIGINT and SIGTERM, where Python allows it: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)

    def remove(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    def asked(self) -> str | None:
        """Who asked, in words, or None."""
        if self._signal is not None:
            return signal.Signals(self._signal).name
        if self._file is not None and self._file.exists():
            return "asked to"
        return None

    @property
    def exit_code(self) -> int:
        """0 for a request by the file or the deadline, as a shell counts it for a signal."""
        return 0 if self._signal is None else 128 + self._signal

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            return  # a forked loader worker: the terminal's Ctrl-C reaches it too, and the training still needs it
        if self._signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        self._signal = number
        with suppress(OSError):
            os.write(1, _MESSAGE)  # print isn't safe in a handler: it may have interrupted another print
