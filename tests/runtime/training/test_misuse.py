"""Wrong uses of the library end with an error that says what is wrong, and never with a training that isn't exact."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kaggle_orchestrator as kgo
from kaggle_orchestrator.protocol import KgoError, Progress, ProgressState
from kaggle_orchestrator.runtime.training import Run
from tests.runtime.training.trainings import Noisy

Started = Callable[..., Run]


def refused(message: str) -> AbstractContextManager[pytest.ExceptionInfo[KgoError]]:
    """An error of ours with that message."""
    return pytest.raises(KgoError, match=message)


def leaves() -> AbstractContextManager[pytest.ExceptionInfo[SystemExit]]:
    """The training saves and leaves."""
    return pytest.raises(SystemExit)


def train(run: Run, total: int = 1, batch_size: int = 7, **more: Any) -> None:
    """The smallest whole training."""
    model = nn.Linear(6, 3)
    run.track(model=model, **more)
    loader = run.loader(Noisy(), batch_size=batch_size)
    for _ in run.epochs(total):
        for _ in loader:
            run.step()


@pytest.mark.parametrize("seed", [-1, 1.5, "0", True, None, 2**63])
def test_seed(seed: Any) -> None:
    with refused("the seed is a whole number from 0"):
        kgo.start(seed=seed)


def test_outside_the_block(started: Started) -> None:
    run = started()
    for call in (lambda: run.track(model=nn.Linear(1, 1)), lambda: run.loader([1], 1), lambda: run.epochs(1)):
        with refused("inside the block of `with kgo.start"):
            call()
    with run:
        train(run)
    with refused("inside the block"):
        run.steps(3)


def test_too_late(started: Started) -> None:
    with started() as run:
        train(run)
        with refused(r"run.track\(ema=…\) comes too late"):
            run.track(ema=nn.Linear(1, 1))
        with refused(r"run.loader\(\) comes too late"):
            run.loader(Noisy(), batch_size=1)
        with refused(r"run.epochs\(\) comes too late: .* loop has begun"):
            run.epochs(2)


class OnlyHalf:
    def state_dict(self) -> dict[str, int]:
        return {}


def test_track(started: Started) -> None:
    with refused("the block ended without a loop"), started() as run:
        model = nn.Linear(1, 1)
        for objects, message in (
            ({"rate": 0.1}, r"run.track\(rate=…\): a float has no state to keep"),
            ({"half": OnlyHalf()}, "a OnlyHalf has no state"),
            ({"net": nn.Linear}, "the class Linear has no state"),
            ({"rng": model}, "the name 'rng' is kgo's own"),
        ):
            with refused(message):
                run.track(**objects)
        run.track(model=model)
        with refused("'model' is tracked already"):
            run.track(model=nn.Linear(1, 1))
        with refused("that object is tracked already, as 'model'"):
            run.track(again=nn.DataParallel(model))


def test_a_name_that_is_a_path_is_harmless(started: Started, tmp_path: Path) -> None:
    with started() as run:
        with refused("isn't a name"):
            run.track(**{"../model": nn.Linear(1, 1)})
        train(run)


@pytest.mark.parametrize("total", [0, -1, 2.0, "3", True])
def test_how_many(started: Started, total: Any) -> None:
    with started() as run:
        for loop in (run.epochs, run.steps):
            with refused("how many"):
                loop(total)
        train(run)


def test_step_outside_the_loop(started: Started) -> None:
    with started() as run:
        with refused("belongs inside the loop"):
            run.step(loss=1.0)
        train(run)
        with refused("belongs inside the loop"):
            run.step()


def test_an_iterator_from_before_the_loop(started: Started) -> None:
    """It would go on alike in each leg: refused in the first one already. A look at the data is fine."""
    with refused("was ended by the beginning of the loop"), started() as run:
        loader = run.loader(Noisy(), batch_size=7)
        next(iter(loader))
        batches = iter(loader)
        next(batches)
        for _ in run.steps(3):
            next(batches)
            run.step()


def test_an_epoch_without_a_step(started: Started) -> None:
    with refused(r"an epoch ended without run.step\(\)"), started() as run:
        for _ in run.epochs(3):
            pass


def test_a_step_without_a_step(started: Started) -> None:
    with refused(r"a step ended without run.step\(\)"), started() as run:
        for _ in run.steps(3):
            pass


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"loss": torch.zeros(2)}, "metric 'loss' isn't one number"),
        ({"loss": "0.1"}, "metric 'loss' is a str, not a number"),
        ({"ok": True}, "metric 'ok' is a bool"),
        ({"step": 3}, "kgo itself writes step"),
    ],
)
def test_metrics(started: Started, metrics: dict[str, Any], message: str) -> None:
    with refused(message), started() as run:
        for _ in run.steps(1):
            run.step(**metrics)


def test_best(started: Started) -> None:
    with started() as run:
        with refused("belongs inside the loop"):
            run.best(accuracy=1.0, mode="max")
        train(run)
        assert run.best(accuracy=0.5, mode="max")
        assert not run.best(accuracy=0.5, mode="max")
        for metric, mode, message in (
            ({"accuracy": 1.0}, "maximum", "mode is 'max' or 'min'"),
            ({"accuracy": 1.0}, "min", "the best is kept for accuracy, max"),
            ({"loss": 1.0}, "max", "the best is kept for accuracy, max"),
            ({}, "max", "takes one metric"),
            ({"a": 1.0, "b": 2.0}, "max", "takes one metric"),
        ):
            with refused(message):
                run.best(mode=mode, **metric)


def test_best_without_a_model(started: Started) -> None:
    with started() as run:
        for _ in run.steps(1):
            run.step()
        with refused("tracked as 'model'; nothing is"):
            run.best(accuracy=1.0, mode="max")


class TestAnotherTraining:
    """A checkpoint is there, and the code isn't the one that made it."""

    @pytest.fixture(autouse=True)
    def trained(self, started: Started) -> None:
        with started() as run:
            train(run)

    def test_a_forgotten_object(self, started: Started) -> None:
        with (
            refused("'model' is in the checkpoint but isn't tracked; 'net' is tracked but isn't"),
            started() as run,
        ):
            run.track(net=nn.Linear(6, 3))
            run.loader(Noisy(), batch_size=7)
            run.epochs(2)

    def test_one_object_more(self, started: Started) -> None:
        with refused("^'ema' is tracked but isn't in the checkpoint$"), started() as run:
            train(run, ema=nn.Linear(1, 1))

    def test_another_shape(self, started: Started) -> None:
        with refused("^model: the checkpoint's state doesn't fit"), started() as run:
            run.track(model=nn.Linear(6, 4))
            run.loader(Noisy(), batch_size=7)
            run.epochs(2)

    def test_another_seed(self, started: Started) -> None:
        with refused("seed=1.*, but the checkpoint was trained with seed=0"), started(seed=1):
            pass

    def test_another_loop(self, started: Started) -> None:
        with refused(r"loops over run.steps\(\), the checkpoint's over run.epochs\(\)"), started() as run:
            run.track(model=nn.Linear(6, 3))
            run.loader(Noisy(), batch_size=7)
            run.steps(9)

    def test_another_number_of_loaders(self, started: Started) -> None:
        with refused("0 loaders are made here, 1 were in the checkpoint"), started() as run:
            run.track(model=nn.Linear(6, 3))
            run.epochs(2)

    def test_another_batch_size_between_epochs(self, started: Started, capsys: pytest.CaptureFixture[str]) -> None:
        with started() as run:
            train(run, total=2, batch_size=3)
        assert (
            "loader 0 has 7 batches a pass, it had 3 batches a pass: the training won't be exact"
            in capsys.readouterr().out
        )

    @pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile])
    def test_a_model_behind_a_wrapper_is_the_same_model(self, started: Started, wrap: Any) -> None:
        with started() as run:
            run.track(model=wrap(nn.Linear(6, 3)))
            loader = run.loader(Noisy(), batch_size=7)
            for _ in run.epochs(2):
                for _ in loader:
                    run.step()


