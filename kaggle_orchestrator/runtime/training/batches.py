"""Which samples make up each batch of a pass, and how a batch is made: the same whatever process makes it.

Order and augmentation depend on seed, loader, pass, batch number and rank alone, never on what was drawn before, on
the number of workers, or on how often the training was cut.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from kaggle_orchestrator.runtime.training.rng import derive, isolated


@dataclass(frozen=True, slots=True)
class Place:
    """What the random numbers of a loader depend on, beside pass and batch number."""

    seed: int
    loader: int
    rank: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One batch to be made: ``indices`` is a list, or a single index where the loader doesn't batch."""

    pass_: int
    number: int
    indices: Any


class Order(Protocol):
    """What a pass consists of."""

    def __len__(self) -> int:
        """Batches in a pass."""

    def of(self, pass_: int) -> Sequence[Any]:
        """The indices of each batch of a pass."""


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Batches of ``batch_size`` over ``samples`` samples: permuted for each pass, or in their order."""

    place: Place
    samples: int
    batch_size: int
    shuffle: bool
    drop_last: bool

    def __len__(self) -> int:
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    def of(self, pass_: int) -> Sequence[list[int]]:
        """Slices of one permutation; indices of a batch become Python numbers when it is due."""
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(derive("order", self.place.seed, self.place.loader, pass_))
            order = torch.randperm(self.samples, generator=generator)
        else:
            order = torch.arange(self.samples)
        return _Slices(order, self.batch_size, len(self))


@dataclass(frozen=True, slots=True)
class _Slices(Sequence[list[int]]):
    order: torch.Tensor
    batch_size: int
    batches: int

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.batches:
            raise IndexError(index)
        return self.order[index * self.batch_size : (index + 1) * self.batch_size].tolist()


@dataclass(frozen=True, slots=True)
class Sampled:
    """The order of an existing DataLoader: what its own sampler says, asked with random numbers of this pass."""

    place: Place
    loader: DataLoader[Any]

    def __len__(self) -> int:
        return len(self.loader)

    def of(self, pass_: int) -> Sequence[Any]:
        """Ask the sampler for a whole pass; a generator of its own is reseeded, ``set_epoch`` is told the pass."""
        seed = derive("order", self.place.seed, self.place.loader, pass_)
        chain = [self.loader.sampler, self.loader.batch_sampler, getattr(self.loader.batch_sampler, "sampler", None)]
        for sampler in chain:
            generator = getattr(sampler, "generator", None)
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed)
            if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                set_epoch(pass_)
        batches: Any = self.loader.sampler if self.loader.batch_sampler is None else self.loader.batch_sampler
        with isolated(seed):
            return list(batches)


class Maker(Dataset[Any]):
    """A dataset for torch's DataLoader whose items are whole batches, made with the batch's own random numbers.

    Fetching *and* collating happen here, so that augmentation in a collate function is covered too, and the
    generators of the process are put back afterwards: with no workers they are the training's.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], place: Place) -> None:
        self.dataset = dataset
        self._collate = collate
        self._place = place

    def __getitem__(self, wanted: Wanted) -> Any:
        place = self._place
        seed = derive("batch", place.seed, place.loader, wanted.pass_, wanted.number, place.rank)
        with isolated(seed), one_thread():
            return self._collate(self._fetch(wanted.indices))

    def _fetch(self, indices: Any) -> Any:
        if not isinstance(indices, (list, tuple)):
            return self.dataset[indices]
        fetch_many = getattr(self.dataset, "__getitems__", None)
        return fetch_many(indices) if fetch_many else [self.dataset[i] for i in indices]


class one_thread:
    """A block in which torch computes with one thread, as it does in a loader's worker: the same batch to the bit."""

    def __enter__(self) -> None:
        self._threads = torch.get_num_threads()
        if self._threads != 1:
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self._threads != 1:
            torch.set_num_threads(self._threads)


class WorkerInit:
    """Starts a worker: the user's own init function sees its dataset, and a terminal's Ctrl-C doesn't end it."""

    def __init__(self, init: Callable[[int], None] | None) -> None:
        self._init = init

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        info = get_worker_info()
        theirs = getattr(getattr(info, "dataset", None), "dataset", None)  # ours makes batches of theirs
        if theirs is not None:
            object.__setattr__(info, "dataset", theirs)
        if self._init is not None:
            self._init(worker)


class Counted:
    """The batches that are left of a pass of known length; none is made before it is taken."""

    def __init__(self, batches: Sequence[Any], made: Iterator[Any], taken: int) -> None:
        self._batches, self._made, self._taken = batches, made, taken

    @property
    def left(self) -> int:
        """How many."""
        return len(self._batches) - self._taken

    def take(self) -> Any:
        """The next batch."""
        batch = next(self._made)
        self._taken += 1
        return batch

    def taken(self) -> object:
        """The indices of the last batch taken; they are made anew, so only for who needs them."""
        return self._batches[self._taken - 1]


class Queue:
    """What torch's DataLoader takes for a sampler: the batches of the current pass, from the current position."""

    def __init__(self) -> None:
        self._pass = 0
        self._batches: Sequence[Any] = ()
        self._first = 0

    def load(self, pass_: int, batches: Sequence[Any], first: int) -> None:
        """Go on with batch ``first`` of a pass: skipped ones aren't fetched."""
        self._pass, self._batches, self._first = pass_, batches, first

    def __iter__(self) -> Iterator[Wanted]:
        for number in range(self._first, len(self._batches)):
            yield Wanted(self._pass, number, self._batches[number])

    def __len__(self) -> int:
        return len(self._batches) - self._first
