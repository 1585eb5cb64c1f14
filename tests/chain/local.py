"""Experiments for the local Kaggle, and what their sessions should come to."""

import hashlib
import shutil
import uuid
from pathlib import Path

from kaggle_orchestrator.experiment import Experiment, load

TOY = Path(__file__).with_name("toy.py")


def experiment(
    root: Path,
    *,
    slug: str | None = None,
    params: str = "steps = 60, step_s = 0.01",
    chain: str | None = 'session_limit = "20s", stop_before = "10s"',
    accelerator: str = "none",
) -> Experiment:
    """An experiment whose training is the toy; each has a slug of its own, so that tests share one server.

    Args:
        root: Made if it isn't there.
        slug: Given only to write the same experiment again.
        params: ``train.params``.
        chain: Keys of ``[chain]``, or None for a one-off.
        accelerator: ``kernel.accelerator``.
    """
    root.mkdir(parents=True, exist_ok=True)
    if not (root / "train.py").exists():
        shutil.copy(TOY, root / "train.py")
    lines = [
        "[kernel]",
        f'slug = "{slug or new_slug()}"',
        f'accelerator = "{accelerator}"',
        "[train]",
        'entry = "train.py"',
        'include = ["train.py"]',
        f"params = {{ {params} }}",
        *(["[chain]", *chain.split(", ")] if chain is not None else []),
    ]
    (root / "kgo.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load(root)


def new_slug() -> str:
    """Nobody else's."""
    return f"toy-{uuid.uuid4().hex[:8]}"


def state_after(steps: int) -> str:
    """The toy's state after an uninterrupted training."""
    state = ""
    for step in range(1, steps + 1):
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
    return state
