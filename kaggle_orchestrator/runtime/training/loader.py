"""What ``run.loader`` returns: an iterable over batches that knows its position and goes on from it.

A pass is one iteration over the data; passes are numbered over the whole training. After a restore a pass that was
open goes on behind the last batch it gave out, and one that was finished in the current epoch gives out nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.runtime.training.batches import (
    Counted,
    Maker,
    Order,
    Place,
    Queue,
    Sampled,
    Shuffled,
    WorkerInit,
)
from kaggle_orchestrator.runtime.training.rng import derive
from kaggle_orchestrator.runtime.training.streams import Stream, StreamMaker

_REFUSED = {
    "sampler": "make a DataLoader with it and hand that to run.loader",
    "batch_sampler": "make a DataLoader with it and hand that to run.loader",
    "generator": "kgo seeds the order itself",
    "dataset": "it is the first argument",
    "in_order": "batches in the order of their completion can't be repeated",
}


class Gate(Protocol):
    """The training, as a loader sees it."""

    def between_batches(self, loader: "Loader", left: int) -> None:
        """All of the body of the last batch has run, the next isn't fetched; ``left`` batches are left."""

    def given(self, loader: "Loader", pass_: int, taken: Callable[[], object], batch: object) -> None:
        """A batch is given out; ``taken`` tells which."""

    def arrived(self, loader: "Loader") -> None:
        """A pass goes on at the position of the checkpoint."""


@dataclass(slots=True)
class Pass:
    """A pass that is open.

    Attributes:
        number: From 0 over the whole training.
        delivered: Batches given out.
        fresh: Whether the last batch given out has been trained on (``run.step`` was called) since.
        stepped: Whether any has.
        endless: Whether it belongs to ``Loader.endless``.
        body: The epoch's body (or the step's) in which it was opened, counted from 1 in this process.
    """

    number: int
    delivered: int
    body: int
    endless: bool
    fresh: bool = False
    stepped: bool = False


