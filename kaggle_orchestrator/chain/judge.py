"""The verdict on an attempt: its own result with the right token, then the status of its version, then nothing.

An attempt is judged once, by words that carry its token or by a status that is surely its own: Kaggle may for a while
answer for the version before, and list outputs late.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol

from kaggle_orchestrator.chain.model import Attempt
from kaggle_orchestrator.errors import NotAccessible
from kaggle_orchestrator.models import KernelRef, OutputListing, SessionStatus, StatusReport
from kaggle_orchestrator.protocol import LEG_RESULT, MANIFEST, LegResult, Outcome, result_from_log
from kaggle_orchestrator.protocol.jsonable import Malformed
from kaggle_orchestrator.protocol.result import ResultState

OUTPUT_S = 600.0
"""A result's files are asked for so long before they count as lost."""
STALE_S = 600.0
"""For so long after a push Kaggle may answer for the version before, or deny that the kernel is there."""
SILENT_S = 120.0
"""For so long a session that ended without a line in its log may be another one's status."""
SETTLE_S = 60.0
OVERDUE_S = 3 * 3600.0
"""A dead session can read RUNNING for two hours after its limit."""
NEARLY = 0.9
"""A session that was cancelled after this part of its limit ran into the limit."""
_TIME_LIMIT = "exceeded the max allowed execution duration"
_MEMORY = "tried to allocate more memory"


class Sessions(Protocol):
    """What judging needs of :class:`kaggle_orchestrator.client.Kaggle`; all of it version-exact."""

    def status(self, ref: KernelRef, version: int) -> StatusReport:
        """The state of a session."""

    def read(self, ref: KernelRef, version: int, name: str) -> bytes | None:
        """A small output file."""

    def outputs(self, ref: KernelRef, version: int) -> OutputListing:
        """The listing and the log."""


@dataclass(frozen=True, slots=True)
class _Words:
    """What an attempt says of itself.

    Attributes:
        listing: None if Kaggle has none.
        logged: The result is the log's: it doesn't name the outputs, and ``kgo/leg.json`` may never come.
    """

    result: LegResult | None
    listing: OutputListing | None
    logged: bool = False


def look(kaggle: Sessions, ref: KernelRef, attempt: Attempt, now: float, *, past: bool = False) -> Attempt:
    """Look at a live attempt once; returns it as it is now, with its verdict if it has one.

    Args:
        kaggle: Where to look.
        ref: Its kernel.
        attempt: The attempt.
        now: Seconds since the epoch.
        past: A later attempt is known, so whatever Kaggle says of this one is final.

    Raises:
        KaggleError: Kaggle couldn't be asked; nothing is known that wasn't before.
    """
    assert attempt.version is not None
    try:
        report = kaggle.status(ref, attempt.version)
    except NotAccessible:
        if now - _pushed(attempt) < STALE_S:
            return attempt  # a new kernel is denied for a moment
        raise
    seen = replace(attempt, status=report.status)
    if not report.status.terminal:
        if report.status is SessionStatus.RUNNING and attempt.running_since is None:
            seen = replace(seen, running_since=now)
        return _overdue(kaggle, ref, replace(seen, terminal_since=None), now)
    if seen.terminal_since is None:
        seen = replace(seen, terminal_since=now)
    words = _words(kaggle, ref, seen)
    waited_s = math.inf if past else now - (seen.terminal_since or now)
    if words.result is not None:
        return _by_result(seen, words, words.result, now, waited_s)
    return _by_status(seen, report.failure_message, words.listing, now, waited_s)


def _pushed(attempt: Attempt) -> float:
    return attempt.pushed_at if attempt.pushed_at is not None else attempt.intended_at


def _words(kaggle: Sessions, ref: KernelRef, attempt: Attempt) -> _Words:
    assert attempt.version is not None
    try:
        data = kaggle.read(ref, attempt.version, LEG_RESULT)
        listing = kaggle.outputs(ref, attempt.version)
    except NotAccessible:
        return _Words(None, None)
    result = None
    if data is not None:
        try:
            result = LegResult.loads(data)
        except Malformed:
            result = None
    logged = result is None or result.token != attempt.token or result.state is not ResultState.FINAL
    if logged:
        result = result_from_log(listing.log, attempt.token)
    if result is not None and result.outcome is None:
        result = None
    return _Words(result, listing, logged)


