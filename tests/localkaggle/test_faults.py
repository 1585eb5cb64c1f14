"""Scripted faults fire when they should, once, and are refused when they can't be meant."""

from collections.abc import Callable
from typing import Any

import pytest

from kaggle_orchestrator.errors import LocalKaggleError, UsageError
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.faultkinds import KillSession, RpcFault, When
from kaggle_orchestrator.localkaggle.faultscript import parse_fault
from kaggle_orchestrator.localkaggle.knobs import Knobs, parse_settings
from kaggle_orchestrator.localkaggle.sessions import TOO_BIG, TOO_LONG
from kaggle_orchestrator.localkaggle.spec import Ending, Kill
from tests.localkaggle.client import Client

WRITES_AND_SLEEPS = """
import os, time
os.makedirs("checkpoints/step-1")
open("checkpoints/step-1/manifest.json", "w").close()
time.sleep({sleep})
"""


def test_a_kill_when_an_output_appears(client: Client, server: LocalServer) -> None:
    kill: dict[str, Any] = {"number": 2, "when_output": "checkpoints/step-*/manifest.json", "after_s": 0.2}
    admin.add_faults(
        server.url,
        [
            {"kill_session": kill | {"kernel": f"{client.user}/killed-one"}},
            {"kill_session": {"number": 5, "as": "memory"}},
        ],
    )
    quick, slow = WRITES_AND_SLEEPS.format(sleep=0), WRITES_AND_SLEEPS.format(sleep=600)
    client.ran("killed-one", quick)  # the first of this kernel
    client.ran("another-one", quick)
    client.push("killed-one", slow)
    assert client.wait("killed-one", 2) == {"status": "CANCEL_ACKNOWLEDGED", "failureMessage": TOO_LONG}
    assert client.files("killed-one", 2) == {}
    client.ran("killed-one", quick)
    client.push("fifth-one", slow)
    assert client.wait("fifth-one") == {"status": "ERROR", "failureMessage": TOO_BIG}


def test_what_a_kill_leaves_is_a_knob(client: Client, turn: Callable[..., None]) -> None:
    turn(output_after_kill="keep", output_after_error="keep")
    client.push("kept-limit", WRITES_AND_SLEEPS.format(sleep=600), sessionTimeoutSeconds=1)
    client.push("kept-error", WRITES_AND_SLEEPS.format(sleep="'no number'"))
    assert client.wait("kept-limit")["status"] == "CANCEL_ACKNOWLEDGED"
    assert client.wait("kept-error")["status"] == "ERROR"
    for slug in ("kept-limit", "kept-error"):
        assert set(client.files(slug)) == {"checkpoints/step-1/manifest.json"}
    found = client.ran(
        "mounts-neither",
        "import os; print(os.listdir(os.environ.get('KGO_KAGGLE_ROOT', '/kaggle') + '/input'))",
        kernelDataSources=[f"{client.user}/kept-limit", f"{client.user}/kept-error"],
    )
    assert found == "[]\n"


def test_a_push_whose_answer_is_lost_has_landed_all_the_same(client: Client, server: LocalServer) -> None:
    faults: list[dict[str, Any]] = [
        {"rpc": "SaveKernel", "number": 1, "status": 503},
        {"rpc": "SaveKernel", "number": 2, "status": 500, "after_landing": True},
    ]
    admin.add_faults(server.url, faults)
    push = client.request("lost-answer", "pass")
    names = {"userName": client.user, "kernelSlug": "lost-answer"}
    assert client.post("SaveKernel", push).status_code == 503
    assert client.post("GetKernel", names).status_code == 403
    assert client.post("SaveKernel", push).status_code == 500
    assert client.rpc("GetKernel", **names)["metadata"]["currentVersionNumber"] == 1
    assert client.wait("lost-answer") == {"status": "COMPLETE"}
    assert client.push("lost-answer", "pass") == 2


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ({"kill_sesion": {}}, "exactly one of the keys download, kill_session"),
        ({}, "exactly one"),
        ([], "a fault is an object"),
        ({"kill_session": {"nth": 1}}, "unknown key 'nth'; there are: after_s, as, chance"),
        ({"kill_session": {"number": 0}}, "a whole number from 1"),
        ({"kill_session": {"kernel": "nonsense"}}, "expected owner/slug"),
        ({"kill_session": {"when_output": "/etc/*"}}, "below /kaggle/working"),
        ({"kill_session": {"when_output": "../*"}}, "below /kaggle/working"),
        ({"kill_session": {"after_s": -1}}, "expected seconds"),
        ({"kill_session": {"as": "magic"}}, "limit, memory, error"),
        ({"kill_session": 3}, "expected an object"),
        ({"rpc": "SaveKernels"}, "is not one of"),
        ({"rpc": "SaveKernel", "status": 200}, "200 is for a body"),
        ({"rpc": "SaveKernel", "status": 302}, "400 to 599"),
        ({"rpc": "SaveKernel", "after": True}, "unknown key 'after'"),
        ({"rpc": "SaveKernel", "after_landing": 1}, "true or false"),
    ],
)
def test_faults_that_can_not_be_meant(server: LocalServer, fault: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_fault(fault)
    with pytest.raises(LocalKaggleError, match=complaint):
        admin.add_faults(server.url, [{"rpc": "SaveKernel", "number": 10_000}, fault])


def test_a_fault_has_defaults() -> None:
    assert parse_fault({"rpc": "SaveKernel"}) == RpcFault(When(number=1), "SaveKernel", 500)
    assert parse_fault({"kill_session": {}}) == KillSession(When(number=1), None, Kill(Ending.LIMIT))


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("nonsense", "NAME=VALUE"),
        ("no_knob=1", "no knob 'no_knob'; there are: box, calls_per_minute"),
        ("output_after_kill=maybe", "is not drop, keep"),
        ("gpu_sessions=two", "is not a number"),
        ("gpu_quota_hours=nan", "out of range"),
        ("max_session_s=-1", "out of range"),
    ],
)
def test_knobs_that_can_not_be_meant(setting: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Knobs().changed(parse_settings([setting]))
