"""The digest of a state: one sha256 over its values, whatever file they are stored in.

``torch.save`` writes other bytes for the same state under another file name, so files can't be compared. Two states
have one digest exactly if they hold the same names, types, shapes and bits.
"""

import ctypes
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kaggle_orchestrator.protocol import KgoError


def state_digest(state: object, name: str) -> str:
    """sha256 (hex) over the leaves of a nested state, sorted by path.

    A tensor counts as ``"{path} {dtype} {shape}\\n"`` and its bytes, C-contiguous; anything else as
    ``"{path} {type} {repr}\\n"``. The path joins keys and positions with dots.

    Args:
        state: Tensors, numbers, strings, None, and dicts, lists, tuples and sets of them.
        name: What it is, for the error.

    Raises:
        KgoError: It holds something else, which a later leg couldn't load again.
    """
    digest = hashlib.sha256()
    for path, leaf in sorted(_leaves(state, "", name), key=lambda pair: pair[0]):
        if isinstance(leaf, torch.Tensor):
            add_tensor(digest, path, leaf)
        else:
            digest.update(f"{path} {type(leaf).__name__} {leaf!r}\n".encode())
    return digest.hexdigest()


def tensor_bytes(state: object) -> int:
    """Bytes of all tensors in a nested state."""
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(tensor_bytes(v) for v in state.values())
    if isinstance(state, (list, tuple, set)):
        return sum(tensor_bytes(v) for v in state)
    return 0


def _leaves(value: object, path: str, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise KgoError(f"{name}: {path or 'it'} is a sparse tensor, which kgo can't checkpoint")
        yield path, value
    elif isinstance(value, (Mapping, list, tuple)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        if not value:  # an empty container counts too: there is no leaf below it that would
            yield path, {} if isinstance(value, Mapping) else []
        for key, item in items:
            yield from _leaves(item, f"{path}.{key}" if path else str(key), name)
    elif isinstance(value, (set, frozenset)):
        yield path, sorted(map(repr, value))
    elif value is None or type(value) in (bool, int, float, complex, str, bytes, torch.dtype, torch.device):
        yield path, value
    else:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise KgoError(
            f"{name}: {path or 'its state'} is a {kind}, which torch won't load again in the next leg",
            hint="A tracked object's state_dict() may hold tensors, numbers, strings, and dicts and lists of them.",
        )


def add_tensor(digest: Any, path: str, tensor: torch.Tensor) -> None:
    """Feed a tensor's path, type, shape and bits to a hash."""
    digest.update(f"{path} {tensor.dtype} {list(tensor.shape)}\n".encode())
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    size = flat.numel() * flat.element_size()
    if size:  # straight from memory: without NumPy torch offers no buffer, and a list of bytes would take minutes
        digest.update((ctypes.c_char * size).from_address(flat.data_ptr()))