def _by_result(attempt: Attempt, words: _Words, result: LegResult, now: float, waited_s: float) -> Attempt:
    assert result.outcome is not None
    ended_at = result.ended_at if result.ended_at is not None else now
    judged = replace(attempt, result=result)
    missing = _missing(judged, result, words)
    if missing:
        if attempt.status is SessionStatus.COMPLETE and waited_s < OUTPUT_S:
            return attempt
        return judged.ended(Outcome.OUTPUT_LOST, ended_at, reason=missing, message=result.message)
    judged = judged.ended(result.outcome, ended_at, reason=result.reason, message=result.message)
    if result.outcome is Outcome.CONTINUE and not judged.gained:
        return replace(judged, outcome=Outcome.NO_PROGRESS)
    return judged


def _missing(attempt: Attempt, result: LegResult, words: _Words) -> str:
    """Why what later attempts need of its output isn't there; empty if it is, or nothing is needed."""
    there = set(words.listing.by_name) if words.listing else set()
    needed: set[str] = set()
    if result.outcome is Outcome.DONE and words.logged:
        return "" if there else "nothing is in the output"
    if result.outcome is Outcome.DONE:
        needed = {LEG_RESULT, *result.outputs}
    elif result.checkpoint is not None and result.checkpoint.step > attempt.start_step:
        folder = f"{result.checkpoint.path}/"
        needed = {folder + MANIFEST, *(name for name in result.outputs if name.startswith(folder))}
        if attempt.status is not SessionStatus.COMPLETE:
            return f"a session that ended as {attempt.status} can't be mounted"
    absent = sorted(needed - there)
    if not absent:
        return ""
    return f"{absent[0]} isn't in the output" + (f", nor {len(absent) - 1} more" if len(absent) > 1 else "")


def _by_status(attempt: Attempt, message: str, listing: OutputListing | None, now: float, waited_s: float) -> Attempt:
    """Ended, and not a word of its own."""
    since = attempt.terminal_since if attempt.terminal_since is not None else now
    if attempt.status is SessionStatus.COMPLETE:
        # Exit 0 means a gain, so there is a result: it's late, or this is the version before.
        if waited_s < OUTPUT_S:
            return attempt
        return attempt.ended(Outcome.OUTPUT_LOST, since, reason="complete, but without a result")
    if waited_s < _settle_s(attempt, silent=listing is None or not listing.log):
        return attempt
    if _MEMORY in message:
        return attempt.ended(Outcome.OOM, since, reason="memory", message=message)
    if _TIME_LIMIT in message:
        return attempt.ended(Outcome.KILLED, since, reason="time limit", message=message)
    if attempt.status is SessionStatus.CANCEL_ACKNOWLEDGED:
        started = attempt.running_since if attempt.running_since is not None else _pushed(attempt)
        if since - started < NEARLY * attempt.session_limit_s:
            return attempt.ended(Outcome.STOPPED, since, reason="cancelled", message=message)
    return attempt.ended(Outcome.KILLED, since, reason="no result", message=message)


def _settle_s(attempt: Attempt, *, silent: bool) -> float:
    settle_s = min(max(attempt.session_limit_s / 50, 0.5), SETTLE_S)
    return max(settle_s, min(SILENT_S, attempt.session_limit_s / 10)) if silent else settle_s


def result_due(attempt: Attempt) -> float | None:
    """When an attempt whose session ended is judged without its result, at the latest; None while its session runs."""
    if attempt.terminal_since is None:
        return None
    complete = attempt.status is SessionStatus.COMPLETE
    return attempt.terminal_since + (OUTPUT_S if complete else _settle_s(attempt, silent=True))


def _overdue(kaggle: Sessions, ref: KernelRef, attempt: Attempt, now: float) -> Attempt:
    """A session that reads RUNNING long after Kaggle must have killed it."""
    if attempt.running_since is None or now < attempt.running_since + attempt.session_limit_s + OVERDUE_S:
        return attempt
    words = _words(kaggle, ref, attempt)
    if words.result is not None:
        return _by_result(attempt, words, words.result, now, math.inf)
    return attempt.ended(Outcome.KILLED, now, reason=f"still {attempt.status} long after its limit")
