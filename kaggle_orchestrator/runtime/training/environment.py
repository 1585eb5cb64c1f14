"""What bitwise equality depends on beside the code: threads, CPU, versions, device. Recorded, compared, enforced."""

import os
import platform
from collections.abc import Mapping

import torch

from kaggle_orchestrator import __version__
from kaggle_orchestrator.runtime.training.say import say

THREADS = "threads"
CPU = "cpu_capability"
_NAMES = {CPU: "CPU capability", "torch": "torch version", "device": "device"}


def describe(device: torch.device) -> dict[str, str | int]:
    """This process's environment, as checkpoints and results record it."""
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {
        "kgo": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        THREADS: torch.get_num_threads(),
        CPU: torch.backends.cpu.get_cpu_capability(),
        "device": named,
    }


def enforce_threads(recorded: Mapping[str, str | int]) -> None:
    """Compute with as many threads as the checkpoint was computed with: sums split otherwise round otherwise."""
    threads = recorded.get(THREADS)
    if isinstance(threads, int) and threads > 0 and threads != torch.get_num_threads():
        say(f"{torch.get_num_threads()} threads here, {threads} in the checkpoint: computing with {threads}")
        torch.set_num_threads(threads)


def differences(recorded: Mapping[str, str | int], here: Mapping[str, str | int]) -> list[str]:
    """Which causes of a bitwise difference there are, in words."""
    names = {THREADS: "number of threads", **_NAMES}
    return [
        f"{name} is {here[key]}, it was {recorded[key]}"
        for key, name in names.items()
        if key in recorded and recorded[key] != here[key]
    ]


def name_differences(recorded: Mapping[str, str | int], here: Mapping[str, str | int]) -> None:
    """Say which causes of a bitwise difference can't be removed; the training goes on all the same."""
    for difference in differences(recorded, here):
        say(f"{difference}: the last bits may come out different")


def be_deterministic() -> None:
    """Let CUDA compute the same bits each time, slower. Must come before CUDA starts, so before a model is moved."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
