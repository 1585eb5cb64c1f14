"""One warm parent for all tests of a worker."""

from collections.abc import Iterator

import pytest

from tests.runtime.training.legs import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Forks training processes."""
    parent = Zygote()
    yield parent
    parent.close()
