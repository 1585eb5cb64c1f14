"""What to do next, from what is known: pure, so that every situation can be tried in a test.

Guarded here: one session at a time, nothing pushed while a push is in doubt, a step once gained is never gone back
on, and every budget holds.
"""

import math
from typing import assert_never

from kaggle_orchestrator.chain.budget import RULES, Budget, Rule, Turn, backoff_s
from kaggle_orchestrator.chain.cadence import landing_interval, session_interval
from kaggle_orchestrator.chain.judge import result_due
from kaggle_orchestrator.chain.model import (
    Action,
    Attempt,
    Bound,
    Fail,
    Fingerprint,
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
from kaggle_orchestrator.protocol import Outcome, Parent

ABSENT_S = 600.0
"""A push that isn't found for so long never landed."""
CHAIN_HINT = "With a [chain] table in kgo.toml, kgo goes on from the last checkpoint."
WEEK_S = 7 * 86400.0
REFRESH_OFFSET_S = 2 * 86400.0
"""Kaggle's quota comes back about Saturday 00:00 UTC; the epoch was a Thursday."""


def decide(observation: Observation, now: float) -> Action:
    """The one thing to do now.

    Args:
        observation: What is known.
        now: Seconds since the epoch.
    """
    for attempt in observation.open:
        return _await(attempt, now)
    for attempt in observation.attempts:
        if attempt.outcome is Outcome.DONE and _counts(attempt, observation, observation.pinned):
            return Finish(attempt, observation.changed)
    if observation.policy.chained and observation.current != observation.pinned and observation.legs:
        return Refuse(observation.changed)
    return _after_last(observation, now) or _bounds(observation) or _push(observation, now)


def next_refresh(now: float) -> float:
    """The next weekly quota refresh, where Kaggle doesn't say when."""
    return REFRESH_OFFSET_S + ((now - REFRESH_OFFSET_S) // WEEK_S + 1) * WEEK_S


def _await(attempt: Attempt, now: float) -> Action:
    """An attempt without a verdict: nothing else is done until it has one."""
    match attempt.phase:
        case Phase.LIVE:
            due = result_due(attempt)
            if due is None:
                return Wait(now + session_interval(attempt, now), Why.SESSION)
            interval_s = min(session_interval(attempt, now), due - now if due > now else math.inf)
            message = f"Its session ended as {attempt.status}, and its result isn't there yet."
            return Wait(now + interval_s, Why.RESULT, message, due)
        case Phase.INTENDED:
            absent_s = now - attempt.absent_since if attempt.absent_since is not None else 0.0
            if absent_s < ABSENT_S:
                left_s = ABSENT_S - absent_s
                message = "A push got no clear answer; it isn't repeated while it may still show up."
                return Wait(now + min(landing_interval(absent_s), left_s), Why.LANDING, message)
            return Push(
                attempt.leg,
                attempt.number,
                attempt.kernel,
                attempt.parent,
                attempt.session_limit_s,
                attempt.leave_after_s,
                again=True,
            )
        case Phase.ENDED:
            raise AssertionError("an ended attempt isn't awaited")
        case _:
            assert_never(attempt.phase)


def _counts(attempt: Attempt, observation: Observation, fingerprint: Fingerprint) -> bool:
    """Whether its outcome still binds: a failure (or a target reached) belongs to the code it happened with."""
    if attempt.number <= observation.forgiven:
        return False
    return not observation.policy.chained or attempt.fingerprint == fingerprint


def _in_leg(observation: Observation) -> list[Attempt]:
    """The attempts of the leg that is due, whose outcomes still bind.

    Nothing was gained yet or the edit was accepted, so it's the current code whose failures count.
    """
    leg = _leg(observation)
    return [a for a in observation.attempts if a.leg == leg and _counts(a, observation, observation.current)]


def _leg(observation: Observation) -> int:
    return observation.legs[-1].leg + 1 if observation.policy.chained and observation.legs else 1


def outcome_of(attempt: Attempt) -> Outcome:
    """Its outcome; a leg that ended in order without a gain made no progress, whatever it says."""
    assert attempt.outcome is not None
    if attempt.outcome is Outcome.CONTINUE and not attempt.gained:
        return Outcome.NO_PROGRESS
    return attempt.outcome


def _after_last(observation: Observation, now: float) -> Action | None:
    """What the last attempt's outcome asks for, or None where it doesn't stand in the way."""
    last = observation.attempts[-1] if observation.attempts else None
    if last is None or not _counts(last, observation, observation.current):
        return None
    outcome = outcome_of(last)
    rule = RULES[outcome]
    match rule.turn:
        case Turn.FINISH | Turn.NEXT_LEG if not observation.policy.chained:
            return Fail(Bound.OUTCOME, describe(last), CHAIN_HINT, outcome)
        case Turn.FINISH | Turn.NEXT_LEG:
            return None
        case Turn.STOP:
            return Stop(last)
        case Turn.PERSON:
            return Fail(Bound.OUTCOME, describe(last), rule.hint, outcome)
        case Turn.PARK:
            if observation.quota is not None:
                return None  # the plan below knows better how much is left
            until = next_refresh(last.ended_at if last.ended_at is not None else now)
            return Wait(until, Why.QUOTA, "The weekly quota is used up.") if now < until else None
        case Turn.RETRY:
            spent = not (last.gained and observation.policy.chained)
            return _retry(observation, last, rule, now) if spent else None
        case _:
            assert_never(rule.turn)


def _retry(observation: Observation, last: Attempt, rule: Rule, now: float) -> Action | None:
    assert rule.budget is not None
    tries = observation.policy.retries if rule.tries is None else rule.tries
    failed = _failures(observation, rule.budget)
    if failed > tries:
        message = describe(last)
        message = f"It failed {failed} times in this leg; the last: {message}" if failed > 1 else _sentence(message)
        hint = rule.hint
        if not observation.policy.chained and rule.budget is Budget.FAULTS:
            hint = CHAIN_HINT
        return Fail(Bound.RETRIES, message, hint, outcome_of(last))
    ended = last.ended_at if last.ended_at is not None else now
    until = ended + backoff_s(rule, failed, observation.policy.session_limit_s)
    if now < until:
        return Wait(until, Why.BACKOFF, f"Try {failed + 1} of {tries + 1} of leg {_leg(observation)}.")
    return None


def _failures(observation: Observation, budget: Budget) -> int:
    return sum(RULES[outcome_of(a)].budget is budget for a in _in_leg(observation))


def _bounds(observation: Observation) -> Action | None:
    policy = observation.policy
    if not policy.chained:
        return None
    if len(observation.legs) >= policy.max_legs:
        return Fail(
            Bound.MAX_LEGS,
            f"The target isn't reached after {policy.max_legs} legs (step {step_of(observation.legs[-1])}).",
            "Raise chain.max_legs to go on.",
        )
    if policy.gpu and _gpu_s_left(observation) < max(_least_s(observation), 1.0):
        return Fail(
            Bound.MAX_GPU_HOURS,
            f"{_used_s(observation) / 3600:.1f} of chain.max_gpu_hours = {policy.max_gpu_hours:g} hours are used.",
            "Raise chain.max_gpu_hours to go on.",
        )
    return None


def _used_s(observation: Observation) -> float:
    return sum(a.session_s for a in observation.attempts)


def _gpu_s_left(observation: Observation) -> float:
    return observation.policy.max_gpu_hours * 3600 - _used_s(observation)


def _least_s(observation: Observation) -> float:
    """A shorter session isn't worth its start."""
    return min(observation.policy.min_leg_s, observation.policy.session_limit_s / 2)


def _push(observation: Observation, now: float) -> Action:
    policy, park = observation.policy, observation.park
    if park is not None and now < park.until:
        return Wait(park.until, park.why, park.message)
    limit_s = policy.session_limit_s
    if policy.gpu and policy.chained:
        limit_s = min(limit_s, _gpu_s_left(observation))
    if policy.gpu and observation.quota is not None:
        free_s = observation.quota.free_s - policy.quota_reserve_s
        if free_s < max(_least_s(observation), 1.0):
            refresh = observation.quota.refresh_at
            until = refresh if refresh is not None and refresh > now else next_refresh(now)
            message = f"{observation.quota.free_s / 3600:.1f} hours of GPU quota are free: too few for a leg."
            return Wait(until, Why.QUOTA, message)
        limit_s = min(limit_s, free_s)
    limit_s = float(max(1, math.floor(limit_s)))  # Kaggle takes whole seconds
    parent = _parent(observation)
    source = observation.pair.half(parent.kernel) if parent else None
    return Push(
        leg=_leg(observation) if policy.chained else 1,
        number=observation.attempts[-1].number + 1 if observation.attempts else 1,
        kernel=source.other if source else Half.A,
        parent=parent,
        session_limit_s=limit_s,
        leave_after_s=_leave_after_s(observation, limit_s),
    )


def _leave_after_s(observation: Observation, limit_s: float) -> float | None:
    """The deadline; halved for each time the leg was killed, since nobody knows what killed it."""
    if not observation.policy.chained:
        return None
    leave_s = max(limit_s - observation.policy.stop_before_s, limit_s / 2)
    killed = sum(a.outcome is Outcome.KILLED for a in _in_leg(observation))
    return float(leave_s / 2**killed)


def _parent(observation: Observation) -> Parent | None:
    """The newest checkpoint that can be mounted."""
    if not observation.policy.chained or not observation.legs:
        return None
    best = observation.legs[-1]
    assert best.result is not None
    assert best.result.checkpoint is not None
    assert best.version is not None
    checkpoint = best.result.checkpoint
    return Parent(str(observation.pair.ref(best.kernel)), best.version, best.token, checkpoint.step, checkpoint.sha256)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def describe(attempt: Attempt) -> str:
    """An ended attempt's verdict in a sentence."""
    outcome = outcome_of(attempt)
    reason = f" ({attempt.reason})" if attempt.reason else ""
    message = f": {attempt.message}" if attempt.message else "."
    return f"attempt {attempt.number} of leg {attempt.leg} ended as {outcome}{reason}{message}"
