"""``best/``: the weights with the best value of one metric so far, and a small JSON file that says which.

The folder is replaced as a whole, so the weights always belong to the value beside them.
"""

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kaggle_orchestrator.protocol import KgoError, digest_file
from kaggle_orchestrator.protocol.files import sync_file, sync_folder
from kaggle_orchestrator.runtime.training.disk import save_state

WEIGHTS = "model.pt"
RECORD = "best.json"


@dataclass(frozen=True, slots=True)
class Record:
    """The best value so far; ``mode`` is ``max`` or ``min``, ``sha256`` that of the weights' file."""

    name: str
    value: float
    mode: str
    step: int
    epoch: int | None
    sha256: str


class Best:
    """Keeps ``folder``.

    Attributes:
        record: The best so far, or None.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._old = folder.with_name(folder.name + ".old")
        self._new = folder.with_name(folder.name + ".new")
        self.record: Record | None = None

    def offer(self, name: str, value: float, mode: str) -> bool:
        """Whether ``value`` is better than the best so far.

        Raises:
            KgoError: The metric or the mode isn't the one of before.
        """
        if mode not in ("max", "min"):
            raise KgoError(f"run.best(…, mode={mode!r}): mode is 'max' or 'min'")
        if self.record is None:
            return not math.isnan(value)
        if (name, mode) != (self.record.name, self.record.mode):
            raise KgoError(
                f"run.best({name}=…, mode={mode!r}): the best is kept for {self.record.name}, {self.record.mode}",
                hint="There is one best per training; keep further ones yourself.",
            )
        return value > self.record.value if mode == "max" else value < self.record.value

    def write(self, name: str, value: float, mode: str, step: int, epoch: int | None, weights: Any) -> None:
        """Make ``weights`` the best.

        Raises:
            OSError, RuntimeError: It can't be written; the best of before is still there.
        """
        shutil.rmtree(self._new, ignore_errors=True)
        self._new.mkdir(parents=True)
        try:
            save_state(weights, self._new / WEIGHTS)
            record = Record(name, value, mode, step, epoch, digest_file(self._new / WEIGHTS).sha256)
            (self._new / RECORD).write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
            sync_file(self._new / RECORD)
        except BaseException:
            shutil.rmtree(self._new, ignore_errors=True)
            raise
        self._swap()
        self.record = record

    def resume(self, output: Path, stored: Record | None) -> bool:
        """Go on from the best in another leg's ``output`` folder (or in this one's), and from the stored record.

        A newer best there belongs to steps that were lost; they are trained again and find it again.

        Returns:
            False if the checkpoint knows of a best whose weights are gone; then the next value counts as the best.
        """
        shutil.rmtree(self._new, ignore_errors=True)
        source = output / self._folder.name
        if not source.is_dir():  # killed between the two renames of a swap
            source = source.with_name(source.name + ".old")
        there = _whole(source)
        good = there is not None and (stored is None or there.step >= stored.step)
        if good and source != self._folder:
            self._new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, self._new)
            self._swap()
        self.record = stored if good else None
        return good or stored is None

    def _swap(self) -> None:
        shutil.rmtree(self._old, ignore_errors=True)
        if self._folder.exists():
            self._folder.rename(self._old)
        self._new.rename(self._folder)
        sync_folder(self._folder.parent)
        shutil.rmtree(self._old, ignore_errors=True)


def _whole(folder: Path) -> Record | None:
    """The record in ``folder``, if the weights beside it are the ones it names."""
    try:
        record = Record(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
        return record if digest_file(folder / WEIGHTS).sha256 == record.sha256 else None
    except (OSError, ValueError, TypeError):
        return None
