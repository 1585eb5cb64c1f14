"""Finds what training changes and no checkpoint holds: optimizers, schedulers, scalers and modules not tracked.

Looked for once, at the first save, among all objects of the process. What doesn't change needs no tracking: a frozen
teacher, a loss function, a model of an evaluation.
"""

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_DEPTH = 6
_SAMPLE = 1024
"""Elements of each tensor that are looked at."""


class Untracked:
    """Looks at the loop's beginning and again at the first save."""

    def __init__(self, tracked: Iterable[object]) -> None:
        self._tracked = list(tracked)
        self._before = [(weakref.ref(m), _prints(m)) for m in self._roots(_found())]

    def names(self) -> tuple[str, ...]:
        """What has changed since the beginning and isn't tracked: its kind, and what tells which one it is."""
        found, known = _found(), _reachable(self._tracked)
        before = {id(m): prints for ref, prints in self._before if (m := ref()) is not None}
        changed = [m for m in self._roots(found) if id(m) in before and before[id(m)] != _prints(m)]
        others = [v for v in found if not isinstance(v, nn.Module) and id(v) not in known and _is_used(v)]
        named = {f"{type(m).__name__} of {sum(p.numel() for p in m.parameters())} parameters" for m in changed}
        return tuple(sorted(named | {type(value).__name__ for value in others}))

    def _roots(self, found: list[Any]) -> list[nn.Module]:
        """Untracked modules that have a state, and are no part of another module."""
        known = _reachable(self._tracked)
        modules = [m for m in found if isinstance(m, nn.Module)]
        parts = {id(child) for m in modules for child in m.modules() if child is not m}
        roots = [m for m in modules if id(m) not in parts and not any(id(child) in known for child in m.modules())]
        return [m for m in roots if next(_tensors(m), None) is not None]


def _is_used(value: Any) -> bool:
    """Whether an optimizer, scheduler or scaler has anything to lose."""
    match value:
        case Optimizer():
            return bool(value.state)
        case torch.amp.GradScaler():
            return bool(value.is_enabled())
        case _:
            return True


def _found() -> list[Any]:
    kinds = (nn.Module, Optimizer, LRScheduler, torch.amp.GradScaler)
    return [value for value in gc.get_objects() if issubclass(type(value), kinds)]


def _reachable(tracked: Iterable[object]) -> set[int]:
    """Identities of the tracked objects and of what they hold: a user's own average holds its model, say."""
    seen: set[int] = set()
    layer: list[object] = list(tracked)
    for _ in range(_DEPTH):
        below: list[object] = []
        for value in layer:
            if id(value) in seen or isinstance(value, (torch.Tensor, str, bytes, int, float, type)):
                continue
            seen.add(id(value))
            if isinstance(value, nn.Module):
                seen.update(id(child) for child in value.modules())
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, (list, tuple, set)):
                below += value
            else:
                below += getattr(value, "__dict__", {}).values()
        layer = below
    return seen


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _prints(module: nn.Module) -> tuple[float, ...]:
    """A number for each tensor that changes when it does, as a rule."""
    with torch.no_grad():
        return tuple(
            float(t.detach().flatten()[:_SAMPLE].double().sum()) for t in _tensors(module) if not t.is_complex()
        )
