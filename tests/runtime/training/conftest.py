"""One warm parent for all tests here, which run in one worker; and trainings inside the test's own process."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kaggle_orchestrator.runtime.training import Run
from kaggle_orchestrator.runtime.training.settings import Settings
from tests.runtime.training.legs import Chain, Zygote

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Importing torch takes seconds: once is enough."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("training"))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Forks training processes."""
    parent = Zygote()
    yield parent
    parent.close()


@pytest.fixture
def chain(zygote: Zygote, tmp_path: Path) -> Callable[..., Chain]:
    """Makes a chain of a training: ``chain("epochs", workers=2)``."""

    def make(training: str, *, name: str = "chain", **options: Any) -> Chain:
        return Chain(zygote, f"tests.runtime.training.trainings:{training}", tmp_path / name, options=options)

    return make


@pytest.fixture
def straight(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of an uninterrupted training; each is trained once."""

    def find(training: str, **options: Any) -> Path:
        key = "-".join([training, *(f"{k}={v}" for k, v in options.items())])
        folder = tmp_path_factory.getbasetemp() / "straight" / key
        if not folder.exists():
            ended = zygote.run(f"tests.runtime.training.trainings:{training}", folder, **options)
            assert ended.code == 0, ended.log
        return folder

    return find


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Makes a Run of this process that works in ``tmp_path``: ``with started() as run:``."""
    for name in [n for n in os.environ if n.startswith("KGO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)

    def make(seed: int = 0, **settings: Any) -> Run:
        return Run(Settings(working=tmp_path, **settings), seed)

    return make
