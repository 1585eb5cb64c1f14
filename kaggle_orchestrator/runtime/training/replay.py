"""The proof that a leg goes on exactly: the leg before trained some steps more than it saved, and wrote down how.

Those steps count for nothing. The next leg trains them again, from the checkpoint, and compares; what would have
been lost or changed on the way shows at the first step, not in the final accuracy.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kaggle_orchestrator.protocol import ResumeCheck
from kaggle_orchestrator.protocol.files import write_atomic
from kaggle_orchestrator.protocol.jsonable import Malformed, from_jsonable, to_jsonable
from kaggle_orchestrator.runtime.training.environment import differences
from kaggle_orchestrator.runtime.training.trace import StepTrace

REPLAY = "kgo/replay.json"
"""Path of the record below the working folder."""
STEPS = 10
TOLERANCE = 0.01
"""Relative difference of numbers that a GPU in its fast mode may show."""


@dataclass(frozen=True, slots=True)
class Record:
    """The replayed steps behind a checkpoint.

    Attributes:
        checkpoint: sha256 of its manifest.
        steps: In order.
        at: Number of the loader at which the leg left behind the last step; None between epochs or steps.
        digests: Of each tracked object, the random numbers, loaders and the best value there; empty if the leg was
            ended first.
        environment: What exactness depends on.
    """

    checkpoint: str
    steps: tuple[StepTrace, ...] = ()
    at: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str | int] = field(default_factory=dict)

    def write(self, output: Path) -> None:
        """Replace the record in an output; a full disk costs the proof, nothing else."""
        with suppress(OSError):
            write_atomic(output / REPLAY, json.dumps(to_jsonable(self), indent=1).encode())

    @classmethod
    def read(cls, output: Path, checkpoint: str) -> "Record | None":
        """The record of that checkpoint, if the output holds one."""
        try:
            record = from_jsonable(cls, json.loads((output / REPLAY).read_bytes()))
        except (OSError, ValueError, RecursionError, Malformed):
            return None
        return record if record.checkpoint == checkpoint else None


class Replay:
    """Records steps behind the last save, until there are enough or the time is up."""

    def __init__(self, output: Path, record: Record, until: float) -> None:
        self._output = output
        self._record = record
        self._until = until

    def step(self, trace: StepTrace) -> None:
        """A step was trained; a kill from here on doesn't cost it."""
        self._write(replace(self._record, steps=(*self._record.steps, trace)))

    def over(self, now: float) -> bool:
        """Whether to leave now; ``now`` is seconds of the clock that ``until`` is of."""
        return len(self._record.steps) >= STEPS or now >= self._until

    def finish(self, at: int | None, digests: Mapping[str, str]) -> int:
        """Write the state's digests behind the last step; returns how many steps there are."""
        self._write(replace(self._record, at=at, digests=digests))
        return len(self._record.steps)

    def _write(self, record: Record) -> None:
        self._record = record
        record.write(self._output)


class Proof:
    """Compares a leg's first steps with the record of the leg before."""

    def __init__(
        self, record: Record, environment: Mapping[str, str | int], *, bitwise: bool, changed: Sequence[str]
    ) -> None:
        """Begin.

        Args:
            record: Of the checkpoint that was restored.
            environment: This process's.
            bitwise: Whether the device computes the same bits each time.
            changed: Objects whose state after loading wasn't the saved one.
        """
        self._steps = {trace.step: trace for trace in record.steps}
        self._at, self._digests = record.at, record.digests
        self._bitwise = bitwise
        self._changed = changed
        self._causes = differences(record.environment, environment)
        self._agreed = 0
        self._mismatch = ""
        self._over = not self._steps
        self._last = max(self._steps, default=0)
        if changed:
            self._differ(f"the loaded state of {', '.join(changed)} isn't the saved one")

    @property
    def over(self) -> bool:
        """Whether nothing is left to compare."""
        return self._over

    @property
    def result(self) -> ResumeCheck:
        """What is known so far."""
        complete = self._over and not self._mismatch
        return ResumeCheck(self._agreed, len(self._steps), self._bitwise, complete, self._mismatch)

    def step(self, trace: StepTrace) -> None:
        """Compare a step."""
        if self._over or (before := self._steps.get(trace.step)) is None:
            return
        at = f"at step {trace.step}"
        if trace.samples != before.samples:
            self._differ(f"{at} the batches are of other samples")
        elif trace.batch != before.batch:
            self._differ(f"{at} the batches hold other values of the same samples", _OUTSIDE)
        elif trace.rates != before.rates:
            here, there = _shown(trace.rates), _shown(before.rates)
            self._differ(f"{at} the learning rates are {here}, before {there}", _LOST)
        elif name := self._different(trace.numbers, before.numbers):
            here, there = (_shown([n[name]]) if name in n else "missing" for n in (trace.numbers, before.numbers))
            self._differ(f"{at} {name} is {here}, before {there}, from the same batches", _LOST)
        else:
            self._agreed += 1

    def due(self, step: int, at: int | None) -> bool:
        """Whether this is the moment to compare the state."""
        return not self._over and step >= self._last and (at == self._at or step > self._last)

    def state(self, digests: Mapping[str, str]) -> None:
        """Compare the state behind the last step."""
        self._over = True
        if not self._bitwise:  # its bits may differ, and no tolerance fits every object
            return
        other = [name for name, digest in self._digests.items() if digests.get(name) != digest]
        if other:
            self._differ(f"behind step {self._last} the state of {', '.join(other)} differs", _LOST)

    def _different(self, here: Mapping[str, str], there: Mapping[str, str]) -> str | None:
        for name in sorted({*here, *there}):
            a, b = here.get(name), there.get(name)
            if a == b:
                continue
            if a is None or b is None or self._bitwise:
                return name
            if not math.isclose(float.fromhex(a), float.fromhex(b), rel_tol=TOLERANCE):
                return name
        return None

    def _differ(self, what: str, otherwise: str = "") -> None:
        self._over = True
        cause = f"{'; '.join(self._causes)}" if self._causes else otherwise
        self._mismatch = f"{what}. Likely cause: {cause}." if cause else f"{what}."


_OUTSIDE = "random numbers drawn outside Python's, NumPy's and torch's generators, or data that changed"
_LOST = "something that training changes isn't tracked (run.track), or an operation that isn't deterministic"


def _shown(values: Sequence[str]) -> str:
    return ", ".join(f"{float.fromhex(value):.9g}" for value in values) or "none"
