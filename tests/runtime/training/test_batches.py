"""Batches don't depend on the process that makes them, nor on what was drawn before."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.runtime.training.batches import Place
from kaggle_orchestrator.runtime.training.loader import Loader
from kaggle_orchestrator.runtime.training.rng import derive

PLACE = Place(seed=1, loader=0, rank=0)


class Gate:
    """A training that never saves."""

    def between_batches(self, loader: Loader, left: int) -> None: ...

    def given(self, loader: Loader, pass_: int, taken: Callable[[], object], batch: object) -> None:
        pass

    def arrived(self, loader: Loader) -> None: ...


class Numbers(Dataset[Any]):
    """Each sample: its index, a random number of Python and one of torch, and a sum that threads would change."""

    def __init__(self, count: int = 11) -> None:
        self.count = count
        self.noise = torch.randn(300_000, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, random.random(), torch.rand(1).item(), (self.noise * (index + 1)).sum().item()


def collate(samples: list[Any]) -> tuple[list[Any], float]:
    """Draws a random number too."""
    return list(samples), torch.rand(1).item()


def make(data: Any = None, place: Place = PLACE, **options: Any) -> Loader:
    options = {"batch_size": 4, "collate_fn": collate, **options} if not isinstance(data, DataLoader) else options
    return Loader(data if data is not None else Numbers(), place, Gate(), options)


def ids(batches: Any) -> list[list[int]]:
    return [[sample[0] for sample in batch[0]] for batch in batches]


def test_workers_threads_and_earlier_draws_change_nothing() -> None:
    torch.set_num_threads(2)
    try:
        expected = list(make())
    finally:
        torch.set_num_threads(1)
    random.seed(99)
    torch.manual_seed(99)
    for workers, persistent in ((0, False), (1, False), (2, False), (2, True)):
        assert list(make(num_workers=workers, persistent_workers=persistent)) == expected


def test_making_a_batch_draws_nothing_from_the_training() -> None:
    for workers in (0, 2):
        random.seed(5)
        torch.manual_seed(5)
        before = random.getstate(), torch.get_rng_state().tolist()
        list(make(num_workers=workers))
        assert (random.getstate(), torch.get_rng_state().tolist()) == before


def test_the_order_is_the_documented_permutation() -> None:
    loader = make()
    for number in range(3):
        generator = torch.Generator().manual_seed(derive("order", 1, 0, number))
        order = torch.randperm(11, generator=generator).tolist()
        assert ids(loader) == [order[:4], order[4:8], order[8:]]


def test_passes_loaders_seeds_and_ranks_differ_as_they_should() -> None:
    first = list(make())
    assert list(make(place=Place(2, 0, 0))) != first
    assert list(make(place=Place(1, 1, 0))) != first
    other_rank = list(make(place=Place(1, 0, 1)))
    assert ids(other_rank) == ids(first)
    assert other_rank != first


def test_options() -> None:
    assert ids(make(shuffle=False)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert ids(make(shuffle=False, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(make()) == 3
    assert len(make(drop_last=True)) == 2
    assert make().dataset.count == 11


def test_an_existing_loader_keeps_its_sampler_and_gets_exact() -> None:
    def samplers() -> Iterator[Loader]:
        for generator in (None, torch.Generator()):
            torch.manual_seed(random.randrange(2**32))
            yield make(DataLoader(Numbers(), 4, shuffle=True, generator=generator, collate_fn=collate))
        sampler = RandomSampler(Numbers(), replacement=True, num_samples=11)
        yield make(DataLoader(Numbers(), batch_sampler=BatchSampler(sampler, 4, False), collate_fn=collate))

    once, again = [list(loader) + list(loader) for loader in samplers()], [list(x) + list(x) for x in samplers()]
    assert once == again
    for batches in once:
        assert ids(batches[:3]) != ids(batches[3:])
    in_order = make(DataLoader(Numbers(), 4, collate_fn=collate))
    assert ids(in_order) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_an_existing_loader_without_batching() -> None:
    loader = make(DataLoader(Numbers(3), batch_size=None, shuffle=False))
    assert [sample[0] for sample in loader] == [0, 1, 2]


def test_set_epoch_is_told_the_pass() -> None:
    class Sampler(list[int]):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    sampler = Sampler(range(11))
    loader = make(DataLoader(Numbers(), 4, sampler=sampler, collate_fn=collate))
    list(loader)
    list(loader)
    assert sampler.epoch == 1


class Many(Numbers):
    """Fetches a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(index, "at once", random.random(), 0) for index in indices]


def test_a_data_set_that_fetches_many_at_once() -> None:
    batch = next(iter(make(Many())))
    assert [sample[1] for sample in batch[0]] == ["at once"] * 4
    assert list(make(Many())) == list(make(Many(), num_workers=1))


def note_data_set(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.count = -worker  # type: ignore[attr-defined]


class Noting(Numbers):
    def __getitem__(self, index: int) -> Any:
        return index, self.count, 0, 0


def test_a_worker_init_function_sees_the_users_data_set() -> None:
    batches = list(make(Noting(), num_workers=2, worker_init_fn=note_data_set))
    assert {sample[1] for batch in batches for sample in batch[0]} == {0, -1}


def test_position_and_break() -> None:
    loader = make(shuffle=False)
    assert loader.position == 0
    positions = [loader.position for _ in loader]
    assert positions == [1, 2, 3]
    for _ in loader:
        break
    assert loader.position == 0
    stream = loader.endless()
    assert [ids([next(stream)])[0][0] for _ in range(7)] == [0, 4, 8, 0, 4, 8, 0]


def test_a_newer_pass_ends_an_older_one() -> None:
    loader = make()
    old = iter(loader)
    next(old)
    assert len(list(loader)) == 3
    with pytest.raises(KgoError, match=r"ended by .* a newer one"):
        next(old)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Endless:
    def __iter__(self) -> Iterator[int]:
        return iter(int, 1)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (Stream(), {"batch_size": 0}, "how many samples make a batch"),
        (Stream(), {"batch_size": 2, "shuffle": True}, "makes its own order"),
        (DataLoader(Stream()), {"batch_size": 2}, "has it already"),
        (DataLoader(Stream(), num_workers=1, persistent_workers=True), {}, "persistent_workers doesn't go with"),
        (iter([1]), {}, "a list_iterator is no data set"),
        (DataLoader(Numbers(), sampler=Endless()), {}, "has no length"),
        (Numbers(), {"batch_size": None}, "batch_size=None"),
        (Numbers(), {"batch_size": 0}, "batch_size=0"),
        (Numbers(), {"batch_size": True}, "batch_size=True"),
        (Numbers(), {"sampler": [1]}, r"run.loader\(sampler=…\): make a DataLoader"),
        (Numbers(), {"generator": None}, "kgo seeds the order itself"),
        (Numbers(), {"worker": 2}, "worker"),
        (DataLoader(Numbers()), {"batch_size": 3}, "batch_size: the DataLoader has it already"),
    ],
)
def test_wrong_uses_are_named(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(KgoError, match=message):
        make(data, **options)


def test_an_empty_pass_is_named() -> None:
    with pytest.raises(KgoError, match="no batch to give out"):
        list(make(Numbers(3), drop_last=True))
