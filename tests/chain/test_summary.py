"""`kgo status --json`: its keys are what scripts hold on to."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kaggle_orchestrator.chain.judge import OUTPUT_S
from kaggle_orchestrator.chain.model import Observation, Park, Why
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.chain.summary import ChainStatus, chain_document, quota_document, standing
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.models import KernelRef, Quota, SessionStatus
from kaggle_orchestrator.protocol import Outcome, ResumeCheck
from tests.chain.facts import EDITED, NOW, ended, intended, live, observation, parent_of

LEG1 = ended(1, step=100)
LEG2 = replace(
    live(2, leg=2, kernel=Half.B, parent=parent_of(LEG1)), status=SessionStatus.RUNNING, running_since=NOW - 60
)


def document(tmp_path: Path, seen: Observation) -> dict[str, Any]:
    (tmp_path / "kgo.toml").write_text('[kernel]\nslug = "xxxxx"\n[train]\nentry = "t.py"\ninclude = ["*.py"]\n')
    (tmp_path / "t.py").touch()
    made = chain_document(load(tmp_path), seen, lambda ref: f"http://x/{ref}", NOW)
    loaded = json.loads(json.dumps(made))
    assert isinstance(loaded, dict)
    return loaded


def test_the_keys_and_their_values(tmp_path: Path) -> None:
    assert LEG1.result is not None
    gpus = {"accelerator": "NvidiaTeslaT4", "gpus": [{"name": "Tesla T4"}] * 2}
    proof = ResumeCheck(10, 10, complete=True)
    told = replace(LEG1.result, target_step=400, epoch=3, buckets={"train": 600.0}, environment=gpus, resume=proof)
    assert document(tmp_path, observation(replace(LEG1, result=told), LEG2)) == {
        "experiment": str(tmp_path),
        "kernel": "me/x",
        "url": "http://x/me/x-b",
        "status": "running",
        "reason": None,
        "waiting_for": "session",
        "next_action_at": NOW - 60 + 35400,
        "hint": None,
        "progress": {"step": 100, "epoch": 3, "target": 400, "fraction": 0.25},
        "legs": [
            {
                "leg": 1,
                "attempt": 1,
                "kernel": "me/x",
                "version": 1,
                "session_status": "COMPLETE",
                "outcome": "continue",
                "reason": None,
                "step_start": 0,
                "step_end": 100,
                "started_at": NOW - 900,
                "ended_at": NOW - 100,
                "resumed_from": None,
                "resume_verified": {
                    "agreed": 10,
                    "recorded": 10,
                    "bitwise": True,
                    "complete": True,
                    "mismatch": "",
                    "stopped": False,
                },
                "goodput": 0.75,
                "gpu": "2 × Tesla T4",
            },
            {
                "leg": 2,
                "attempt": 2,
                "kernel": "me/x-b",
                "version": 2,
                "session_status": "RUNNING",
                "outcome": None,
                "reason": None,
                "step_start": 100,
                "step_end": None,
                "started_at": NOW - 60,
                "ended_at": None,
                "resumed_from": {"leg": 1, "step": 100, "sha256": "sha-100"},
                "resume_verified": None,
                "goodput": None,
                "gpu": None,
            },
        ],
    }


def test_a_chain_that_never_ran_has_the_same_keys(tmp_path: Path) -> None:
    empty, full = document(tmp_path, observation()), document(tmp_path, observation(LEG1, LEG2))
    assert empty.keys() == full.keys()
    assert empty["progress"] == {"step": 0, "epoch": None, "target": None, "fraction": None}
    assert empty["legs"] == []


def test_each_status() -> None:
    now = NOW + 10 * 86400
    parked = replace(observation(LEG1), park=Park(now + 60, Why.QUOTA, "Maximum weekly GPU quota …"))
    cases = {
        ChainStatus.PENDING: [observation(), observation(LEG1)],
        ChainStatus.RUNNING: [observation(live()), observation(LEG1, LEG2)],
        ChainStatus.WAITING: [observation(intended()), parked],
        ChainStatus.DONE: [observation(ended(1, Outcome.DONE, step=5))],
        ChainStatus.FAILED: [
            observation(ended(1, Outcome.USER_ERROR)),
            replace(observation(LEG1), current=EDITED, changed=("train.py",)),
        ],
        ChainStatus.STOPPED: [observation(ended(1, Outcome.STOPPED))],
    }
    assert cases.keys() == set(ChainStatus)
    for status, seen in cases.items():
        assert [standing(o, now).status for o in seen] == [status] * len(seen)
    late = replace(live(), status=SessionStatus.COMPLETE, terminal_since=now)
    assert standing(observation(late), now).waiting_for is Why.RESULT
    assert standing(observation(late), now).next_at == now + OUTPUT_S
    assert standing(parked, now).waiting_for is Why.QUOTA
    assert standing(parked, now).next_at == now + 60


def test_a_failure_says_why_and_what_to_do() -> None:
    how = standing(observation(replace(ended(1, Outcome.OOM), message="CUDA out of memory")), NOW)
    assert how.reason is not None
    assert "CUDA out of memory" in how.reason
    assert how.hint is not None
    assert "batch" in how.hint


def test_quota() -> None:
    assert quota_document(None) is None
    assert quota_document(Quota(used_s=1, reserved_s=2, total_s=10, refresh_at=5)) == {
        "used_s": 1,
        "reserved_s": 2,
        "total_s": 10,
        "free_s": 7,
        "refresh_at": 5,
    }


def test_the_page_is_that_of_the_kernel_pushed_to_last(tmp_path: Path) -> None:
    assert document(tmp_path, observation(LEG1))["url"] == f"http://x/{KernelRef('me', 'x')}"
