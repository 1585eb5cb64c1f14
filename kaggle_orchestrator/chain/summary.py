"""What ``kgo status --json`` says of a chain; its keys are stable."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, assert_never

from kaggle_orchestrator.chain.decide import decide
from kaggle_orchestrator.chain.model import (
    Action,
    Attempt,
    Fail,
    Finish,
    Observation,
    Phase,
    Push,
    Refuse,
    Stop,
    Wait,
    Why,
    step_of,
)
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.models import KernelRef, Quota
from kaggle_orchestrator.protocol import LegResult

SCHEMA = 1


class ChainStatus(StrEnum):
    """A chain's state in a word."""

    PENDING = "pending"
    """A push is due; nobody has made it yet."""
    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    """A person is needed."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Standing:
    """A chain's state and what's behind it.

    Attributes:
        next_at: When something is expected to happen, seconds since the epoch, or None.
    """

    status: ChainStatus
    reason: str | None = None
    waiting_for: Why | None = None
    next_at: float | None = None
    hint: str | None = None


def standing(observation: Observation, now: float) -> Standing:
    """How a chain stands, from what is known."""
    return _standing(observation, decide(observation, now))


def _standing(observation: Observation, action: Action) -> Standing:
    match action:
        case Finish():
            return Standing(ChainStatus.DONE)
        case Fail():
            return Standing(ChainStatus.FAILED, action.message, hint=action.hint)
        case Stop():
            return Standing(ChainStatus.STOPPED, "stopped", hint="`kgo run --retry` goes on.")
        case Refuse():
            reason = f"changed since the chain began: {', '.join(action.changed)}"
            return Standing(ChainStatus.FAILED, reason, hint="`kgo run` with --accept-changes, or with --new.")
        case Push(again=True):
            return Standing(ChainStatus.WAITING, waiting_for=Why.LANDING, next_at=None)
        case Push():
            return Standing(ChainStatus.PENDING, hint="`kgo run` makes the next push.")
        case Wait(why=Why.SESSION):
            return Standing(ChainStatus.RUNNING, waiting_for=Why.SESSION, next_at=_expected(observation.open[0]))
        case Wait():
            return Standing(ChainStatus.WAITING, action.message or None, action.why, action.deadline or action.until)
        case _:
            assert_never(action)


def _expected(attempt: Attempt) -> float | None:
    started = attempt.running_since
    return started + attempt.leave_after_s if started is not None and attempt.leave_after_s is not None else None


def chain_document(
    experiment: Experiment, seen: Observation, page: Callable[[KernelRef], str] | None, now: float
) -> dict[str, Any]:
    """One entry of ``chains``.

    Args:
        experiment: The experiment.
        seen: What is known of its chain.
        page: A kernel's address for a person, if Kaggle is known.
        now: Seconds since the epoch.
    """
    kernel = seen.pair.ref(seen.attempts[-1].kernel if seen.attempts else Half.A)
    how = standing(seen, now)
    return {
        "experiment": str(experiment.root),
        "kernel": str(seen.pair.ref(Half.A)),
        "url": page(kernel) if page else None,
        "status": how.status.value,
        "reason": how.reason,
        "waiting_for": how.waiting_for.value if how.waiting_for else None,
        "next_action_at": how.next_at,
        "hint": how.hint,
        "progress": progress(seen),
        "legs": [_leg(attempt, seen) for attempt in seen.attempts],
    }


def progress(seen: Observation) -> dict[str, Any]:
    """How far the chain has come: the newest checkpoint's step, and the target as the last session knew it."""
    results = [a.result for a in seen.attempts if a.result is not None]
    counted = [a for a in seen.attempts if a.gained] or [a for a in seen.attempts if a.outcome == "done"]
    best = max(counted, key=step_of, default=None)
    reached: LegResult | None = best.result if best else None
    target = next((r.target_step for r in reversed(results) if r.target_step is not None), None)
    step = reached.step_end if reached else 0
    return {
        "step": step,
        "epoch": reached.epoch if reached else None,
        "target": target,
        "fraction": min(1.0, step / target) if target else None,
    }


def _leg(attempt: Attempt, seen: Observation) -> dict[str, Any]:
    result = attempt.result
    return {
        "leg": attempt.leg,
        "attempt": attempt.number,
        "kernel": str(seen.pair.ref(attempt.kernel)),
        "version": attempt.version,
        "session_status": attempt.status.value if attempt.status else None,
        "outcome": attempt.outcome.value if attempt.outcome else None,
        "reason": attempt.reason or None,
        "step_start": result.step_start if result else attempt.start_step,
        "step_end": result.step_end if result else None,
        "started_at": started_at(attempt),
        "ended_at": attempt.ended_at if attempt.phase is Phase.ENDED else None,
        "resumed_from": _resumed_from(attempt, seen),
        "resume_verified": _resume(result),
        "goodput": _goodput(result),
        "gpu": _gpu(result),
    }


def started_at(attempt: Attempt) -> float | None:
    """When its session began, as well as is known."""
    if attempt.result is not None:
        return attempt.result.started_at
    return attempt.running_since if attempt.running_since is not None else attempt.pushed_at


def _resumed_from(attempt: Attempt, seen: Observation) -> dict[str, Any] | None:
    parent = attempt.parent
    if parent is None:
        return None
    leg = next((a.leg for a in seen.attempts if a.token == parent.token), None)
    return {"leg": leg, "step": parent.step, "sha256": parent.sha256}


def _resume(result: LegResult | None) -> dict[str, Any] | None:
    """How its first steps compared with the ones that the leg before replayed."""
    if result is None or result.resume is None:
        return None
    return asdict(result.resume)


def _goodput(result: LegResult | None) -> float | None:
    """The part of the session that was spent on training."""
    if result is None or result.ended_at is None or "train" not in result.buckets:
        return None
    length = result.ended_at - result.started_at
    return round(min(1.0, result.buckets["train"] / length), 4) if length > 0 else None


def _gpu(result: LegResult | None) -> str | None:
    """The GPUs that the session found, or pretended to have; None for a CPU session."""
    facts = result.environment if result else {}
    names = Counter(gpu["name"] for gpu in facts.get("gpus", []))
    if names:
        return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
    return f"{facts['accelerator']} (simulated)" if facts.get("simulated") else None


def quota_document(quota: Quota | None) -> dict[str, Any] | None:
    """The value of ``quota``."""
    if quota is None:
        return None
    return {
        "used_s": quota.used_s,
        "reserved_s": quota.reserved_s,
        "total_s": quota.total_s,
        "free_s": quota.free_s,
        "refresh_at": quota.refresh_at,
    }
