"""The world's clock: faster than the machine's where that is wanted, never backwards, one for everything."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.knobs import Knobs
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.localkaggle.worldclock import WorldClock
from tests.localkaggle.client import Client, until
from tests.localkaggle.stage import plain, staged


def test_it_runs_faster_and_never_back(tmp_path: Path) -> None:
    machine, world = FakeClock(time=1000.0), World(tmp_path)
    clock = WorldClock(world, machine)
    assert (clock.now(), clock.factor) == (1000.0, 1.0)
    clock.turn(60.0)
    machine.sleep(10)
    assert clock.now() == 1600.0
    clock.turn(1.0)
    machine.sleep(10)
    assert clock.now() == 1610.0, "what was gained stays"
    clock.turn(3600.0)
    machine.sleep(1)
    again = WorldClock(world, machine)  # another server, a second later
    machine.sleep(1)
    assert again.now() == 1610.0 + 2 * 3600
    clock.sleep(7200)
    assert machine.slept[-1] == 2.0
    world.close()


def test_time_can_not_stand_still() -> None:
    with pytest.raises(UsageError, match="can't stand still"):
        Knobs().changed({"clock_factor": "0"})


def test_hours_in_seconds_without_a_process(tmp_path: Path) -> None:
    with staged(tmp_path, plain(12 * 3600.0, a="x"), knobs={"clock_factor": 3600}) as stage:
        stage.client.push("half-a-day", "pass", machineShape="NvidiaTeslaT4", sessionTimeoutSeconds=43_000)
        stage.later(10)
        assert stage.client.status("half-a-day") == {"status": "RUNNING"}
        stage.later(2)
        assert stage.client.status("half-a-day")["status"] == "CANCEL_ACKNOWLEDGED"
        (session,) = stage.kaggle.sessions()
        assert session.started is not None
        assert session.ended is not None
        assert session.ended - session.started == pytest.approx(43_000)


def test_a_real_session_s_twelve_hours(fresh: Callable[[], LocalServer]) -> None:
    server = fresh()
    admin.set_knobs(server.url, {"clock_factor": 14_400, "output_after_kill": "keep"})
    client = Client(server.url)
    client.push(
        "half-a-day",
        "import os, time\nopen('limit', 'w').write(os.environ['KGO_SESSION_LIMIT_S'])\ntime.sleep(60)\n",
        machineShape="NvidiaTeslaT4",
    )
    until(lambda: client.status("half-a-day")["status"] == "CANCEL_ACKNOWLEDGED")
    assert client.files("half-a-day") == {"limit": b"3"}, "its own clock is real"
    (session,) = admin.sessions(server.url)
    assert session.started is not None
    assert session.ended is not None
    assert 43_200 <= session.ended - session.started < 43_200 + 14_400 * 2
    assert admin.health(server.url)["clock"]["factor"] == 14_400


def test_a_kill_by_script_comes_at_the_world_s_time(fresh: Callable[[], LocalServer]) -> None:
    server = fresh()
    admin.set_knobs(server.url, {"clock_factor": 7200})
    admin.add_faults(server.url, [{"kill_session": {"after_s": 3 * 3600, "as": "error"}}])
    client = Client(server.url)
    client.push("killed-one", "import time; time.sleep(600)")
    until(lambda: client.status("killed-one")["status"] == "ERROR")
    (session,) = admin.sessions(server.url)
    assert session.started is not None
    assert session.ended is not None
    assert 3 * 3600 <= session.ended - session.started < 9 * 3600


def test_a_kill_by_script_comes_at_the_world_s_time_without_a_process(tmp_path: Path) -> None:
    faults = [{"kill_session": {"after_s": 3600, "as": "error"}}]
    with staged(tmp_path, plain(2 * 3600.0), knobs={"clock_factor": 60}, faults=faults) as stage:
        stage.client.push("killed-one", "pass")
        stage.later(120)
        (session,) = stage.kaggle.sessions()
        assert session.started is not None
        assert session.ended == pytest.approx(session.started + 3600)
        assert session.status == "ERROR"
