"""Trainings that the tests cut: small, but with all that makes an exact resume hard.

Augmentation from two generators, dropout, batch norm, AdamW, OneCycle, an average updated *after* ``run.step``, random
numbers at the top of an epoch, and an evaluation that draws random numbers.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler, get_worker_info

import kaggle_orchestrator as kgo
from kaggle_orchestrator.protocol import Variable
from kaggle_orchestrator.runtime.training.digest import state_digest
from tests.runtime.training.legs import FINAL, TRACE

SAMPLES = 21
BATCH = 5
BATCHES = 5
"""In a pass: the last has one sample."""


class Noisy(Dataset[tuple[Tensor, int, int]]):
    """Samples that differ each time, by the random numbers of Python, torch and, where it is installed, NumPy."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.x = torch.randn(samples, 6, generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        numpy: Any = sys.modules.get("numpy")
        shift = 0.0 if numpy is None else float(numpy.random.rand())
        return self.x[index] * random.uniform(0.9, 1.1) + torch.randn(6) * 0.1 + shift, index % 3, index


class Total:
    """A user's own object with a state."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.seen = 0.0

    def state_dict(self) -> dict[str, float]:
        return {"loss": self.loss, "seen": self.seen}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.loss, self.seen = state["loss"], state["seen"]


class Parts:
    """What is trained, and the record of each step."""

    def __init__(self, run: kgo.Run, total_steps: int) -> None:
        self.run = run
        self.model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=total_steps)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)
        self.total = Total()
        run.track(model=self.model, optimizer=self.optimizer, scheduler=self.scheduler)
        run.track(average=self.average, total=self.total)

    def train(self, x: Tensor, y: Tensor, ids: Tensor, scale: float = 1.0) -> None:
        """One step, with its record."""
        self.model.train()
        loss = nn.functional.cross_entropy(self.model(x), y) * scale if len(x) > 1 else self.model[0](x).sum() * 0.01
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        rate = float(self.scheduler.get_last_lr()[0])
        self.run.step(loss=loss, lr=rate)
        # Behind run.step on purpose: a save must not come before it.
        self.scheduler.step()
        self.average.update_parameters(self.model)
        self.record(loss, ids, rate)

    def record(self, loss: Tensor, ids: Tensor, rate: float = 0.0) -> None:
        """What the step did."""
        self.total.loss += loss.item()
        record = {"step": self.run.global_step, "ids": ids.tolist(), "lr": rate.hex(), "loss": float(loss.item()).hex()}
        with Path(TRACE).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def evaluate(self) -> float:
        """Draws random numbers: dropout is on, and a plain DataLoader takes a seed from torch's generator."""
        self.model.train()
        with torch.no_grad():
            batches = list(DataLoader(Noisy(10), batch_size=10))
            value = sum(float(self.model(x).std()) for x, _, _ in batches)
        self.total.seen += value
        return value

    def finish(self) -> None:
        """Record the digest of everything at the end."""
        tracked: dict[str, Any] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "average": self.average,
        }
        digests = {name: state_digest(item.state_dict(), name) for name, item in tracked.items()}
        after = [random.random(), torch.rand(1).item()]
        record = {**digests, **self.total.state_dict(), "random": after}
        Path(FINAL).write_text(json.dumps(record, indent=1))


def interrupt(run: kgo.Run, *, stop_at: int | None, kill_at: int | None) -> None:
    """At the given step: ask to stop, as the supervisor does, or die."""
    if run.global_step == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if run.global_step == stop_at:
        if control := os.environ.get(Variable.CONTROL):
            (Path(control) / "stop").touch()
        else:
            os.killpg(os.getpgid(0), signal.SIGINT)  # as a terminal's Ctrl-C does, workers included


def epochs(
    total: int = 3,
    workers: int = 0,
    stop_at: int | None = None,
    kill_at: int | None = None,
    existing: str = "",
    threads: int = 1,
    planned: int = 3,
) -> None:
    """A loop over epochs with an evaluation. ``existing`` hands over a DataLoader with such a sampler; ``planned`` is
    the number of epochs that the schedule is made for."""
    torch.set_num_threads(threads)
    with kgo.start(seed=3) as run:
        data: Any = Noisy()
        if existing == "random":
            train = run.loader(DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers))
        elif existing == "weighted":
            sampler = WeightedRandomSampler([1.0 + i for i in range(SAMPLES)], SAMPLES, generator=torch.Generator())
            train = run.loader(DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=workers))
        else:
            train = run.loader(data, batch_size=BATCH, num_workers=workers)
        parts = Parts(run, planned * BATCHES)
        for _ in run.epochs(total):
            scale = 1 + 0.1 * torch.rand(1).item() + 0.1 * random.random()
            for x, y, ids in train:
                parts.train(x, y, ids, scale)
                interrupt(run, stop_at=stop_at, kill_at=kill_at)
            run.best(spread=parts.evaluate(), mode="max")
        parts.finish()