def test_another_batch_size_in_mid_epoch(started: Started, tmp_path: Path) -> None:
    control = tmp_path / "control"
    control.mkdir()
    (control / "stop").touch()
    with leaves(), started(control=control) as run:
        train(run)
    with (
        refused("7 batches a pass, it had 3 batches a pass, and the checkpoint is in the midst of a pass"),
        started() as run,
    ):
        train(run, batch_size=3)


def test_an_epoch_that_no_longer_iterates_over_the_loader(started: Started, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    with leaves(), started(control=tmp_path) as run:
        train(run)
    with refused("which this epoch didn't iterate over"), started() as run:
        run.track(model=nn.Linear(6, 3))
        run.loader(Noisy(), batch_size=7)
        for _ in run.epochs(1):
            pass


def test_code_that_swallows_the_exit_does_not_train_on(started: Started, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    with leaves() as caught, started(control=tmp_path) as run:
        run.track(model=nn.Linear(6, 3))
        loader = run.loader(Noisy(), batch_size=7)
        for _ in run.epochs(5):
            for _ in range(3):
                with suppress(BaseException):
                    for _ in loader:
                        run.step()
                with suppress(BaseException):
                    run.step()
    assert caught.value.code == 0
    progress = Progress.read(tmp_path)
    assert progress is not None
    assert (progress.state, progress.step) == (ProgressState.LEFT, 1)


def test_an_error_of_the_training_is_not_done(started: Started, tmp_path: Path) -> None:
    for error, state in ((ValueError(), "running"), (SystemExit(3), "running"), (SystemExit(0), "running")):
        raised = pytest.raises(type(error))
        with raised, started(control=tmp_path) as run:
            for _ in run.steps(5):
                run.step()
                raise error
        progress = Progress.read(tmp_path)
        assert progress is not None
        assert progress.state == state


def test_a_break_is_a_decision_of_the_training(started: Started, tmp_path: Path) -> None:
    """Early stopping: done, and a chain must not go on."""
    with started(control=tmp_path) as run:
        for _ in run.steps(5):
            run.step()
            break
    progress = Progress.read(tmp_path)
    assert progress is not None
    assert (progress.state, progress.step) == (ProgressState.DONE, 1)


def test_several_processes_are_refused_by_name(started: Started) -> None:
    with refused("WORLD_SIZE=2: training by several processes isn't supported yet"):
        started(world=2)


def test_a_loop_that_kgo_cannot_enter_is_saved_between_epochs_only(started: Started, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    with leaves(), started(control=tmp_path, save_every_s=0.0) as run:
        for _ in run.epochs(3):
            for _ in range(4):
                run.step()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000004"]


def test_params_are_read_only(started: Started) -> None:
    run = started(params={"lr": 0.1})
    assert run.params["lr"] == 0.1
    with pytest.raises(TypeError):
        run.params["lr"] = 0.2  # type: ignore[index]


def test_without_a_gpu_it_is_the_cpu(started: Started) -> None:
    run = started()
    assert run.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert (run.rank, run.global_step) == (0, 0)
    assert "KGO_DEADLINE" not in os.environ
