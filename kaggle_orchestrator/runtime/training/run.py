"""``kgo.start`` and the ``Run`` it returns: the whole of what training code sees; wrong uses are refused by name."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import torch

from kaggle_orchestrator.protocol import KgoError
from kaggle_orchestrator.runtime.training.batches import Place
from kaggle_orchestrator.runtime.training.course import Loop
from kaggle_orchestrator.runtime.training.digest import tensor_bytes
from kaggle_orchestrator.runtime.training.disk import write_error
from kaggle_orchestrator.runtime.training.driver import Driver
from kaggle_orchestrator.runtime.training.environment import be_deterministic
from kaggle_orchestrator.runtime.training.loader import Loader
from kaggle_orchestrator.runtime.training.metrics import OWN_KEYS, number
from kaggle_orchestrator.runtime.training.mounts import find_mount
from kaggle_orchestrator.runtime.training.say import say
from kaggle_orchestrator.runtime.training.settings import Settings

_MODEL = "model"


def start(seed: int = 0) -> "Run":
    """Begin a training, or go on with it: ``with kgo.start(seed=0) as run:``.

    Entering the block seeds Python, NumPy (if it is loaded) and torch, so what is built inside it starts the same
    each time.

    Args:
        seed: From 0. Order, augmentation and every random number of the training follow from it.

    Raises:
        KgoError: The seed or a session variable can't be used.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise KgoError(f"kgo.start(seed={seed!r}): the seed is a whole number from 0")
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return Run(Settings.read(os.environ, Path.cwd(), None if main is None else Path(main)), seed)
    except KgoError as error:
        say(error.message, error.hint)
        raise