def phases(total: int = 3, workers: int = 0, stop_at: int | None = None, kill_at: int | None = None) -> None:
    """Several loaders: one in full, then one beside an endless one, with a validation loader in their midst."""
    with kgo.start(seed=3) as run:
        first, second = (
            run.loader(Noisy(11), batch_size=BATCH),
            run.loader(Noisy(), batch_size=BATCH, num_workers=workers),
        )
        beside, check = run.loader(Noisy(8), batch_size=4), run.loader(Noisy(6), batch_size=3)
        parts, extra = Parts(run, total * (3 + BATCHES)), beside.endless()
        for _ in run.epochs(total):
            scale = 1 + 0.01 * sum(float(x.mean()) for x, _, _ in check)
            for x, y, ids in first:
                parts.train(x, y, ids, scale)
                interrupt(run, stop_at=stop_at, kill_at=kill_at)
            for x, y, ids in second:
                other, _, more = next(extra)
                parts.train(x + other.mean(), y, torch.cat([ids, more]))
                if second.position == 2:
                    parts.total.seen += sum(float(x.sum()) for x, _, _ in check)
                interrupt(run, stop_at=stop_at, kill_at=kill_at)
        parts.finish()


def zipped(total: int = 3, workers: int = 0, stop_at: int | None = None, kill_at: int | None = None) -> None:
    """Two loaders side by side, the shorter one ends the epoch; gradients are summed over two batches."""
    with kgo.start(seed=3) as run:
        left = run.loader(Noisy(), batch_size=BATCH, num_workers=workers)
        right = run.loader(Noisy(16), batch_size=4, num_workers=workers)
        parts = Parts(run, total * BATCHES)
        for _ in run.epochs(total):
            kept: list[Tensor] = []
            for (x, y, ids), (other, _, more) in zip(left, right, strict=False):
                kept.append(other.mean())
                if left.position % 2 == 0:
                    parts.train(x + sum(kept), y, torch.cat([ids, more]))
                    kept.clear()
                    interrupt(run, stop_at=stop_at, kill_at=kill_at)
        parts.finish()


def steps(
    total: int = 14, workers: int = 0, stop_at: int | None = None, kill_at: int | None = None, by_hand: bool = False
) -> None:
    """A loop over steps that draws on a loader without an end, or restarts it by hand, and seldom on a second one."""
    with kgo.start(seed=3) as run:
        train = run.loader(Noisy(), batch_size=BATCH, num_workers=workers)
        seldom = run.loader(Noisy(6), batch_size=4).endless()
        parts = Parts(run, total)
        batches: Iterator[Any] = iter(train) if by_hand else train.endless()
        for number in run.steps(total):
            try:
                x, y, ids = next(batches)
            except StopIteration:
                batches = iter(train)
                x, y, ids = next(batches)
            other, _, more = next(seldom) if number % 5 == 1 else (x, y, ids[:0])
            parts.train(x + other.mean(), y, torch.cat([ids, more]), 1 + torch.rand(1).item())
            interrupt(run, stop_at=stop_at, kill_at=kill_at)
            if number % 4 == 3:
                parts.evaluate()
        parts.finish()


