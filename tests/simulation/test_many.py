"""A thousand sessions take seconds: a long chain, with everything that can befall it, ends as it should."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from kaggle_orchestrator.protocol import Outcome
from tests.simulation.actor import Trainee
from tests.simulation.lab import Lab

LEGS = 80


def test_a_long_chain(tmp_path: Path) -> None:
    began = time.monotonic()
    told = Lab(tmp_path).run(
        steps=17 * 40, chain='session_limit = "20m", stop_before = "2m", max_legs = 100', trainee=Trainee()
    )
    assert len(told.attempts) == 40
    assert time.monotonic() - began < 60


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_very_long_chain_at_an_unreliable_kaggle(tmp_path: Path) -> None:
    rng = random.Random(0)
    faults: list[dict[str, Any]] = [
        {"rpc": "SaveKernel", "chance": 0.05, "status": 500, "after_landing": True},
        {"rpc": "*", "chance": 0.03, "status": 503, "body": "html"},
        {"rpc": "*", "chance": 0.02, "reset": True},
        {"rpc": "*", "chance": 0.02, "status": 429, "retry_after": 5},
        {"download": "**", "chance": 0.05, "break_at": 0.5},
        {"kill_session": {"chance": 0.1, "after_s": rng.randrange(100, 900), "as": "error"}},
        {"kill_session": {"chance": 0.05, "when_output": "checkpoints/step-*/manifest.json", "as": "limit"}},
        {"no_mount": {"chance": 0.03}},
        {"lie": "COMPLETE", "chance": 0.1, "for_s": 60, "from": "start"},
    ]
    told = Lab(tmp_path).run(
        faults=faults,
        steps=17 * LEGS,
        chain='session_limit = "20m", stop_before = "2m", max_legs = 1000, retries = 10',
    )
    assert told.outcomes[Outcome.KILLED] > 5
    assert len(told.attempts) > LEGS
