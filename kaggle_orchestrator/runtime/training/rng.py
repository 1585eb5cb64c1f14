"""Random numbers: seeds derived from where a draw happens, and the state of every generator, saved and put back.

Nothing here draws from a generator that training code uses, so the library never shifts its random numbers.
``docs/exactness.md`` describes the scheme; a plain loop can follow it without kgo.
"""

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def derive(kind: str, *numbers: int) -> int:
    """A seed below 2**64 for one use of random numbers, e.g. ``derive("batch", seed, loader, pass_, batch, rank)``."""
    text = " ".join(["kgo", kind, *map(str, numbers)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def seed_all(seed: int) -> None:
    """Seed Python, NumPy if it is loaded, and torch (with CUDA)."""
    random.seed(seed)
    seed_numpy(seed)
    torch.manual_seed(seed)


def seed_numpy(seed: int) -> bool:
    """Seed NumPy's global generator, which takes 32 bits; False if NumPy isn't loaded."""
    numpy = _numpy()
    if numpy is None:
        return False
    numpy.random.seed(seed % 2**32)
    return True


def numpy_loaded() -> bool:
    """Whether this process has loaded NumPy."""
    return _numpy() is not None


def capture() -> dict[str, Any]:
    """The state of every generator, in types that ``torch.load(weights_only=True)`` takes."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = _numpy()
    if numpy is not None:
        # The legacy state holds an array, which weights_only refuses.
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        keys = torch.tensor(keys.tolist(), dtype=torch.int64)
        state["numpy"] = (str(name), keys, int(position), int(has_gauss), float(cached))
    started: bool = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if started:
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore(state: dict[str, Any]) -> None:
    """Put back what ``capture`` returned. Generators that it doesn't name keep their state."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    numpy = _numpy()
    if "numpy" in state and numpy is not None:
        name, keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state((name, numpy.array(keys.tolist(), dtype="uint32"), position, has_gauss, cached))
    if "cuda" in state and torch.cuda.is_available():
        for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(cuda, device)


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Run a block with Python, NumPy (if loaded) and torch's CPU generator seeded, then put their states back.

    CUDA's generators are left alone: in a loader's worker they can't be used, and in the main process they belong
    to the training step.
    """
    numpy = _numpy()
    saved = random.getstate(), torch.get_rng_state(), None if numpy is None else numpy.random.get_state()
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(saved[0])
        torch.set_rng_state(saved[1])
        if numpy is not None and saved[2] is not None:
            numpy.random.set_state(saved[2])


def _numpy() -> Any:
    module = sys.modules.get("numpy")
    return module if hasattr(module, "random") else None
