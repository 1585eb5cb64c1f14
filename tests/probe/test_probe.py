"""The probe finds what a local Kaggle's knobs are set to, whatever they are, and leaves nothing behind."""

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.client import Policy, connect
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.probe import Finding, Pace, Probe, leftovers
from kaggle_orchestrator.probe.findings import profile_of
from kaggle_orchestrator.profile import (
    ContainerCancel,
    Disposition,
    FirstMount,
    MountLayout,
    Profile,
    QueuedStatus,
    QuickSave,
    SelfMount,
)

CHOICES: dict[str, Any] = {
    "output_after_error": list(Disposition),
    "output_after_kill": list(Disposition),
    "output_after_cancel": list(Disposition),
    "mount_layout": list(MountLayout),
    "self_mount": list(SelfMount),
    "first_mount": list(FirstMount),
    "quick_save": list(QuickSave),
    "container_cancel": list(ContainerCancel),
    "queued_status": list(QueuedStatus),
    "sigterm_before_kill_s": [0.0, 2.0],
}
FAULTS: list[dict[str, Any]] = [
    {"rpc": "SaveKernel", "number": 2, "status": 500, "after_landing": True},
    {"rpc": "SaveKernel", "number": 4, "status": 502, "body": "html"},
    {"rpc": "*", "every": 13, "status": 429, "retry_after": 0},
    {"rpc": "GetKernelSessionStatus", "every": 7, "status": 200, "body": "text"},
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    home = tmp_path / "home"
    yield background.ensure(home, idle_s=600)
    background.stop(home)


def probing(server: LocalServer, tell: Callable[[Finding], None] = lambda _: None) -> Probe:
    policy = Policy(first_wait_s=0.1, read_s=10)
    lenient = connect(server.url, environ={}, policy=policy, profile=Profile(queued_status=QueuedStatus.OMITTED))
    strict = connect(server.url, environ={}, policy=Policy(attempts=1))
    return Probe(lenient, strict, SystemClock(), Pace.local(), tell)


def found(server: LocalServer) -> dict[str, Any]:
    told: list[Finding] = []
    findings = probing(server, told.append).run()
    assert sorted(told, key=lambda f: f.name) == sorted(findings, key=lambda f: f.name)
    assert all(finding.evidence for finding in findings)
    return dict(profile_of(findings, server.url, 1.0).measured())


def expected(drawn: dict[str, Any]) -> dict[str, Any]:
    """What can be found out: where nothing can be cancelled, nobody sees what a cancel leaves."""
    if drawn["container_cancel"] is ContainerCancel.REFUSED:
        return {name: value for name, value in drawn.items() if name != "output_after_cancel"}
    return drawn


def check_drawn(server: LocalServer, seed: str) -> None:
    rng = random.Random(seed)
    drawn = {name: rng.choice(values) for name, values in CHOICES.items()}
    print(f"seed {seed}: {drawn}")
    admin.set_knobs(server.url, {**drawn, "queue_s": 1.0})
    assert found(server) == expected(drawn)
    with connect(server.url, environ={}) as kaggle:
        assert kaggle.kernels() == ()


def test_a_drawn_profile_is_found(server: LocalServer) -> None:
    check_drawn(server, secrets.token_hex(4))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(8))
def test_drawn_profiles_are_found(server: LocalServer, number: int) -> None:
    check_drawn(server, secrets.token_hex(4))


@pytest.mark.soak
def test_a_kaggle_that_is_having_a_bad_day(server: LocalServer) -> None:
    drawn = {name: values[-1] for name, values in CHOICES.items()} | {"container_cancel": ContainerCancel.WORKS}
    lag = {"status_lag_s": 0.5, "output_lag_s": 0.3, "cpu_sessions": 2, "denied_s": 0.3, "log_drop_s": 1.0}
    admin.set_knobs(server.url, {**drawn, "queue_s": 1.0, **lag})
    admin.add_faults(server.url, FAULTS)
    assert found(server) == drawn


def test_what_can_not_be_measured_says_why(server: LocalServer) -> None:
    admin.set_knobs(server.url, {"verified": "nothing"})
    findings = probing(server).run()
    assert {finding.value for finding in findings} == {None}
    pushed = [finding for finding in findings if finding.name != "queued_status"]
    assert all("can't be pushed" in finding.evidence for finding in pushed)


def test_an_interrupt_removes_the_kernels_and_ends_their_sessions(server: LocalServer) -> None:
    probe = probing(server)
    running = threading.Event()

    def interrupt(finding: Finding) -> None:
        running.set()
        raise KeyboardInterrupt

    probe.tell = interrupt
    with pytest.raises(KeyboardInterrupt):
        probe.run()
    assert running.is_set()
    with connect(server.url, environ={}) as kaggle:
        assert kaggle.kernels() == ()
    assert all(session.status is not SessionStatus.RUNNING for session in admin.sessions(server.url))


def test_kernels_that_can_not_be_removed_are_named_and_found_again(server: LocalServer) -> None:
    admin.add_faults(server.url, [{"rpc": "DeleteKernel", "every": 1, "status": 400}])
    probe = probing(server)
    findings = probe.run()
    assert [finding.name for finding in findings if finding.value is not None], "what was measured isn't lost"
    assert len(probe.left) == 6
    with connect(server.url, environ={}) as kaggle:
        assert set(leftovers(kaggle)) == set(probe.left)


def test_a_profile_is_read_back(tmp_path: Path) -> None:
    profile = Profile(endpoint="x", measured_at=1.0, mount_layout=MountLayout.FLAT, sigterm_before_kill_s=2.0)
    (tmp_path / "p.json").write_text(profile.dumps())
    assert Profile.load(tmp_path / "p.json") == profile
    assert profile.measured() == {"mount_layout": MountLayout.FLAT, "sigterm_before_kill_s": 2.0}
