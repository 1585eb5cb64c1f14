"""kgo's client on a local Kaggle in this process."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kaggle_orchestrator.client import Kaggle, Policy, connect
from kaggle_orchestrator.profile import Profile
from tests.localkaggle.stage import Stage, staged


@contextmanager
def client_on(
    root: Path, script: Any = None, *, policy: Policy | None = None, profile: Profile | None = None, **setting: Any
) -> Iterator[tuple[Kaggle, Stage]]:
    """The client, and the stage that it talks to; ``setting`` are knobs and faults."""
    with (
        staged(root, script, **setting) as stage,
        connect(
            stage.kaggle.url,
            environ={},
            policy=policy,
            clock=stage.clock,
            rng=random.Random(0),
            adapter=stage.kaggle.adapter,
            profile=profile,
        ) as kaggle,
    ):
        yield kaggle, stage
