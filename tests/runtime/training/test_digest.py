"""A digest tells any two different states apart, and nothing else."""

import hashlib
import struct
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.runtime.training.digest import state_digest, tensor_bytes


def test_it_is_the_documented_one() -> None:
    state = {"w": torch.tensor([[1.0, -2.0]]), "b": torch.tensor(3, dtype=torch.int64)}
    expected = hashlib.sha256()
    expected.update(b"b torch.int64 []\n" + struct.pack("<q", 3))
    expected.update(b"w torch.float32 [1, 2]\n" + struct.pack("<2f", 1.0, -2.0))
    assert state_digest(state, "x") == expected.hexdigest()


BASE: dict[str, Any] = {"w": torch.tensor([0.0, 1.0]), "n": 1, "l": [1.5, {"k": None}], "e": [], "t": (1, "a")}


@pytest.mark.parametrize(
    "change",
    [
        {"w": torch.tensor([-0.0, 1.0])},
        {"w": torch.tensor([[0.0, 1.0]])},
        {"w": torch.tensor([0.0, 1.0]).double()},
        {"w": torch.tensor([0.0, 1.0000001])},
        {"n": 1.0},
        {"n": True},
        {"l": [1.5000000000000002, {"k": None}]},
        {"l": [1.5, {}]},
        {"e": {}},
        {"t": (1, "b")},
        {"more": 0},
    ],
)
def test_any_difference_shows(change: dict[str, Any]) -> None:
    assert state_digest({**BASE, **change}, "x") != state_digest(BASE, "x")


def test_order_and_layout_in_memory_don_t() -> None:
    wide = torch.arange(6.0).reshape(2, 3)
    turned = wide.t().contiguous().t()
    assert not turned.is_contiguous()
    assert state_digest({"a": 1, "w": wide}, "x") == state_digest(OrderedDict([("w", turned), ("a", 1)]), "x")


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(0), torch.ones(3).bfloat16(), torch.tensor([1 + 2j]).conj(), torch.ones(4)[::2], torch.tensor(True)],
)
def test_all_sorts_of_tensors(tensor: torch.Tensor) -> None:
    assert state_digest(tensor, "x") == state_digest(tensor.clone(), "x")


def test_real_states_survive_a_file(tmp_path: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer: Any = torch.optim.LBFGS(model.parameters(), history_size=2)

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3)).square().mean()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    parts: dict[str, Any] = {"model": model, "lbfgs": optimizer, "scaler": torch.amp.GradScaler("cpu")}
    parts["average"] = torch.optim.swa_utils.AveragedModel(model)
    schedulers = torch.optim.lr_scheduler
    adam = torch.optim.AdamW(model.parameters())
    parts["cosine"] = schedulers.CosineAnnealingWarmRestarts(adam, 3)
    parts["lambda"] = schedulers.LambdaLR(adam, lambda step: 1 / (step + 1))
    parts["plateau"] = schedulers.ReduceLROnPlateau(adam)
    chained = [schedulers.ConstantLR(adam), schedulers.ExponentialLR(adam, 0.9)]
    parts["chain"] = schedulers.SequentialLR(adam, chained, [2])
    for name, part in parts.items():
        torch.save(part.state_dict(), tmp_path / f"{name}.pt")
        loaded = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        assert state_digest(loaded, name) == state_digest(part.state_dict(), name), name


def test_what_torch_refuses_to_load_is_refused_here_with_its_path() -> None:
    with pytest.raises(KgoError, match=r"^ema: shadow\.1\.f is a builtins\.builtin_function"):
        state_digest({"shadow": [0, {"f": print}]}, "ema")
    with pytest.raises(KgoError, match="sparse"):
        state_digest({"s": torch.ones(2, 2).to_sparse()}, "m")


def test_tensor_bytes() -> None:
    assert tensor_bytes({"a": torch.zeros(3), "b": [torch.zeros(2).double(), {"c": 5}], "d": "text"}) == 12 + 16
