"""Numbers in the words of the log, and which names can be words at all."""

from kaggle_orchestrator.protocol import Progress


def is_text(name: str) -> bool:
    """Whether a file's name is UTF-8; Linux allows others, but no result or manifest can name those."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def duration(seconds: float) -> str:
    """``4.2 s``, ``12 min``, ``3 h 5 min``."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """``1.5 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def steps(progress: Progress) -> str:
    """``step 120 of 400``."""
    return f"step {progress.step}" + (f" of {progress.target_step}" if progress.target_step is not None else "")


def progress_line(progress: Progress, to_deadline_s: float | None) -> str:
    """Where training is, in one line."""
    parts = [steps(progress)]
    if progress.epoch is not None:
        parts.append(f"epoch {progress.epoch}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.saved_step is not None:
        parts.append(f"saved {progress.saved_step}")
    if to_deadline_s is not None:
        parts.append(f"{duration(to_deadline_s)} to the deadline")
    return ", ".join(parts)