class Loader:
    """Batches of a data set, exact across legs. Made by ``run.loader``; iterate over it as over a DataLoader.

    Attributes:
        open_pass: The pass that is under way, or None.
        waited_s: Seconds that the training has waited for batches.
    """

    def __init__(self, data: Any, place: Place, gate: Gate, options: Mapping[str, Any]) -> None:
        self._order: Order | None = None
        if isinstance(data, IterableDataset):
            settings = _from_stream(data, options)
        elif isinstance(data, DataLoader) and isinstance(data.dataset, IterableDataset):
            settings = _from_stream_loader(data, options)
        elif isinstance(data, DataLoader):
            settings, self._order = _from_loader(data, place, options)
        else:
            settings, self._order = _from_data_set(data, place, options)
        self._gate = gate
        self._place = place
        self._queue = Queue()
        self._generator = torch.Generator()
        self._torch = self._made_by_torch(settings)
        self._next = 0
        self._body = 0
        self._body_first = 0
        self._finished: list[int] = []
        self._resume: dict[int, int | None] = {}
        self._arrival_next = 0
        self.open_pass: Pass | None = None
        self.waited_s = 0.0

    def __len__(self) -> int:
        """Batches in a pass.

        Raises:
            TypeError: It's a stream's, whose length nobody knows.
        """
        if self._order is None:
            raise TypeError("a loader over an IterableDataset has no length")
        return len(self._order)

    def __iter__(self) -> Iterator[Any]:
        return self._run_pass(endless=False)

    @property
    def batches(self) -> int | None:
        """Batches in a pass, None for a stream."""
        return None if self._order is None else len(self._order)

    @property
    def stream_workers(self) -> int | None:
        """Workers of a stream, on which its order depends; None for other data."""
        return self._torch.num_workers if self._order is None else None

    @property
    def dataset(self) -> Any:
        """The data set."""
        return self._torch.dataset.dataset  # type: ignore[attr-defined]

    @property
    def position(self) -> int:
        """Batches given out in the current pass: 1 for the first, ``len(loader)`` for the last; 0 outside a pass.

        Unlike ``enumerate``, it is right after a resume.
        """
        return 0 if self.open_pass is None else self.open_pass.delivered

    def endless(self) -> Iterator[Any]:
        """Pass after pass without an end, for loops over ``run.steps``."""
        while True:
            yield from self._run_pass(endless=True)

    def stepped(self) -> None:
        """``run.step`` was called: the batch given out last counts as trained on."""
        if self.open_pass is not None and self.open_pass.delivered:
            self.open_pass.fresh = self.open_pass.stepped = True

    def end_pass(self) -> None:
        """The loop begins: an iterator from before it can't be moved to a checkpoint's position, so it ends here."""
        self.open_pass = None

    def begin_body(self) -> None:
        """An epoch (or a step of ``run.steps``) begins."""
        self._body += 1
        self._body_first = self._next
        self._finished.clear()

    def resumable(self) -> bool:
        """Whether the epoch's body, run again from its top, comes back to the open pass."""
        return self.open_pass is not None and not self.open_pass.endless and self.open_pass.body == self._body

    def state(self) -> dict[str, Any]:
        """The position, for a checkpoint: numbers and lists only."""
        open_ = None
        if here := self.open_pass:
            carried = here.endless or here.body != self._body
            open_ = {"pass": here.number, "delivered": here.delivered, "step": here.stepped, "carried": carried}
        elif pending := self._pending():  # open at the last checkpoint, and not come back to since
            number, delivered = pending[0]
            open_ = {"pass": number, "delivered": delivered, "step": True, "carried": True}
        return {
            "batches": self.batches,
            "stream_workers": self.stream_workers,
            "body_first": self._body_first,
            "next": self._next,
            "finished": list(self._finished),
            "open": open_,
        }

    def restore(self, state: Mapping[str, Any], *, mid_body: bool) -> None:
        """Take the position of a checkpoint.

        Args:
            state: What ``state`` returned.
            mid_body: Whether it was taken in the midst of an epoch's body, which then runs from its top again:
                passes that trained are resumed or, if finished, empty; others run again in full.
        """
        open_ = state["open"]
        if open_ and (open_["carried"] or not mid_body):  # it is older than what runs again: it simply goes on
            self._next, self._resume = open_["pass"], {open_["pass"]: open_["delivered"]}
        elif mid_body:
            self._next, self._resume = state["body_first"], dict.fromkeys(state["finished"])
            if open_ and open_["step"]:
                self._resume[open_["pass"]] = open_["delivered"]
        else:
            self._next, self._resume = state["next"], {}
        self._arrival_next = state["next"]

    def catch_up(self) -> None:
        """The training has arrived at the position of the checkpoint: passes go on counting from there."""
        pending = self._pending()
        self._next = pending[0][0] if pending else max(self._next, self._arrival_next)

    def close(self) -> None:
        """End workers that persist."""
        self.end_pass()
        self._torch._iterator = None

    def _pending(self) -> list[tuple[int, int]]:
        """Passes that were open at the checkpoint and wait for their iteration to begin: number and batches given."""
        return [(number, delivered) for number, delivered in self._resume.items() if delivered is not None]

    def _made_by_torch(self, settings: dict[str, Any]) -> DataLoader[Any]:
        """A DataLoader whose samples are our batches: workers, pinned memory and prefetching remain torch's."""
        try:
            dataset, collate = settings.pop("dataset"), settings.pop("collate_fn")
            maker: Maker | StreamMaker
            if self._order is None:
                size, drop_last = settings.pop("batch_size"), settings.pop("drop_last")
                maker = StreamMaker(dataset, size, drop_last, collate, self._place)
            else:
                maker, settings["sampler"] = Maker(dataset, collate, self._place), self._queue
            return DataLoader(
                maker,
                batch_size=None,
                collate_fn=_as_it_is,
                worker_init_fn=WorkerInit(settings.pop("worker_init_fn", None)),
                generator=self._generator,
                **settings,
            )
        except (TypeError, ValueError) as error:
            raise KgoError(f"run.loader(): {error}") from error

    def _run_pass(self, *, endless: bool) -> Iterator[Any]:
        number, self._next = self._next, self._next + 1
        resumed = number in self._resume
        delivered = self._resume.pop(number, 0)
        if delivered is None:
            self._finished.append(number)
            return
        batches = None if self._order is None else self._order.of(number)
        if batches is not None and not len(batches):
            raise _empty()
        here = Pass(number, delivered, self._body, endless, stepped=resumed)
        self.open_pass = here
        try:
            if resumed:
                self._gate.arrived(self)
            # Its own generator: DataLoader would draw the workers' seed from the training's.
            self._generator.manual_seed(derive("workers", self._place.seed, self._place.loader, number))
            feed = self._stream(number, delivered) if batches is None else self._counted(number, batches, delivered)
            while True:
                asked = time.monotonic()
                left = feed.left
                self.waited_s += time.monotonic() - asked
                self._gate.between_batches(self, left=left)
                here.fresh = False
                if not left:
                    return
                asked = time.monotonic()
                batch = feed.take()
                self.waited_s += time.monotonic() - asked
                self._gate.given(self, number, feed.taken, batch)
                here.delivered += 1
                yield batch
                if self.open_pass is not here:
                    raise KgoError("this iterator over a loader was ended by the beginning of the loop, or a newer one")
        finally:
            if self.open_pass is here:
                self.open_pass = None
                if here.stepped and not endless:
                    self._finished.append(number)

    def _counted(self, number: int, batches: Sequence[Any], delivered: int) -> Counted:
        self._queue.load(number, batches, delivered)
        return Counted(batches, iter(self._torch) if delivered < len(batches) else iter(()), delivered)

    def _stream(self, number: int, delivered: int) -> Stream:
        maker: Any = self._torch.dataset
        maker.pass_ = number
        stream = Stream(iter(self._torch))
        for done in range(delivered):
            if not stream.left:
                raise KgoError(
                    f"the data set ends after {done} batches; the checkpoint lies behind {delivered}",
                    hint="Go on with the same data.",
                )
            stream.take()
        if not stream.left and not delivered:
            raise _empty()
        return stream


