"""What is refused before it costs hours: GPUs that aren't there or aren't the right ones, sources, disk."""

import io
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.protocol import Header, Outcome, Plan
from kaggle_orchestrator.runtime.supervisor.log import Log
from kaggle_orchestrator.runtime.supervisor.preflight import check_accelerator, check_disk, check_sources, judge_gpus
from kaggle_orchestrator.runtime.supervisor.verdict import Unfit

PLAN = Plan(Header("c", 1, 1, "t", None, "", "", ""), "train.py", (), "python", 60, 50, 2, None, "NvidiaTeslaT4", 2)
T4: Mapping[str, Any] = {"name": "Tesla T4", "capability": [7, 5], "memory": 15_000_000_000}
P100: Mapping[str, Any] = {"name": "Tesla P100-PCIE-16GB", "capability": [6, 0]}

FAKE_TORCH = """
__version__ = "2.99"
class version: cuda = "12.9"
class _X:
    def __init__(self, device): self.device = device
    def __matmul__(self, other):
        if self.device == "cuda:{broken}": raise RuntimeError("no kernel image is available\\nmore")
        return self
    def sum(self): return 256.0**3
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_device_name = staticmethod(lambda i: "Tesla T4")
    get_device_capability = staticmethod(lambda i: (7, 5))
    synchronize = staticmethod(lambda i: None)
    class get_device_properties:
        def __init__(self, i): self.total_memory = 15
def ones(*shape, device): return _X(device)
"""


def log() -> tuple[Log, io.BytesIO]:
    out = io.BytesIO()
    return Log(out, out), out


@pytest.mark.parametrize(
    ("gpus", "outcome", "words"),
    [
        ([T4], Outcome.WRONG_GPU, "Asked for 2 GPUs, got 1"),
        ([P100, P100], Outcome.WRONG_GPU, "got Tesla P100"),
        ([T4, P100], Outcome.WRONG_GPU, "Asked for NvidiaTeslaT4 (T4)"),
        ([T4, {**T4, "error": "RuntimeError: no kernel image"}], Outcome.NO_GPU, "GPU 1 (Tesla T4) fails"),
    ],
)
def test_gpus_that_are_not_what_was_asked_for(gpus: list[Mapping[str, Any]], outcome: Outcome, words: str) -> None:
    with pytest.raises(Unfit) as refused:
        judge_gpus(gpus, PLAN)
    assert refused.value.outcome is outcome
    assert words in refused.value.message


def test_gpus_that_are() -> None:
    judge_gpus([T4, T4], PLAN)
    judge_gpus([T4, T4, T4, T4], PLAN)
    judge_gpus([{"name": "NVIDIA Z1", "capability": [99, 0]}], replace(PLAN, accelerator="NvidiaZ1", gpu_count=1))


@pytest.mark.parametrize("broken", ["none", "1"])
def test_each_gpu_runs_an_operation_in_a_process_of_its_own(tmp_path: Path, broken: str) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH.replace("{broken}", broken))
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    talk, out = log()
    if broken == "none":
        facts = check_accelerator(PLAN, environ, talk)
        assert [g["name"] for g in facts["gpus"]] == ["Tesla T4", "Tesla T4"]
        assert (
            out.getvalue() == b"kgo: accelerator NvidiaTeslaT4: Tesla T4 (capability 7.5), Tesla T4 (capability 7.5)\n"
        )
    else:
        with pytest.raises(Unfit, match=r"GPU 1 .* no kernel image is available") as refused:
            check_accelerator(PLAN, environ, talk)
        assert refused.value.outcome is Outcome.NO_GPU
    assert "torch" not in sys.modules or getattr(sys.modules["torch"], "__version__", "") != "2.99"


def test_without_a_gpu_it_says_so() -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    environ.pop("KGO_SIMULATED_ACCELERATOR", None)
    with pytest.raises(Unfit, match=r"torch sees no CUDA device|nvidia-smi") as refused:
        check_accelerator(PLAN, environ, log()[0])
    assert refused.value.outcome is Outcome.NO_GPU


def test_a_simulated_accelerator_must_be_the_one_asked_for() -> None:
    talk, out = log()
    assert check_accelerator(PLAN, {"KGO_SIMULATED_ACCELERATOR": "NvidiaTeslaT4"}, talk)["simulated"] is True
    assert b"is simulated" in out.getvalue()
    with pytest.raises(Unfit) as refused:
        check_accelerator(PLAN, {"KGO_SIMULATED_ACCELERATOR": "NvidiaL4"}, talk)
    assert refused.value.outcome is Outcome.WRONG_GPU


@pytest.mark.parametrize(
    "place",
    ["digits", "datasets/me/digits", "competitions/digits", "models/me/digits/pytorch/small/1"],
)
def test_a_source_is_found_in_any_layout(tmp_path: Path, place: str) -> None:
    (tmp_path / place / "deep").mkdir(parents=True)
    (tmp_path / place / "deep" / "x").write_text("1")
    check_sources(["digits"], tmp_path)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ("other/x", "not mounted: digits. Below .* mounted are other"),
        ("digits/", "mounted but empty: digits"),
        ("datasets/me/digits/sub/", "mounted but empty: digits"),
        ("datasets/me/digits2/x", "not mounted: digits. Below .* mounted are datasets/me/digits2"),
    ],
)
def test_a_source_that_is_missing_or_empty(tmp_path: Path, there: str, words: str) -> None:
    place = tmp_path / there
    if there.endswith("/"):
        place.mkdir(parents=True)
    else:
        place.parent.mkdir(parents=True)
        place.write_text("1")
    with pytest.raises(Unfit, match=words) as refused:
        check_sources(["digits"], tmp_path)
    assert refused.value.outcome is Outcome.MOUNT_MISSING


def test_of_two_layouts_the_one_that_holds_something_counts(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    (tmp_path / "datasets" / "me" / "digits").mkdir(parents=True)
    (tmp_path / "datasets" / "me" / "digits" / "x").write_text("1")
    check_sources(["digits"], tmp_path)


def test_no_room_for_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match=r"a checkpoint takes 1000\.0 TB") as refused:
        check_disk(tmp_path, 10**15, log()[0])
    assert refused.value.outcome is Outcome.DISK_FULL
    check_disk(tmp_path, 0, log()[0])
