"""What a chain tells, in words: one line an event."""

from datetime import datetime
from typing import assert_never

from kaggle_orchestrator.chain.events import (
    Accepted,
    Adopted,
    Ended,
    Event,
    Pushed,
    Rebuilt,
    StatusSeen,
    Stranger,
    Unclear,
    Waiting,
)
from kaggle_orchestrator.chain.model import Attempt, Wait, Why
from kaggle_orchestrator.cli.options import counted
from kaggle_orchestrator.models import KernelRef
from kaggle_orchestrator.protocol import Outcome, ResumeCheck

WAITS = {
    Why.SESSION: "the session",
    Why.RESULT: "the result",
    Why.LANDING: "an unclear push to show up",
    Why.BACKOFF: "the next try",
    Why.SESSION_CAP: "a free session",
    Why.QUOTA: "the GPU quota",
    Why.NETWORK: "Kaggle to answer",
}


def line(event: Event) -> str | None:
    """An event's line; None if it isn't worth one."""
    match event:
        case Pushed(attempt, ref, url):
            return f"{_name(attempt)} → {ref} v{attempt.version}, {_from(attempt)}  {url}"
        case Unclear(attempt, ref, message):
            return f"{_name(attempt)} → {ref}: {message} Looking whether it landed."
        case Adopted(attempt, ref):
            return f"{_name(attempt)} found as {ref} v{attempt.version}"
        case StatusSeen(attempt, ref):
            status = attempt.status.lower().replace("_", " ") if attempt.status else "unknown"
            return f"{_where(attempt, ref)} {status}"
        case Ended(attempt, ref):
            return f"{_where(attempt, ref)} ended: {verdict(attempt)}"
        case Waiting(wait):
            return None if wait.why is Why.SESSION else waiting(wait)
        case Stranger(ref, version, what):
            return f"{ref} v{version} {what}; left alone"
        case Rebuilt(attempts):
            return f"No journal: {counted(attempts, 'attempt')} read back from Kaggle"
        case Accepted(changed):
            return (
                f"Going on with changes ({', '.join(changed)}): exactness isn't claimed across them. Tracked objects "
                "come back as they were saved, the optimizer's learning rate too, unless the code sets it after that"
            )
        case _:
            assert_never(event)


def waiting(wait: Wait) -> str:
    """What is waited for, and until when."""
    text = f"Waiting for {WAITS[wait.why]}"
    if wait.deadline is not None or wait.why in (Why.BACKOFF, Why.QUOTA):
        text += f" until {clock_time(wait.deadline or wait.until)}"
    return f"{text}. {wait.message}".rstrip() if wait.message else text


def verdict(attempt: Attempt) -> str:
    """An ended attempt's outcome, with its steps and the last line of its message: a traceback ends with the error."""
    text = str(attempt.outcome)
    if attempt.reason:
        text += f" ({attempt.reason})"
    if attempt.result and (attempt.outcome is not Outcome.DONE or attempt.result.step_end):  # a script may count none
        text += f", step {attempt.result.step_start} → {attempt.result.step_end}"
        if attempt.result.target_step is not None:
            text += f" of {attempt.result.target_step}"
        if attempt.result.resume is not None and (proof := resume(attempt.result.resume)):
            text += f", {proof}"
    if attempt.message.strip() and attempt.outcome not in (Outcome.DONE, Outcome.CONTINUE):
        text += f". {attempt.message.strip().splitlines()[-1].strip()}"
    return text


def resume(found: ResumeCheck) -> str:
    """Whether a leg went on exactly; empty if nothing was compared to the end."""
    if found.mismatch:
        return f"not exact: {found.mismatch}"
    if not found.complete or not found.recorded:
        return ""
    return f"resume verified {found.agreed}/{found.recorded}{' bitwise' if found.bitwise else ''}"


def duration(seconds: float) -> str:
    """``1h02m``, ``3m05s`` or ``7s``."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 60}m{whole % 60:02}s" if whole >= 60 else f"{whole}s"


def clock_time(at: float) -> str:
    """Local time of day, with the date."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _name(attempt: Attempt) -> str:
    return f"Leg {attempt.leg}, attempt {attempt.number}"


def _where(attempt: Attempt, ref: KernelRef) -> str:
    return f"{_name(attempt)} ({ref} v{attempt.version})"


def _from(attempt: Attempt) -> str:
    if attempt.parent is None:
        return "from the start"
    return f"from step {attempt.parent.step} of {attempt.parent.kernel} v{attempt.parent.version}"
