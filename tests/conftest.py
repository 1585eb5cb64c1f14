"""One real local Kaggle for all tests that need nothing of it but that it runs, each with kernels of its own."""

from collections.abc import Iterator

import pytest

from kaggle_orchestrator.localkaggle import background
from kaggle_orchestrator.localkaggle.address import LocalServer


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """Started once for each pytest process."""
    home = tmp_path_factory.mktemp("home")
    yield background.ensure(home, idle_s=1800)  # others may take their time between two tests that need it
    background.stop(home)
