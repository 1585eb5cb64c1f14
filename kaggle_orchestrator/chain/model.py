"""What the chain knows: attempts as the journal holds them, an observation, and the actions that follow from one.

Everything is frozen: an attempt changes by being replaced in the journal, so what ``decide`` saw stays as it was.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from kaggle_orchestrator.chain.pair import Half, Pair
from kaggle_orchestrator.models import Quota, SessionStatus
from kaggle_orchestrator.protocol import LegRecord, LegResult, Outcome, Parent


class Phase(StrEnum):
    """How far an attempt has come."""

    INTENDED = "intended"
    """Written before the push; whether the push landed isn't known."""
    LIVE = "live"
    """Its version is known; its session hasn't been judged."""
    ENDED = "ended"
    """It has its verdict."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """sha256 of the user's files and of the configuration that training depends on."""

    code: str
    config: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One version, one session, one verdict.

    Attributes:
        leg: From 1: the attempts that start from one checkpoint.
        number: From 1, counted over the whole chain.
        token: Names it in the pushed source and in its result.
        parent: The checkpoint it starts from, or None.
        session_limit_s: Seconds after its start at which Kaggle kills the session.
        leave_after_s: Seconds after its start at which training should have left; None: it isn't asked to.
        absent_since: First look after an unclear push that didn't find it, with no other answer since.
        pushed_at: When it was pushed; None if another controller did, or the journal was lost.
        running_since: First look at which it ran.
        terminal_since: First look at which Kaggle called it ended.
        ended_at: When it ended, as well as is known.
        result: Its own words, if it left any.
        pulled_at: When ``kgo run`` had its output, all of it verified; None if it never had.
    """

    leg: int
    number: int
    token: str
    kernel: Half
    parent: Parent | None
    fingerprint: Fingerprint
    session_limit_s: float
    leave_after_s: float | None
    intended_at: float
    phase: Phase = Phase.INTENDED
    absent_since: float | None = None
    version: int | None = None
    pushed_at: float | None = None
    status: SessionStatus | None = None
    running_since: float | None = None
    terminal_since: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    reason: str = ""
    message: str = ""
    result: LegResult | None = None
    pulled_at: float | None = None

    @property
    def start_step(self) -> int:
        """The global step it starts from."""
        return self.parent.step if self.parent else 0

    @property
    def gained(self) -> bool:
        """Whether the next attempt can mount a checkpoint of it that is newer than the one it started from.

        Kaggle mounts the output of COMPLETE versions only.
        """
        checkpoint = self.result.checkpoint if self.result else None
        return (
            self.phase is Phase.ENDED
            and self.status is SessionStatus.COMPLETE
            and self.outcome is not Outcome.OUTPUT_LOST
            and checkpoint is not None
            and checkpoint.token == self.token
            and checkpoint.step > self.start_step
        )

    @property
    def session_s(self) -> float:
        """Seconds of session it used, never too few: time in the queue counts, and what isn't known counts in full."""
        if self.result and self.result.ended_at is not None:
            return max(0.0, self.result.ended_at - self.result.started_at)
        if self.pushed_at is None or self.ended_at is None:
            return self.session_limit_s
        return min(self.session_limit_s, max(0.0, self.ended_at - self.pushed_at))

    def landed(self, version: int, at: float | None) -> Self:
        """It landed as this version; ``at`` None if nobody here knows when."""
        return replace(self, phase=Phase.LIVE, version=version, pushed_at=at, absent_since=None)

    def ended(self, outcome: Outcome, now: float, *, reason: str = "", message: str = "") -> Self:
        """It has its verdict."""
        return replace(self, phase=Phase.ENDED, outcome=outcome, ended_at=now, reason=reason, message=message)

    def record(self) -> LegRecord:
        """As later legs carry it in their lineage; only for one with a result."""
        assert self.result is not None
        assert self.outcome is not None
        return LegRecord(
            leg=self.leg,
            attempt=self.number,
            token=self.token,
            outcome=self.outcome,
            step_start=self.result.step_start,
            step_end=self.result.step_end,
            started_at=self.result.started_at,
            ended_at=self.result.ended_at if self.result.ended_at is not None else self.result.started_at,
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """What bounds a chain; times in seconds.

    Attributes:
        chained: False for a one-off: one leg, and no deadline.
        gpu: Whether its sessions use the GPU quota.
    """

    chained: bool
    gpu: bool
    session_limit_s: float
    stop_before_s: float
    quota_reserve_s: float
    min_leg_s: float
    max_legs: int
    max_gpu_hours: float
    retries: int


class Why(StrEnum):
    """What a chain waits for."""

    SESSION = "session"
    """Its session to end."""
    RESULT = "result"
    """The output of a session that ended: Kaggle may show it late."""
    LANDING = "landing"
    """An unclear push to show up, or to stay away for long enough."""
    BACKOFF = "backoff"
    """The next attempt after a failed one."""
    SESSION_CAP = "session_cap"
    """A session of the account to end."""
    QUOTA = "quota"
    """The quota's refresh."""
    NETWORK = "network"
    """Kaggle to answer again."""


@dataclass(frozen=True, slots=True)
class Park:
    """A refused push that will be possible later."""

    until: float
    why: Why
    message: str


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision depends on.

    Attributes:
        pair: The chain's kernels.
        attempts: By number. Refused pushes are no attempts.
        pinned: Fingerprint that the chain was started or accepted with.
        current: Fingerprint of the files as they are now.
        changed: What differs between the two, for a person.
        forgiven: Attempts up to this number don't count as failures (``--retry``), or are another run's (one-off).
        park: The last refused push, if it's still the last thing that happened.
        quota: None if it isn't known, or doesn't matter.
    """

    pair: Pair
    policy: Policy
    attempts: tuple[Attempt, ...]
    pinned: Fingerprint
    current: Fingerprint
    changed: tuple[str, ...] = ()
    forgiven: int = 0
    park: Park | None = None
    quota: Quota | None = None

    @property
    def open(self) -> tuple[Attempt, ...]:
        """Attempts without a verdict."""
        return tuple(a for a in self.attempts if a.phase is not Phase.ENDED)

    @property
    def legs(self) -> tuple[Attempt, ...]:
        """The attempts that won a leg, in order: each gained on the one before."""
        won: list[Attempt] = []
        for attempt in self.attempts:
            if attempt.gained and (not won or step_of(attempt) > step_of(won[-1])):
                won.append(attempt)
        return tuple(won)


def step_of(attempt: Attempt) -> int:
    """The global step of the checkpoint in its output; 0 without one."""
    return attempt.result.checkpoint.step if attempt.result and attempt.result.checkpoint else 0


class Bound(StrEnum):
    """Why a chain can't go on by itself."""

    OUTCOME = "outcome"
    """The last attempt's outcome needs a person."""
    RETRIES = "retries"
    """The leg failed too often."""
    MAX_LEGS = "max_legs"
    MAX_GPU_HOURS = "max_gpu_hours"


@dataclass(frozen=True, slots=True)
class Push:
    """Push an attempt. ``again``: the same attempt as an unclear push that never landed, under the same token."""

    leg: int
    number: int
    kernel: Half
    parent: Parent | None
    session_limit_s: float
    leave_after_s: float | None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at ``until`` (seconds since the epoch); given up at ``deadline``, where that is known."""

    until: float
    why: Why
    message: str = ""
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The target is reached; ``attempt`` holds the output. ``changed``: what was edited since, for a person."""

    attempt: Attempt
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """A person is needed."""

    bound: Bound
    message: str
    hint: str
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """A person stopped it."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Refuse:
    """Code or configuration changed in mid-chain, and nobody has said what to do about it."""

    changed: tuple[str, ...]


Action = Push | Wait | Finish | Fail | Stop | Refuse
