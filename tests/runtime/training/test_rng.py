"""Random numbers: derived as documented, saved and put back whole, and isolated in both directions."""

import hashlib
import importlib
import random
import sys
import types
from typing import Any

import pytest
import torch

from kaggle_orchestrator.runtime.training import rng


def draws() -> tuple[float, float, float]:
    return random.random(), random.gauss(0, 1), torch.rand(1).item()


def test_seeds_are_derived_as_documented() -> None:
    expected = hashlib.sha256(b"kgo batch 3 0 2 17 0").digest()[:8]
    assert rng.derive("batch", 3, 0, 2, 17, 0) == int.from_bytes(expected, "big")
    torch.Generator().manual_seed(2**64 - 1)  # any such number is a seed for torch


def test_a_block_has_its_own_numbers_and_disturbs_none() -> None:
    rng.seed_all(1)
    expected = draws(), draws()
    rng.seed_all(1)
    first = draws()
    with rng.isolated(5):
        inside = draws()
    with rng.isolated(5):
        assert draws() == inside
    assert (first, draws()) == expected
    assert inside not in expected


def test_the_states_are_put_back_after_an_error() -> None:
    rng.seed_all(1)
    expected = draws()
    rng.seed_all(1)
    with pytest.raises(ZeroDivisionError), rng.isolated(5):
        raise ZeroDivisionError
    assert draws() == expected


def test_a_captured_state_survives_a_file(tmp_path: Any) -> None:
    rng.seed_all(9)
    random.gauss(0, 1)  # leaves half a pair behind, which is part of the state
    torch.save(rng.capture(), tmp_path / "rng.pt")
    expected = draws()
    rng.seed_all(0)
    rng.restore(torch.load(tmp_path / "rng.pt", weights_only=True))
    assert draws() == expected


class Keys(list[int]):
    """An array, as far as it is needed here."""

    def tolist(self) -> list[int]:
        return list(self)


def numpy_stand_in() -> types.ModuleType:
    """What of NumPy is used, over a Python generator, for where NumPy isn't installed."""
    generator = random.Random()

    def get_state() -> tuple[str, Keys, int, int, float]:
        keys = generator.getstate()[1]
        return "MT19937", Keys(keys[:-1]), keys[-1], 0, 0.0

    def set_state(state: tuple[str, Keys, int, int, float]) -> None:
        generator.setstate((3, (*state[1], state[2]), None))

    module = types.ModuleType("numpy")
    legacy = types.SimpleNamespace(seed=generator.seed, get_state=get_state, set_state=set_state, rand=generator.random)
    module.random = legacy  # type: ignore[attr-defined]
    module.array = lambda values, dtype: Keys(values)  # type: ignore[attr-defined]
    return module


def test_numpy_is_part_of_it_once_it_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        numpy = numpy_stand_in()
        monkeypatch.setitem(sys.modules, "numpy", numpy)
    rng.seed_all(4)
    torch.save(rng.capture(), tmp_path / "rng.pt")
    first = numpy.random.rand()
    with rng.isolated(2**40 + 1):  # NumPy takes 32 bits
        numpy.random.rand()
    second = numpy.random.rand()
    rng.restore(torch.load(tmp_path / "rng.pt", weights_only=True))
    assert (numpy.random.rand(), numpy.random.rand()) == (first, second)


def test_without_numpy_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    assert "numpy" not in rng.capture()
    assert not rng.seed_numpy(1)
