"""A scripted server, and clients that never really wait: for it, and for one that is gone."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kaggle_orchestrator.client import Kaggle, Policy, connect
from kaggle_orchestrator.clock import FakeClock
from tests.client.faulty import FaultyServer

QUICK = Policy(connect_s=2.0, read_s=0.25, push_read_s=0.25, total_s=10.0, attempts=3)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def kaggle(server: FaultyServer, clock: FakeClock, tmp_path: Path) -> Iterator[Kaggle]:
    environ = {"HOME": str(tmp_path / "home")}
    with connect(server.url, environ=environ, policy=QUICK, clock=clock, rng=random.Random(0)) as kaggle:
        yield kaggle


class TickingClock(FakeClock):
    """A clock that moves half a second whenever it is asked, so that a trickling answer becomes a late one."""

    def now(self) -> float:
        self.time += 0.5
        return self.time


@pytest.fixture
def ticking(server: FaultyServer, tmp_path: Path) -> Iterator[Kaggle]:
    with connect(server.url, environ={"HOME": str(tmp_path)}, policy=QUICK, clock=TickingClock()) as kaggle:
        yield kaggle


@pytest.fixture
def gone() -> str:
    """An address at which nobody answers any more."""
    with FaultyServer() as server:
        return server.url


@pytest.fixture
def nobody(gone: str, clock: FakeClock, tmp_path: Path) -> Iterator[Kaggle]:
    """A client whose server has gone."""
    with connect(gone, environ={"HOME": str(tmp_path)}, policy=QUICK, clock=clock) as kaggle:
        yield kaggle
