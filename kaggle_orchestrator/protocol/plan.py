"""The plan of an attempt: all that the supervisor needs to know, as ``plan.json`` in the bundle."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaggle_orchestrator.protocol.header import Header
from kaggle_orchestrator.protocol.jsonable import from_jsonable, to_jsonable
from kaggle_orchestrator.protocol.result import LegRecord


@dataclass(frozen=True, slots=True)
class Plan:
    """What one session has to do.

    Attributes:
        header: The attempt's header.
        entry: The user's script, a POSIX path below the bundle's ``src/``.
        args: Its arguments; ``{resume}`` is still in them, ``{params.x}`` is not.
        params: ``train.params``, handed to training code as ``run.params``.
        launch: ``python`` (later also ``torchrun``).
        session_limit_s: Seconds after the session's start at which Kaggle kills it.
        leave_after_s: Seconds after the session's start at which training should have left: the kill less
            ``stop_before``; half of that after a ``killed``. The supervisor takes the output's and the
            last save's time off it. None for a one-off: it runs until it's done or killed.
        keep: Number of checkpoints kept.
        save_every_s: Seconds between saves, or None for automatic.
        paths: Globs of checkpoints of scripts that know nothing of kgo.
        done: The file whose existence means done, for such scripts.
        accelerator: ``machine_shape`` asked for, or None for CPU.
        gpu_count: GPUs that go with it, 0 for CPU.
        sources: Slugs (last path part) of all sources that must be mounted.
        lineage: One record for each leg before this one, oldest first.
        deterministic: ``checkpoint.deterministic``.
        stop_on_mismatch: Whether ``checkpoint.on_mismatch`` is ``stop``.
        hung_s: Seconds without a heartbeat after which training is given up; None: never.
    """

    header: Header
    entry: str
    args: tuple[str, ...]
    launch: str
    session_limit_s: float
    leave_after_s: float | None
    keep: int
    save_every_s: float | None
    accelerator: str | None
    gpu_count: int
    sources: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    done: str | None = None
    lineage: tuple[LegRecord, ...] = ()
    deterministic: bool = False
    stop_on_mismatch: bool = False
    hung_s: float | None = None

    def dumps(self) -> str:
        """As deterministic JSON text."""
        return json.dumps(to_jsonable(self), sort_keys=True, indent=1) + "\n"

    @classmethod
    def load(cls, path: Path) -> "Plan":
        """Read ``plan.json``.

        Raises:
            OSError, Malformed, json.JSONDecodeError: It isn't readable as one.
        """
        return from_jsonable(cls, json.loads(path.read_text(encoding="utf-8")))
