"""The world's file: a change that doesn't fit changes nothing, and the next one works."""

import sqlite3
from pathlib import Path

import pytest

from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.localkaggle.worldclock import WorldClock
from kaggle_orchestrator.models import KernelRef

REF = KernelRef("me", "some-thing")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def limit(world: World, pages: int) -> None:
    """Let the file grow to so many pages: SQLite then answers as on a full disk."""
    world._db.execute(f"PRAGMA max_page_count = {pages}")


def used(world: World) -> int:
    return int(world._db.execute("PRAGMA page_count").fetchone()[0])


def test_a_change_on_a_full_disk(world: World) -> None:
    limit(world, used(world) + 2)

    def add(fact: str) -> None:
        with world.change():
            world.add_kernel(REF, "Some Thing", True, 1.0)
            world.set_fact("fact", fact)

    with pytest.raises(sqlite3.OperationalError, match="full"):
        add("x" * 1_000_000)
    assert world.kernel(REF) is None
    limit(world, 1 << 20)
    add("x")
    again = World(world.root)
    assert again.kernel(REF), "it isn't held up in a change that never ends"
    again.close()
    world.close()


def test_a_change_that_fails_at_its_very_end(world: World) -> None:
    reader = sqlite3.connect(world.root / "world.sqlite", isolation_level=None)

    def half() -> None:
        with world.change():
            world._db.execute("PRAGMA defer_foreign_keys = ON")  # what is wrong is told at the commit only
            world.set_fact("half", 1)
            world._db.execute("INSERT INTO versions VALUES (99, 1, '', '{}', 0)")

    with pytest.raises(sqlite3.IntegrityError):
        half()
    assert world.fact("half") is None
    with world.change():
        world.set_fact("whole", 1)
    found = reader.execute("SELECT name FROM facts ORDER BY name").fetchall()
    assert found == [("whole",)]
    reader.close()
    world.close()


def test_a_full_disk_turns_no_clock(world: World) -> None:
    machine = FakeClock(time=1000.0)
    clock = WorldClock(world, machine)
    world._db.execute("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.OperationalError):
        clock.turn(60.0)
    machine.sleep(10)
    assert clock.now() == 1010.0 == WorldClock(world, machine).now()
    world.close()