def losing(what: str, total: int = 14, stop_at: int | None = None, fail_at: int | None = None) -> None:
    """A training that doesn't keep something that it needs, or (``nothing``) keeps it all."""
    resumed = Variable.RESUME in os.environ
    with kgo.start(seed=3) as run:
        data = Noisy()
        if resumed and what == "data":
            data.x += 1e-6
        train = run.loader(data, batch_size=BATCH, shuffle=not (resumed and what == "samples")).endless()
        model, frozen, extra = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        beside = torch.optim.AdamW(extra.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(beside, 0.05, total_steps=50)
        average, total_seen = torch.zeros(6), Total()
        run.track(model=model, total=total_seen)
        if what != "momentum":
            run.track(optimizer=optimizer)
        if what != "everything":
            run.track(beside=beside, extra=extra)
            if what != "rate":
                run.track(schedule=schedule)
        for _ in run.steps(total):
            x, y, _ids = next(train)
            loss = nn.functional.cross_entropy(model(x + 0 * frozen(x).sum()), y)
            if what == "numbers" and resumed:
                loss = loss * 1.001
            for each in (optimizer, beside):
                each.zero_grad()
            (loss + extra(x).square().mean()).backward()
            for each in (optimizer, beside):
                each.step()
            average = 0.9 * average + x.mean(0) if what == "average" else average
            total_seen.seen += float(average.sum())
            schedule.step()
            run.step(loss=loss)
            interrupt(run, stop_at=stop_at, kill_at=None)
            if run.global_step == fail_at:
                raise ValueError("in a step that is replayed")


class Drawn(IterableDataset[tuple[Tensor, int, int]]):
    """A stream whose samples are drawn, shared out among its workers."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[tuple[Tensor, int, int]]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        shift = torch.randn(6)
        for index in range(first, self.samples, step):
            yield torch.randn(6) + shift * random.random(), index % 3, index


def stream(
    total: int = 3,
    workers: int = 0,
    stop_at: int | None = None,
    kill_at: int | None = None,
    existing: bool = False,
    samples: int = SAMPLES,
) -> None:
    """A loop over epochs of a stream, beside one without an end."""
    with kgo.start(seed=3) as run:
        data = Drawn(samples)
        if existing:
            train = run.loader(DataLoader(data, batch_size=BATCH, num_workers=workers))
        else:
            train = run.loader(data, batch_size=BATCH, num_workers=workers)
        beside = run.loader(Drawn(8), batch_size=3, drop_last=True).endless()
        parts = Parts(run, 50)
        for _ in run.epochs(total):
            scale = 1 + 0.1 * torch.rand(1).item()
            for x, y, ids in train:
                other, _, more = next(beside)
                parts.train(x + other.mean(), y, torch.cat([ids, more]), scale)
                interrupt(run, stop_at=stop_at, kill_at=kill_at)
            parts.evaluate()
        parts.finish()


def scaled(total: int = 3, workers: int = 0, stop_at: int | None = None, kill_at: int | None = None) -> None:
    """Mixed precision with a scaler whose factor changes all the time, and gradients of two batches summed up."""
    with kgo.start(seed=3) as run:
        train = run.loader(Noisy(), batch_size=BATCH, num_workers=workers, drop_last=True)
        parts = Parts(run, total * BATCHES)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_factor=1.5, growth_interval=2)
        run.track(scaler=scaler)
        for _ in run.epochs(total):
            for x, y, ids in train:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(parts.model(x), y)
                scaler.scale(loss / 2).backward()  # type: ignore[no-untyped-call]
                if train.position % 2:
                    continue
                scaler.step(parts.optimizer)
                scaler.update()
                parts.optimizer.zero_grad()
                run.step(loss=loss, scale=scaler.get_scale())
                parts.scheduler.step()
                parts.average.update_parameters(parts.model)
                parts.record(loss, ids)
                interrupt(run, stop_at=stop_at, kill_at=kill_at)
        parts.finish()


def on_a_gpu(total: int = 3, stop_at: int | None = None, kill_at: int | None = None) -> None:
    """Convolutions, dropout and a scaler on the device there is."""
    with kgo.start(seed=3) as run:
        train = run.loader(Noisy(64), batch_size=8)
        model = nn.Sequential(
            nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Dropout(0.3), nn.Flatten(), nn.Linear(96, 3),
        ).to(run.device)  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler(run.device.type, growth_interval=2)
        run.track(model=model, optimizer=optimizer, scaler=scaler)
        for _ in run.epochs(total):
            for x, y, ids in train:
                with torch.autocast(run.device.type):
                    loss = nn.functional.cross_entropy(model(x.to(run.device)), y.to(run.device))
                optimizer.zero_grad()
                scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
                scaler.step(optimizer)
                scaler.update()
                run.step(loss=loss)
                record = {"step": run.global_step, "ids": ids.tolist(), "loss": float(loss.item()).hex()}
                with Path(TRACE).open("a") as file:
                    file.write(json.dumps(record) + "\n")
                interrupt(run, stop_at=stop_at, kill_at=kill_at)
        Path(FINAL).write_text(state_digest(model.state_dict(), "model"))
