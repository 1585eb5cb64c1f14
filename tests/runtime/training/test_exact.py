"""A training that is cut ends bit for bit where an uninterrupted one does, wherever and however often it is cut."""

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kaggle_orchestrator.protocol import ProgressState, Variable
from tests.runtime.training.legs import Chain, assert_same

MakeChain = Callable[..., Chain]
FindStraight = Callable[..., Path]

TRAININGS = [
    pytest.param("epochs", {}, 15, id="epochs"),
    pytest.param("epochs", {"existing": "random"}, 15, id="dataloader"),
    pytest.param("epochs", {"existing": "weighted"}, 15, id="weighted-sampler"),
    pytest.param("phases", {}, 24, id="several-loaders"),
    pytest.param("zipped", {}, 6, id="zip-and-accumulation"),
    pytest.param("scaled", {}, 6, id="scaler-and-accumulation"),
    pytest.param("steps", {}, 14, id="steps"),
    pytest.param("steps", {"by_hand": True}, 14, id="steps-by-hand"),
]


def stop_three_times(chain: Chain, first: int) -> None:
    """Stop at a step, two later, one later, then train to the end."""
    for step in (first, first + 2, first + 3):
        ended = chain.leg(stop_at=step)
        assert ended.code == 0, ended.log
        assert chain.progress.state in (ProgressState.LEFT, ProgressState.DONE)
    ended = chain.leg()
    assert ended.code == 0, ended.log
    assert chain.progress.state is ProgressState.DONE


@pytest.mark.parametrize(("training", "options", "steps"), TRAININGS)
@pytest.mark.parametrize("workers", [0, 2])
def test_stopped_at_some_steps(
    chain: MakeChain, straight: FindStraight, training: str, options: dict[str, object], steps: int, workers: int
) -> None:
    expected = straight(training, **options)
    for first in (1, 6) if workers == 0 else (steps // 2,):
        chained = chain(training, name=str(first), workers=workers, **options)
        stop_three_times(chained, first)
        assert_same(expected, *chained.legs)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("training", "options", "steps"), TRAININGS)
@pytest.mark.parametrize("workers", [0, 2])
def test_stopped_at_every_step(
    chain: MakeChain, straight: FindStraight, training: str, options: dict[str, object], steps: int, workers: int
) -> None:
    expected = straight(training, **options)
    for first in range(1, steps + 1):
        chained = chain(training, name=str(first), workers=workers, **options)
        stop_three_times(chained, first)
        assert_same(expected, *chained.legs)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("training", "options", "steps"), TRAININGS)
def test_cut_in_all_ways_at_random(
    chain: MakeChain, straight: FindStraight, training: str, options: dict[str, object], steps: int
) -> None:
    chance, expected = random.Random(11), straight(training, **options)
    for round_ in range(12):
        chained = chain(training, name=str(round_), **options)
        for _ in range(chance.randrange(1, 8)):
            way = chance.choice(["stop", "kill", "deadline"])
            environ = {Variable.SAVE_EVERY: "0"} if chance.random() < 0.5 else {}
            if way == "deadline":
                environ[Variable.DEADLINE] = "1"
            at = chance.randrange(1, steps + 1)
            cut = {} if way == "deadline" else {f"{way}_at": at}
            ended = chained.leg(environ=environ, workers=chance.choice([0, 0, 1, 2]), **cut)
            assert ended.code in (0, -signal.SIGKILL), ended.log
        assert chained.leg().code == 0
        assert_same(expected, *chained.legs)


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_stopped_at_some_steps(chain: MakeChain, straight: FindStraight, workers: int, existing: bool) -> None:
    expected = straight("stream", workers=workers, existing=existing)
    for first in (1, 4) if workers == 0 else (6,):
        chained = chain("stream", name=str(first), workers=workers, existing=existing)
        stop_three_times(chained, first)
        assert_same(expected, *chained.legs)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("way", ["stop_at", "kill_at"])
def test_a_stream_cut_at_every_step(chain: MakeChain, straight: FindStraight, workers: int, way: str) -> None:
    expected = straight("stream", workers=workers)
    for first in range(1, 15):
        chained = chain("stream", name=str(first), workers=workers)
        for step in (first, first + 1, None):
            chained.leg(**{way: step}, environ={Variable.SAVE_EVERY: "0"})
        assert_same(expected, *chained.legs)


def test_the_order_of_a_stream_depends_on_its_workers(chain: MakeChain) -> None:
    chained = chain("stream")
    assert chained.leg(stop_at=2).code == 0
    ended = chained.leg(workers=2)
    assert ended.code == 1
    assert "loader 0 has a stream of 2 workers, it had a stream of 0 workers" in ended.log
    assert "in the midst of a pass" in ended.log


def test_a_stream_that_has_become_shorter(chain: MakeChain) -> None:
    chained = chain("stream")
    assert chained.leg(stop_at=4).code == 0
    ended = chained.leg(samples=8)
    assert ended.code == 1
    assert "the data set ends after 2 batches; the checkpoint lies behind 4" in ended.log


@pytest.mark.parametrize(("training", "total", "legs"), [("epochs", 2, 10), ("steps", 7, 7)])
def test_a_leg_for_every_step(chain: MakeChain, straight: FindStraight, training: str, total: int, legs: int) -> None:
    """With a deadline that has passed, each leg trains one step and leaves, also behind the last batch of a pass,
    where the next leg finds no batch left and goes on with the evaluation."""
    chained = chain(training, total=total)
    while not chained.legs or chained.progress.state is not ProgressState.DONE:
        ended = chained.leg(environ={Variable.DEADLINE: "1"})
        assert ended.code == 0, ended.log
        assert len(chained.legs) <= legs + 1
    assert len(chained.legs) >= legs
    assert_same(straight(training, total=total), *chained.legs)


def test_the_number_of_workers_may_change_between_legs(chain: MakeChain, straight: FindStraight) -> None:
    chained = chain("epochs")
    for stop, workers in ((2, 0), (4, 2), (9, 1), (None, 0)):
        assert chained.leg(stop_at=stop, workers=workers).code == 0
    assert chained.progress.state is ProgressState.DONE
    assert_same(straight("epochs"), *chained.legs)


def test_workers_change_nothing_without_a_cut_either(straight: FindStraight) -> None:
    assert_same(straight("epochs"), straight("epochs", workers=2))


def test_another_seed_trains_something_else(straight: FindStraight) -> None:
    """The comparison above would notice."""
    with pytest.raises(AssertionError):
        assert_same(straight("epochs"), straight("epochs", existing="random"))


def test_a_higher_target_goes_on_from_the_end(chain: MakeChain, straight: FindStraight) -> None:
    chained = chain("epochs")
    for total in (1, 2, 3):
        ended = chained.leg(total=total)
        assert ended.code == 0, ended.log
        assert chained.progress.state is ProgressState.DONE
        assert (chained.progress.step, chained.progress.target_step) == (5 * total, 5 * total)
    assert_same(straight("epochs"), *chained.legs)


def test_threads_are_those_of_the_first_leg(chain: MakeChain, straight: FindStraight) -> None:
    chained = chain("epochs")
    assert chained.leg(stop_at=4).code == 0
    ended = chained.leg(threads=3)
    assert "3 threads here, 1 in the checkpoint: computing with 1" in ended.log
    assert_same(straight("epochs"), *chained.legs)
