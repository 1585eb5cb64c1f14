"""What a step did, so that two trainings can be compared step by step: its samples, learning rates and numbers.

Nothing of it changes a training: no random number is drawn, and no step is traced that needn't be, since reading a
number waits for the GPU.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kaggle_orchestrator.runtime.training.digest import add_tensor
from kaggle_orchestrator.runtime.training.metrics import number

_DIGITS = 16


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One step.

    Attributes:
        step: Global step, from 1.
        samples: Digest of which samples its batches held, 16 hex digits.
        batch: Digest of what they held after augmentation, 16 hex digits.
        rates: Learning rates of all tracked optimizers' groups, as hexadecimal floats.
        numbers: What ``run.step`` was given, as hexadecimal floats: exact to the bit.
    """

    step: int
    samples: str
    batch: str
    rates: tuple[str, ...] = ()
    numbers: Mapping[str, str] = field(default_factory=dict)


class Tracer:
    """Gathers what the loaders give out until a step is done."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._samples, self._batch = hashlib.sha256(), hashlib.sha256()

    def given(self, loader: int, pass_: int, indices: object, batch: object) -> None:
        """A loader gave out a batch."""
        self._samples.update(f"{loader} {pass_} {indices!r}\n".encode())
        for leaf in _leaves(batch):
            if isinstance(leaf, torch.Tensor):
                add_tensor(self._batch, "", leaf)
            else:
                self._batch.update(f"{leaf!r}\n".encode())

    def step(self, step: int, optimizers: Iterable[Any], metrics: Mapping[str, object]) -> StepTrace:
        """The step is done: its trace; the next one begins."""
        rates = tuple(float(group["lr"]).hex() for o in optimizers for group in o.param_groups if "lr" in group)
        numbers = {name: float(number(name, value)).hex() for name, value in metrics.items()}
        trace = StepTrace(step, self._samples.hexdigest()[:_DIGITS], self._batch.hexdigest()[:_DIGITS], rates, numbers)
        self._clear()
        return trace


def _leaves(value: object) -> Iterator[object]:
    """Tensors and plain values in any nesting; of anything else its kind."""
    if isinstance(value, torch.Tensor):
        yield value.to_dense() if value.layout is not torch.strided else value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield value
    elif isinstance(data := getattr(value, "__dict__", None), dict):
        yield type(value).__qualname__
        yield from _leaves(data)
    elif callable(getattr(value, "tobytes", None)):  # a NumPy array or number
        yield from (str(getattr(value, "dtype", "")), value.tobytes())  # type: ignore[attr-defined]
    else:
        yield type(value).__qualname__
