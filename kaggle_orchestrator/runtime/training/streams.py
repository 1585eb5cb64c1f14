"""Batches of an iterable data set: made by their number in the pass and the worker's, so they can be made again.

A stream can't be entered in the middle: after a resume the batches before the position are made once more and dropped.
Which sample lands in which batch depends on the number of workers, so that has to stay.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from kaggle_orchestrator.runtime.training.batches import Place, one_thread
from kaggle_orchestrator.runtime.training.rng import derive, isolated


class StreamMaker(IterableDataset[Any]):
    """A data set for torch's DataLoader whose items are whole batches, made with the batch's own random numbers.

    Attributes:
        dataset: The user's.
        pass_: The pass that begins next.
    """

    def __init__(
        self, dataset: Any, size: int | None, drop_last: bool, collate: Callable[[Any], Any], place: Place
    ) -> None:
        self.dataset = dataset
        self.pass_ = 0
        self._size = size
        self._drop_last = drop_last
        self._collate = collate
        self._place = place

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, place = (0 if info is None else info.id), self._place
        with isolated(derive("stream", place.seed, place.loader, self.pass_, worker, place.rank)):
            items = iter(self.dataset)
        number = 0
        while True:
            seed = derive("batch", place.seed, place.loader, self.pass_, worker, number, place.rank)
            with isolated(seed), one_thread():
                samples = list(islice(items, self._size or 1))
                if not samples or (self._drop_last and len(samples) < (self._size or 1)):
                    return
                batch = self._collate(samples if self._size else samples[0])
            yield batch
            number += 1


class Stream:
    """The batches that are left of a stream: the next is made to see whether there is one, since nothing else tells."""

    def __init__(self, made: Iterator[Any]) -> None:
        self._made, self._ahead, self._taken = made, list[Any](), 0

    @property
    def left(self) -> int:
        """1, or 0 at its end."""
        self._ahead = self._ahead or list(islice(self._made, 1))
        return len(self._ahead)

    def take(self) -> Any:
        """The next batch."""
        self._taken += 1
        return self._ahead.pop()

    def taken(self) -> object:
        """The number of the last batch taken."""
        return self._taken - 1
