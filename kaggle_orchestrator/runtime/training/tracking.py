"""The objects whose state is the training: collected by name, and restored so that nothing is forgotten silently."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import nn
from torch.optim import Optimizer

from kaggle_orchestrator.protocol import KgoError


@runtime_checkable
class Stateful(Protocol):
    """What can be tracked: modules, optimizers, schedulers, scalers, averages, and the user's own."""

    def state_dict(self) -> Any:
        """Its whole state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Become that state."""


RESERVED = ("rng", "loader", "best")
"""Names under which the library keeps states of its own."""


class Tracked:
    """The tracked objects, in the order in which they were given."""

    def __init__(self) -> None:
        self._objects: dict[str, Stateful] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._objects

    def add(self, objects: Mapping[str, object]) -> None:
        """Track each object under its name.

        Raises:
            KgoError: An object has no state, or a name or an object comes twice.
        """
        for name, value in objects.items():
            if not name.isidentifier():
                raise KgoError(f"run.track(): {name!r} isn't a name; it becomes a file's")
            if name in RESERVED:
                raise KgoError(f"run.track({name}=…): the name {name!r} is kgo's own; take another")
            if name in self._objects:
                raise KgoError(f"run.track({name}=…): {name!r} is tracked already")
            if isinstance(value, type) or not isinstance(value, Stateful):
                kind = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
                raise KgoError(
                    f"run.track({name}=…): {kind} has no state to keep",
                    hint="A tracked object needs the methods state_dict() and load_state_dict(state).",
                )
            inner = _unwrapped(value)
            for other, known in self._objects.items():
                if known is inner:
                    raise KgoError(f"run.track({name}=…): that object is tracked already, as {other!r}")
            self._objects[name] = inner

    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._objects)

    def objects(self) -> tuple[Stateful, ...]:
        """The objects, in order."""
        return tuple(self._objects.values())

    def optimizers(self) -> tuple[Optimizer, ...]:
        """Those that are optimizers."""
        return tuple(o for o in self._objects.values() if isinstance(o, Optimizer))

    def state(self, name: str) -> Any:
        """The state of one object; its tensors are the object's own."""
        return self._objects[name].state_dict()

    def check_names(self, stored: tuple[str, ...]) -> None:
        """Compare with the names in a checkpoint.

        Raises:
            KgoError: One side has a name that the other lacks.
        """
        forgotten = [n for n in stored if n not in self._objects]
        unknown = [n for n in self._objects if n not in stored]
        if forgotten or unknown:
            parts = [f"{n!r} is in the checkpoint but isn't tracked" for n in forgotten]
            parts += [f"{n!r} is tracked but isn't in the checkpoint" for n in unknown]
            raise KgoError(
                "; ".join(parts),
                hint="Track the same objects under the same names in each leg, before run.epochs() or run.steps().",
            )

    def load(self, name: str, state: Any) -> None:
        """Restore one object.

        Raises:
            KgoError: The state doesn't fit it.
        """
        _call(name, self._objects[name].load_state_dict, state)


def _call(name: str, load: Callable[[Any], Any], state: Any) -> None:
    try:
        load(state)
    except Exception as error:  # whatever a user's object raises, it is the name that helps
        raise KgoError(
            f"{name}: the checkpoint's state doesn't fit the object tracked here: {error}",
            hint="Was it built otherwise (other sizes, other parameters) than in the leg before?",
        ) from error


def _unwrapped(value: Stateful) -> Stateful:
    """The module inside wrappers that put a prefix before its names, so that a state fits with and without them."""
    while True:
        if isinstance(value, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            value = value.module
        elif isinstance(value, nn.Module) and isinstance(inner := getattr(value, "_orig_mod", None), nn.Module):
            value = inner  # torch.compile
        else:
            return value
