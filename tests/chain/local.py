"""What the toy's sessions should come to."""

import hashlib
import uuid
from pathlib import Path

TOY = Path(__file__).with_name("toy.py")


def new_slug() -> str:
    """Nobody else's."""
    return f"toy-{uuid.uuid4().hex[:8]}"


def state_after(steps: int) -> str:
    """The toy's state after an uninterrupted training."""
    state = ""
    for step in range(1, steps + 1):
        state = hashlib.sha256(f"{state}{step}".encode()).hexdigest()
    return state
