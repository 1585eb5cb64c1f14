"""The part of a leg's time that is spent in steps that survive, and what kgo itself costs at each step.

A leg on the CPU is measured by its own buckets. From its parts, and from the time that a large state takes to be saved
and restored, a leg of 12 hours is computed by the same arithmetic that paces the saves.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kaggle_orchestrator.localkaggle import admin, background

LEG_S, STOP_BEFORE_S = 100.0, 20.0
HOURS_12, TEN_MINUTES = 12 * 3600.0, 600.0
STATE, MEASURED = 2 << 30, 256 << 20
"""Bytes: of the state of the leg that is computed, and of the one that is saved and restored here."""
LEAST_GOODPUT = 0.98
MOST_US = {0: 200.0, 2: 80.0}
"""Microseconds a step that kgo may take, by the number of workers."""
STEPS = 600
CONFIG = f"""
[kernel]
slug = "goodput-bench"
[train]
entry = "train.py"
include = ["train.py"]
[chain]
session_limit = "{LEG_S:g}s"
stop_before = "{STOP_BEFORE_S:g}s"
max_legs = 1
"""
TRAINING = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
import kaggle_orchestrator as kgo
torch.set_num_threads(1)
with kgo.start(seed=0) as run:
    data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
    model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    run.track(model=model, optimizer=optimizer)
    train = run.loader(data, batch_size=64)
    for epoch in run.epochs(100_000):
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss=loss)
"""


def measured_leg(root: Path) -> dict[str, float]:
    """Seconds by bucket of one leg on the local Kaggle, and all of them as ``session``."""
    home, exp = root / "home", root / "exp"
    exp.mkdir()
    (exp / "train.py").write_text(TRAINING)
    (exp / "kgo.toml").write_text(CONFIG)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KAGGLE_", "KGO_"))} | {"KGO_HOME": str(home)}
    url = background.ensure(home, idle_s=900).url
    try:
        kgo = str(Path(sys.executable).with_name("kgo"))
        subprocess.run([kgo, "run", "--local", str(exp)], env=environ, capture_output=True, timeout=600, check=False)
        (session,) = admin.sessions(url)
        result = json.loads((session.output / "kgo" / "leg.json").read_text())
    finally:
        background.stop(home)
    return {**result["buckets"], "session": result["ended_at"] - result["started_at"]}


def large_state(root: Path) -> tuple[float, float]:
    """Seconds that a checkpoint of ``MEASURED`` bytes takes to be saved, and to be verified, loaded and compared."""
    import torch

    from kaggle_orchestrator.runtime.training.checkpoints import Checkpoints, Snapshot, load_state
    from kaggle_orchestrator.runtime.training.digest import state_digest

    state = {"weights": torch.randn(MEASURED // 4)}
    store = Checkpoints(root / "checkpoints", keep=2)
    saves, loads = [], []
    for step in range(1, 5):
        began = time.perf_counter()
        checkpoint = store.write(Snapshot(step=step, epoch=None, states={"model": state}, document={}))
        saves.append(time.perf_counter() - began)
        began = time.perf_counter()
        checkpoint.verify()  # the supervisor
        checkpoint.verify()  # the library
        state_digest(load_state(checkpoint, "model"), "model")
        loads.append(time.perf_counter() - began)
    return statistics.median(saves[1:]), statistics.median(loads)  # the first save is also loaded once


def computed_leg(parts: dict[str, float], save_s: float, restore_s: float) -> tuple[float, float, dict[str, float]]:
    """Goodput up to the deadline, seconds unused behind it, and the buckets of a leg of 12 hours."""
    from kaggle_orchestrator.runtime.supervisor.times import LONGEST_REPLAY_S, tail_s
    from kaggle_orchestrator.runtime.training.pace import Pace

    tail = tail_s(2 * STATE)
    deadline = HOURS_12 - TEN_MINUTES - tail
    now = began = parts["start"] + restore_s
    pace, saving, step = Pace(None, deadline, began), 0.0, 1.0
    while not pace.leave_due(now, now):
        now += step
        pace.reached_point(now)
        if pace.save_due(now, 10):
            now, saving = now + save_s, saving + save_s
            pace.saved(now, save_s)
    saving += save_s
    waiting = (now - began - saving) * parts["data"] / (parts["data"] + parts["train"])
    buckets = {"start": parts["start"], "restore": restore_s, "data": waiting, "save": saving}
    unused = TEN_MINUTES - min(LONGEST_REPLAY_S, TEN_MINUTES / 4)
    return 1 - (sum(buckets.values()) + max(0.0, deadline - now - save_s)) / deadline, unused, buckets


class Numbers:
    """A data set that takes next to no time."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


def own_us(root: Path, workers: int) -> float:
    """Median microseconds a step in kgo's own code: ``run.step``, the gate between batches, random numbers."""
    from kaggle_orchestrator.runtime.training import Run, batches
    from kaggle_orchestrator.runtime.training.driver import Driver
    from kaggle_orchestrator.runtime.training.settings import Settings

    spent: list[float] = []
    now = time.perf_counter

    def timed(function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            began = now()
            try:
                return function(*args, **options)
            finally:
                spent[-1] += now() - began

        return call

    def steps(run: Run) -> Iterator[float]:
        loader = run.loader(Numbers(STEPS * 4), batch_size=4, num_workers=workers, shuffle=False)
        for _ in run.epochs(1):
            spent.append(0.0)
            for _batch in loader:
                run.step(loss=1.0)
                yield spent[-1]
                spent.append(0.0)

    kept = Driver.step, Driver.between_batches, batches.Maker.__getitem__
    Driver.step, Driver.between_batches = timed(kept[0]), timed(kept[1])  # type: ignore[method-assign]
    if workers == 0:
        batches.Maker.__getitem__ = timed(kept[2])  # type: ignore[method-assign]
    try:
        with Run(Settings(working=root / f"own{workers}", save_every_s=3600.0), seed=0) as run:
            seen = list(steps(run))[20:]
    finally:
        Driver.step, Driver.between_batches = kept[0], kept[1]  # type: ignore[method-assign]
        batches.Maker.__getitem__ = kept[2]  # type: ignore[method-assign]
    return statistics.median(seen) * 1e6


def main() -> bool:
    """Print what was measured; whether all promises are kept."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        own = {workers: own_us(root, workers) for workers in MOST_US}
        save_s, restore_s = (seconds * STATE / MEASURED for seconds in large_state(root))
        parts = measured_leg(root)
    for workers, most in MOST_US.items():
        print(f"goodput: kgo's own time a step with {workers} workers: {own[workers]:.0f} µs (at most {most:g})")
    shown = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items() if name != "session")
    share = parts["train"] / (LEG_S - STOP_BEFORE_S)
    print(f"goodput: a leg of {parts['session']:.0f} s on the CPU: {shown} s; {share:.3f} up to its deadline")
    goodput, unused, buckets = computed_leg(parts, save_s, restore_s)
    shown = ", ".join(f"{name} {seconds:.0f}" for name, seconds in buckets.items())
    print(
        f"goodput: 12 h with a state of 2 GiB, computed: {shown} s; {goodput:.4f} up to the deadline (at least "
        f"{LEAST_GOODPUT}); {unused:.0f} s of stop_before are left unused"
    )
    return goodput >= LEAST_GOODPUT and all(own[workers] <= most for workers, most in MOST_US.items())