def _empty() -> KgoError:
    return KgoError("a loader has no batch to give out", hint="The data set is empty, or drop_last drops it all.")


def _from_stream(data: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    options = dict(given)
    for name in options:
        if name in _REFUSED or name in ("shuffle", "persistent_workers"):
            why = _REFUSED.get(name, "an IterableDataset makes its own order, and its workers anew for each pass")
            raise KgoError(f"run.loader({name}=…): {why}")
    size = _batch_size(options.pop("batch_size", None))
    collate = options.pop("collate_fn", None) or default_collate
    drop_last = options.pop("drop_last", False)
    return {"dataset": data, "batch_size": size, "drop_last": drop_last, "collate_fn": collate, **options}


def _from_stream_loader(loader: DataLoader[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    if loader.persistent_workers:
        raise KgoError(
            "run.loader: persistent_workers doesn't go with an IterableDataset",
            hint="Its workers are made anew for each pass, so that each has random numbers of its own.",
        )
    settings = _kept(loader, given)
    del settings["persistent_workers"]
    return {**settings, "batch_size": loader.batch_size, "drop_last": loader.drop_last}


def _batch_size(size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise KgoError(f"run.loader(dataset, batch_size={size!r}): how many samples make a batch?")
    return size


def _from_data_set(data: Any, place: Place, given: Mapping[str, Any]) -> tuple[dict[str, Any], Order]:
    options = dict(given)
    for name in options:
        if name in _REFUSED:
            raise KgoError(f"run.loader({name}=…): {_REFUSED[name]}")
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise KgoError(
            f"run.loader: a {type(data).__name__} is no data set",
            hint="It needs __len__() and __getitem__(index), or to be an IterableDataset.",
        )
    size = _batch_size(options.pop("batch_size", None))
    order = Shuffled(place, len(data), size, options.pop("shuffle", True), options.pop("drop_last", False))
    collate = options.pop("collate_fn", None) or default_collate
    return {"dataset": data, "collate_fn": collate, **options}, order


def _from_loader(loader: DataLoader[Any], place: Place, given: Mapping[str, Any]) -> tuple[dict[str, Any], Order]:
    settings = _kept(loader, given)
    try:
        len(loader)
    except TypeError as error:
        raise KgoError(
            f"run.loader: the DataLoader's sampler has no length, so its passes have no end: {error}"
        ) from error
    return settings, Sampled(place, loader)


def _kept(loader: DataLoader[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What of an existing DataLoader stays as it is."""
    if given:
        raise KgoError(f"run.loader(): {', '.join(given)}: the DataLoader has it already; set it there")
    names = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    settings = {name: getattr(loader, name) for name in (*names, "persistent_workers", "dataset", "collate_fn")}
    if loader.num_workers:
        settings["prefetch_factor"] = loader.prefetch_factor
    return settings


def _as_it_is(batch: Any) -> Any:
    return batch
