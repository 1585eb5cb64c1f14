"""The metrics file: one JSON object a line, in the order of steps, each step of the training that counts once.

A leg that goes on from step n cuts what an earlier, lost attempt wrote after n.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.protocol.files import write_atomic

OWN_KEYS = frozenset({"step", "epoch", "time"})
"""What each line says beside the metrics."""
ALL_BELOW = 1000
"""Each step up to here is written; then each 10th up to ten times that, each 100th, and so on: 12 hours of fast steps
would make a file that no report can draw."""
MAX_GAP_S = 10.0
"""A line at least this often, whatever the step."""


class Metrics:
    """Appends lines to ``path``; each is flushed, so a kill loses none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._last = -math.inf
        self.lines = 0

    def open(self, source: Path | None, *, lines: int, step: int) -> bool:
        """Begin with the first ``lines`` lines of ``source``, up to ``step``; without a source, with none.

        Args:
            source: The metrics of the output that training goes on from (it may be this file), or None.
            lines: How many lines it had at the checkpoint.
            step: Global step of the checkpoint.

        Returns:
            Whether as many lines were there.
        """
        kept = [] if source is None else _lines(source, lines, step)
        try:
            write_atomic(self._path, "".join(kept).encode())
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise KgoError(f"{self._path}: {error.strerror or error}") from error
        self.lines = len(kept)
        return len(kept) == lines

    def wanted(self, step: int, now: float) -> bool:
        """Whether a line for this step is to be written; ``now`` is seconds of a monotonic clock."""
        stride = 1
        while step > ALL_BELOW * stride:
            stride *= 10
        return step % stride == 0 or now - self._last >= MAX_GAP_S

    def write(self, step: int, epoch: int | None, wall: float, now: float, values: Mapping[str, Any]) -> None:
        """Append a line; a number that isn't finite becomes null, since JSON has none.

        Raises:
            KgoError: The disk is full.
        """
        assert self._file is not None
        line = {"step": step, "epoch": epoch, "time": round(wall, 3), **{k: _finite(v) for k, v in values.items()}}
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            raise KgoError(f"{self._path}: {error.strerror or error}") from error
        self._last = now
        self.lines += 1

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def number(name: str, value: object) -> float | int:
    """A metric as a Python number; a tensor of one element is read, which waits for its device.

    Raises:
        KgoError: It isn't one number.
    """
    item = getattr(value, "item", None)
    try:
        found = item() if callable(item) else value
    except (RuntimeError, ValueError) as error:
        raise KgoError(f"metric {name!r} isn't one number: {error}") from error
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise KgoError(f"metric {name!r} is a {type(value).__name__}, not a number")
    return found


def _finite(value: float | int) -> float | int | None:
    return value if math.isfinite(value) else None


def _lines(path: Path, count: int, step: int) -> list[str]:
    """The first ``count`` whole lines, as far as they belong to steps up to ``step``."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[:count]
    except OSError:
        return []
    kept = []
    for line in lines:
        try:
            if not line.endswith("\n") or json.loads(line)["step"] > step:
                break
        except (ValueError, KeyError, TypeError):
            break
        kept.append(line)
    return kept
