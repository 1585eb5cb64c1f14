"""A plain script's chain of real sessions ends the same under each knob and each fault script."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.chain import Finish, Half, Pair
from kaggle_orchestrator.chain.events import Stranger
from kaggle_orchestrator.client import Policy, connect
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.profile import Profile, QueuedStatus
from tests.chain.conftest import Lab
from tests.chain.local import state_after

PLAIN = Path(__file__).with_name("plain.py")
STEPS = 45
CONFIG = """
[kernel]
slug = "plain-chain"
accelerator = "T4x2"
[train]
entry = "plain.py"
include = ["plain.py"]
args = ["--steps", "{params.steps}", "--step-s", "0.2", "--resume", "{resume}"]
params = { steps = 45 }
[checkpoint]
paths = ["saved/last.json"]
done = "final/state.txt"
[chain]
session_limit = "9s"
stop_before = "5s"
min_leg = "1s"
max_legs = 20
"""
MOODS: dict[str, tuple[object, ...]] = {
    "output_after_error": ("keep",),
    "output_after_kill": ("keep",),
    "output_after_cancel": ("keep",),
    "mount_layout": ("flat", "owner"),
    "self_mount": ("mount",),
    "first_mount": ("empty",),
    "quick_save": ("mask",),
    "container_cancel": ("refused",),
    "queued_status": ("omitted",),
    "sigterm_before_kill_s": (1,),
    "queue_s": (2,),
    "stale_status_s": (2,),
    "denied_s": (1,),
    "status_lag_s": (2,),
    "output_lag_s": (2,),
    "cancel_save_s": (1,),
    "log_drop_s": (1,),
    "calls_per_minute": (120,),
    "error_body": ("nested",),
    "latency_ms": (50,),
    "gpu_sessions": (1,),
    "working_files": (20,),
    "overflow": ("zip",),
    "memory_bytes": (1 << 30,),
    "url_ttl_s": (1,),
    "log_bytes": (4096,),
    "box": ("off",),
}
FAULTS: dict[str, list[dict[str, Any]]] = {
    "a push answers 500 after landing": [{"rpc": "SaveKernel", "number": 2, "status": 500, "after_landing": True}],
    "a push answers 500 and never landed": [{"rpc": "SaveKernel", "number": 2, "status": 500}],
    "the connection is cut behind a push": [{"rpc": "SaveKernel", "number": 2, "reset": True, "after_landing": True}],
    "a push lands and is never answered": [{"rpc": "SaveKernel", "number": 2, "silence": True, "after_landing": True}],
    "a push lands and a web page answers": [
        {"rpc": "SaveKernel", "number": 1, "status": 200, "body": "html", "after_landing": True}
    ],
    "the session cap is reached": [
        {"rpc": "SaveKernel", "first": 2, "refuse": "Maximum batch GPU session count of 2 reached."}
    ],
    "every fifth download breaks at 60 %": [{"download": "**", "every": 5, "break_at": 0.6}],
    "downloads answer 503": [{"download": "**", "every": 2, "status": 503}],
    "addresses expire": [{"download": "**", "every": 3, "expire": True}],
    "the status lies after a push": [{"lie": "COMPLETE", "every": 1, "for_s": 2, "from": "start"}],
    "a finished session reads RUNNING": [{"lie": "RUNNING", "number": 2, "for_s": 3, "from": "end"}],
    "every fourth call is throttled": [{"rpc": "*", "every": 4, "status": 429, "retry_after": 1}],
    "every fourth status isn't JSON": [{"rpc": "GetKernelSessionStatus", "every": 4, "status": 200, "body": "text"}],
    "every seventh call's connection is cut": [{"rpc": "*", "every": 7, "reset": True}],
    "every ninth call is never answered": [{"rpc": "*", "every": 9, "silence": True}],
    "a session is lost": [{"kill_session": {"number": 2, "after_s": 2, "as": "error"}}],
    "a session is killed while it saves": [
        {"kill_session": {"number": 2, "when_output": "checkpoints/*/manifest.json", "as": "limit"}}
    ],
    "an accepted source isn't mounted": [{"no_mount": {"number": 2}}],
    "a complete session's output is missing": [{"lose_output": {"number": 1}}],
    "a session comes without its GPU": [{"no_gpu": {"number": 2}}],
}
Run = Callable[[Mapping[str, object], Sequence[Mapping[str, Any]]], None]


@pytest.fixture
def run(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Drives the chain on a local Kaggle of its own, with all of Kaggle's patience in seconds."""
    for module, name, seconds in (
        ("decide", "ABSENT_S", 3.0),
        ("judge", "OUTPUT_S", 5.0),
        ("judge", "OVERDUE_S", 10.0),
    ):
        monkeypatch.setattr(sys.modules[f"kaggle_orchestrator.chain.{module}"], name, seconds)
    home, root = tmp_path / "home", tmp_path / "exp"

    def run_(knobs: Mapping[str, object], faults: Sequence[Mapping[str, Any]]) -> None:
        if "box" in knobs:  # it takes effect when a server starts
            admin.set_knobs(background.ensure(home).url, knobs)
            background.stop(home)
        url = background.ensure(home, idle_s=600).url
        admin.set_knobs(url, knobs)
        admin.add_faults(url, faults)
        root.mkdir()
        shutil.copy(PLAIN, root)
        (root / "kgo.toml").write_text(CONFIG)
        for half in Half:
            admin.configure_kernel(url, str(Pair("me", "plain-chain").ref(half)), python)
        profile = Profile(queued_status=QueuedStatus.OMITTED) if "queued_status" in knobs else None
        # Silence is given up after seconds, not after Kaggle's minutes.
        policy = Policy(attempts=2, first_wait_s=0.2, read_s=2.0, push_read_s=2.0, total_s=5.0)
        with ExitStack() as stack:
            kaggle = stack.enter_context(connect(url, environ={}, policy=policy, profile=profile))
            lab = Lab(tmp_path, kaggle, url, python, stack)
            experiment = load(root)
            chain = lab.chain(experiment)
            finish = chain.drive(lab.events.append)
            assert isinstance(finish, Finish), finish
            assert lab.state(experiment, finish.attempt) == state_after(STEPS)
            sessions = sorted((s.kernel, s.version) for s in lab.sessions(experiment))
            assert sessions == sorted((str(chain.book.ref(a)), a.version) for a in chain.book.attempts)
            assert len(chain.book.attempts) >= 2
            assert not lab.told(Stranger)

    yield run_
    background.stop(home)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in MOODS.items() for value in values])
def test_each_knob(name: str, value: object, run: Run) -> None:
    run({name: value}, [])


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_script(name: str, run: Run) -> None:
    run({}, FAULTS[name])


def test_a_bad_day(run: Run) -> None:
    run(
        {"first_mount": "empty", "error_body": "nested", "mount_layout": "owner", "queue_s": 0.5},
        [
            {"rpc": "SaveKernel", "number": 2, "status": 500, "after_landing": True},
            {"kill_session": {"number": 3, "when_output": "checkpoints/*/manifest.json", "as": "error"}},
            {"download": "**", "every": 5, "break_at": 0.6},
        ],
    )
