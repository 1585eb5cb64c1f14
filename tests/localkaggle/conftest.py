"""Accounts and knobs on the shared server, and servers of a test's own."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.world import World
from tests.localkaggle.client import Client


@pytest.fixture(scope="session")
def server(local: LocalServer) -> LocalServer:
    """The shared one."""
    return local


@pytest.fixture
def client(server: LocalServer) -> Client:
    """An account of its own for each test, so that caps and names don't meet."""
    return Client(server.url, f"kgo-local-user-{uuid4().hex[:8]}")


@pytest.fixture
def turn(server: LocalServer) -> Iterator[Callable[..., None]]:
    """Turns knobs of the shared server, and back afterwards."""
    before = admin.set_knobs(server.url, {})

    def turn_(**knobs: object) -> None:
        admin.set_knobs(server.url, knobs)

    yield turn_
    admin.set_knobs(server.url, before)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[[], LocalServer]]:
    """Starts (or finds) a server of the test's own, over and over on the same folder."""
    home = tmp_path / "home"
    yield lambda: background.ensure(home)
    background.stop(home)


@pytest.fixture(scope="session")
def unboxed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A server that runs sessions through variables, as where namespaces aren't allowed."""
    home = tmp_path_factory.mktemp("unboxed")
    world = World(background.root_of(home))
    world.set_fact("knobs", {"box": "off"})
    world.close()
    server = background.ensure(home, idle_s=1800)
    health = admin.health(server.url)
    assert (health["box"], health["box_reason"]) == (False, "turned off by a knob")
    yield server
    background.stop(home)


@pytest.fixture
def full_box(server: LocalServer) -> None:
    """Skips where namespaces aren't allowed, but not where that would hide a broken box."""
    health = admin.health(server.url)
    if not health["box"]:
        if os.environ.get("KGO_REQUIRE_BOX"):
            pytest.fail(health["box_reason"])
        pytest.skip(f"sessions have no box here: {health['box_reason']}")
