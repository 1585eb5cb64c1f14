"""One line of ours in the training's log; a log that can't be written never stops a training."""

from contextlib import suppress


def say(message: str, hint: str | None = None) -> None:
    """Print ``message`` (and ``hint``), each line marked ``kgo:``, and flush."""
    text = message if hint is None else f"{message}\n{hint}"
    with suppress(OSError, ValueError):  # a full disk behind stdout, or a closed one
        print("\n".join(f"kgo: {line}" for line in text.splitlines()), flush=True)
