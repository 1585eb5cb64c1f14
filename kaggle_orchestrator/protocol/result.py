"""The result of an attempt: ``kgo/leg.json`` in its output, and the last line of its log.

Only a result whose ``state`` is ``final`` and whose token is the expected one counts.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kaggle_orchestrator.protocol.files import FileDigest
from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable, to_jsonable
from kaggle_orchestrator.protocol.outcome import Outcome
from kaggle_orchestrator.protocol.progress import ResumeCheck

LEG_RESULT = "kgo/leg.json"
"""Path of the result below the working folder."""
METRICS = "kgo/metrics.jsonl"
"""Path of the metrics: one JSON object a line, ``{"step", "epoch", "time", …numbers}``."""
RESULT_PREFIX = "KGO_RESULT "
SCHEMA = 1


class ResultState(StrEnum):
    """A ``running`` file is a trace of a session that has not said how it ended."""

    RUNNING = "running"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A checkpoint, as results name it.

    Attributes:
        path: Below the output, e.g. ``checkpoints/step-00001234``.
        step: Global step.
        sha256: sha256 of its ``manifest.json``.
        token: Token of the attempt that wrote it.
    """

    path: str
    step: int
    sha256: str
    token: str


@dataclass(frozen=True, slots=True)
class LegRecord:
    """One earlier leg in the lineage: which attempt won it, and what it gained."""

    leg: int
    attempt: int
    token: str
    outcome: Outcome
    step_start: int
    step_end: int
    started_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class LegResult:
    """What an attempt says of itself.

    Attributes:
        outcome: None while running.
        reason: A short word behind the outcome (``deadline``, ``exit 1``, …).
        message: For a person: what happened and what to change.
        step_start, step_end: Global steps at the start and at the newest verified checkpoint.
        target_step: The step at which training is done, if it is known.
        epoch: Epoch of ``step_end``, from 0, if there are epochs.
        checkpoint: The newest verified checkpoint in this output, or None.
        resumed_from: The checkpoint restored at the start, or None.
        outputs: Digest of every output but this file, by path.
        environment: Versions, CPU, threads, GPUs.
        buckets: Seconds by kind: ``start, restore, data, train, save, replay, verify, tail``.
        resume: How its first steps compare with the ones that the leg before replayed, or None.
        untracked: Objects that training changes and no checkpoint holds.
        started_at, ended_at: Seconds since the epoch.
    """

    chain: str
    leg: int
    attempt: int
    token: str
    state: ResultState
    step_start: int
    step_end: int
    started_at: float
    outcome: Outcome | None = None
    reason: str = ""
    message: str = ""
    target_step: int | None = None
    epoch: int | None = None
    checkpoint: CheckpointRef | None = None
    resumed_from: CheckpointRef | None = None
    outputs: Mapping[str, FileDigest] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    buckets: Mapping[str, float] = field(default_factory=dict)
    resume: ResumeCheck | None = None
    untracked: tuple[str, ...] = ()
    lineage: tuple[LegRecord, ...] = ()
    ended_at: float | None = None
    schema: int = SCHEMA

    def dumps(self) -> str:
        """As JSON text, for ``kgo/leg.json``."""
        return json.dumps(to_jsonable(self), sort_keys=True, indent=1) + "\n"

    def log_line(self) -> str:
        """The last log line; without the outputs and lineage, so that it stays short."""
        short = replace(self, outputs={}, lineage=(), environment={})
        return RESULT_PREFIX + json.dumps(to_jsonable(short), sort_keys=True, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str | bytes) -> "LegResult":
        """Read ``kgo/leg.json``.

        Raises:
            Malformed: It isn't one.
        """
        try:
            return from_jsonable(cls, json.loads(text))
        except Malformed:
            raise
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{LEG_RESULT}: not JSON: {error}") from error


def result_from_log(lines: Iterable[str], token: str) -> LegResult | None:
    """The last final result with ``token`` among log lines, or None."""
    found = None
    for line in lines:
        _, mark, text = line.partition(RESULT_PREFIX)
        if not mark:
            continue
        try:
            result = LegResult.loads(text)
        except Malformed:
            continue
        if result.token == token and result.state is ResultState.FINAL:
            found = result
    return found
