"""Builders of what ``decide`` and ``judge`` look at."""

from dataclasses import replace

from kaggle_orchestrator.chain.model import Attempt, Fingerprint, Observation, Phase, Policy
from kaggle_orchestrator.chain.pair import Half, Pair
from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.protocol import LegResult, Outcome, Parent, attempt_token
from kaggle_orchestrator.protocol.result import CheckpointRef, ResultState

NOW = 1_800_000_000.0
CHAIN = "c0ffee"
PAIR = Pair("me", "x")
PRINT = Fingerprint("code", "config")
EDITED = Fingerprint("other code", "config")
POLICY = Policy(
    chained=True,
    gpu=False,
    session_limit_s=36000.0,
    stop_before_s=600.0,
    quota_reserve_s=1800.0,
    min_leg_s=1800.0,
    max_legs=20,
    max_gpu_hours=60.0,
    retries=3,
)
GPU = replace(POLICY, gpu=True)
ONE_OFF = replace(POLICY, chained=False, retries=0, stop_before_s=0.0)


def intended(number: int = 1, *, leg: int = 1, kernel: Half = Half.A, parent: Parent | None = None) -> Attempt:
    """An attempt before its push."""
    return Attempt(
        leg=leg,
        number=number,
        token=attempt_token(CHAIN, leg, number),
        kernel=kernel,
        parent=parent,
        fingerprint=PRINT,
        session_limit_s=36000.0,
        leave_after_s=35400.0,
        intended_at=NOW - 1000,
    )


def live(number: int = 1, *, leg: int = 1, kernel: Half = Half.A, parent: Parent | None = None) -> Attempt:
    """An attempt whose session isn't judged."""
    return intended(number, leg=leg, kernel=kernel, parent=parent).landed(number, NOW - 1000)


def result(attempt: Attempt, outcome: Outcome, step: int | None) -> LegResult:
    """What its session says; ``step`` is that of its checkpoint, if it has one."""
    checkpoint = None
    if step is not None:
        checkpoint = CheckpointRef(f"checkpoints/step-{step:08d}", step, f"sha-{step}", attempt.token)
    return LegResult(
        chain=CHAIN,
        leg=attempt.leg,
        attempt=attempt.number,
        token=attempt.token,
        state=ResultState.FINAL,
        step_start=attempt.start_step,
        step_end=step if step is not None else attempt.start_step,
        started_at=NOW - 900,
        ended_at=NOW - 100,
        outcome=outcome,
        checkpoint=checkpoint,
    )


def ended(
    number: int = 1,
    outcome: Outcome = Outcome.CONTINUE,
    *,
    step: int | None = None,
    leg: int = 1,
    kernel: Half = Half.A,
    parent: Parent | None = None,
    ago_s: float = 100.0,
) -> Attempt:
    """An attempt with a verdict: COMPLETE with ``step``, else ERROR without a checkpoint."""
    attempt = live(number, leg=leg, kernel=kernel, parent=parent)
    status = SessionStatus.COMPLETE if step is not None else SessionStatus.ERROR
    words = None if outcome is Outcome.KILLED else result(attempt, outcome, step)
    return replace(attempt, status=status, result=words).ended(outcome, NOW - ago_s)


def parent_of(attempt: Attempt) -> Parent:
    """The checkpoint in its output, as the next attempt names it."""
    assert attempt.result is not None
    assert attempt.result.checkpoint is not None
    assert attempt.version is not None
    checkpoint = attempt.result.checkpoint
    return Parent(str(PAIR.ref(attempt.kernel)), attempt.version, attempt.token, checkpoint.step, checkpoint.sha256)


def observation(*attempts: Attempt, policy: Policy = POLICY) -> Observation:
    """Of an unedited chain."""
    return Observation(pair=PAIR, policy=policy, attempts=attempts, pinned=PRINT, current=PRINT)


def phase_of(attempt: Attempt) -> Phase:
    """For comparisons that mypy would narrow away."""
    return attempt.phase