class Run:
    """A training that can be cut at any step and goes on exactly. Made by ``kgo.start``."""

    def __init__(self, settings: Settings, seed: int) -> None:
        if settings.world > 1:
            raise KgoError(
                f"WORLD_SIZE={settings.world}: training by several processes isn't supported yet",
                hint="Start one process.",
            )
        self._settings = settings
        self._seed = seed
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._driver = Driver(settings, seed, self._device)
        self._inside = False

    def __enter__(self) -> Self:
        try:
            if self._settings.deterministic:
                be_deterministic()
            self._driver.enter()
        except KgoError as error:
            say(error.message, error.hint)
            raise
        self._inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False
        self._driver.exit(error)

    @property
    def device(self) -> torch.device:
        """Where to train: the GPU if there is one."""
        return self._device

    @property
    def rank(self) -> int:
        """Number of this process among those that train together; 0 if it is alone."""
        return self._settings.rank

    @property
    def params(self) -> Mapping[str, Any]:
        """``[train] params`` of ``kgo.toml``."""
        return MappingProxyType(dict(self._settings.params))

    @property
    def global_step(self) -> int:
        """Calls of ``step`` over all legs; right after a resume, too."""
        return 0 if self._driver.course is None else self._driver.course.step

    def mount(self, slug: str) -> Path:
        """The folder of a source, wherever Kaggle has mounted it.

        Args:
            slug: ``"digits"`` or ``"owner/digits"``.

        Raises:
            KgoError: It isn't there.
        """
        return find_mount(slug, self._settings.kaggle_root, self._settings.local_sources)

    def track(self, **objects: object) -> None:
        """Make objects part of every checkpoint: ``run.track(model=model, optimizer=optimizer)``.

        Anything with ``state_dict`` and ``load_state_dict`` will do. All of it before the loop, which restores it.

        Raises:
            KgoError: It is too late, an object has no state, or a name or an object comes twice.
        """
        self._before_loop(f"run.track({', '.join(f'{name}=…' for name in objects)})")
        self._driver.keeper.tracked.add(objects)

    def loader(self, data: Any, batch_size: int | None = None, **options: Any) -> Loader:
        """Batches of a data set, in an order and with an augmentation that don't depend on how training is cut.

        Args:
            data: A map-style data set; or a DataLoader, whose sampler, workers and collate function are kept.
            batch_size: Samples in a batch; for a data set.
            **options: For a data set: ``shuffle`` (default True), ``drop_last``, ``collate_fn``, ``num_workers``,
                ``pin_memory``, ``persistent_workers`` and what else DataLoader takes.

        Raises:
            KgoError: It is too late, the data can't be entered in the middle, or an option doesn't fit.
        """
        self._before_loop("run.loader()")
        if batch_size is not None:
            options["batch_size"] = batch_size
        loaders = self._driver.keeper.loaders
        loader = Loader(data, Place(self._seed, len(loaders), self._settings.rank), self._driver, options)
        loaders.append(loader)
        return loader

    def epochs(self, total: int) -> Iterator[int]:
        """Loop over epochs ``0 … total - 1``: restores first, then goes on where the last leg left.

        After a cut in mid-epoch the body of that epoch runs again from its top, and its loader goes on.

        Raises:
            KgoError: The state can't be restored into this training.
        """
        return self._loop(Loop.EPOCHS, total)

    def steps(self, total: int) -> Iterator[int]:
        """Loop over steps ``0 … total - 1``, with one ``step`` call in each; otherwise like ``epochs``.

        Raises:
            KgoError: The state can't be restored into this training.
        """
        return self._loop(Loop.STEPS, total)

    def step(self, **metrics: object) -> None:
        """A step is done: ``run.step(loss=loss)``, once for each optimizer step.

        Counts it, writes the metrics, tells the supervisor that training is alive. When the loop then asks for its
        next batch, epoch or step, a save that is due is made; at the deadline training saves and leaves there.

        Args:
            **metrics: Numbers, or tensors of one element. They are read now and then rather than at every step, so
                that a GPU isn't kept waiting.

        Raises:
            KgoError: Outside the loop, or a metric isn't a number.
        """
        if not OWN_KEYS.isdisjoint(metrics):
            raise KgoError(f"run.step(): kgo itself writes {', '.join(sorted(OWN_KEYS & metrics.keys()))}")
        self._driver.step(metrics)

    def best(self, *, mode: str, **metric: object) -> bool:
        """Keep the weights of the tracked ``model`` in ``best/`` if the metric is better than ever before.

        ``run.best(val_accuracy=evaluate(model), mode="max")``. The value also goes into the metrics.

        Args:
            mode: ``"max"`` or ``"min"``: which values are good.
            **metric: Exactly one.

        Returns:
            Whether it is the best so far.

        Raises:
            KgoError: Before the loop, another metric than before, or the weights can't be written.
        """
        keeper, course = self._driver.keeper, self._driver.course
        if course is None:
            raise KgoError("run.best() belongs inside the loop over run.epochs() or run.steps(), or after it")
        if len(metric) != 1 or not OWN_KEYS.isdisjoint(metric):
            raise KgoError(f"run.best() takes one metric, like val_accuracy=0.9; got {', '.join(metric) or 'none'}")
        if _MODEL not in keeper.tracked:
            raise KgoError("run.best() keeps the weights of what is tracked as 'model'; nothing is")
        name, given = next(iter(metric.items()))
        value = number(name, given)
        better = keeper.best.offer(name, value, mode)
        if better:
            state = keeper.tracked.state(_MODEL)
            weights = {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
            try:
                keeper.best.write(name, value, mode, course.step, course.current_epoch, weights)
            except (OSError, RuntimeError) as error:
                saved = [] if keeper.saved_step is None else [keeper.saved_step]
                raise write_error(self._settings.working, tensor_bytes(weights), error, saved) from error
        self._driver.write_metrics(course, {name: value})
        return better

    def _loop(self, loop: Loop, total: int) -> Iterator[int]:
        self._before_loop(f"run.{loop}()")
        if isinstance(total, bool) or not isinstance(total, int) or total < 1:
            raise KgoError(f"run.{loop}({total!r}): how many {loop}?")
        return self._driver.begin(loop, total)

    def _before_loop(self, what: str) -> None:
        if not self._inside:
            raise KgoError(f"{what} works inside the block of `with kgo.start(…) as run:` only")
        if self._driver.course is not None:
            raise KgoError(
                f"{what} comes too late: the loop has begun, and the state is restored",
                hint="Track objects and make loaders before it; there is one loop per training.",
            )
