"""One real local Kaggle for all tests of this folder, and a real client on it."""

import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaggle_orchestrator.chain import Journal
from kaggle_orchestrator.client import Kaggle, Policy, connect
from kaggle_orchestrator.localkaggle import background
from kaggle_orchestrator.localkaggle.address import LocalServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    home = tmp_path_factory.mktemp("home")
    yield background.ensure(home)
    background.stop(home)


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without torch: sessions of the toy start in no time, and need nothing but the bundle."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def kaggle(server: LocalServer) -> Iterator[Kaggle]:
    # One try a read: the faults that tests script are for the chain to bear, not for the client to hide.
    with connect(server.url, environ={}, policy=Policy(attempts=1)) as kaggle:
        yield kaggle


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.of(tmp_path / "exp") as journal:
        yield journal
