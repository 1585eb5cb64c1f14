"""Whatever Kaggle does, in whatever order: one session at a time, no step lost, every budget holds, always an action.

The world here is a model of Kaggle's answers; the controller around ``decide`` is as small as it can be.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kaggle_orchestrator.chain.budget import RULES, Turn
from kaggle_orchestrator.chain.decide import ABSENT_S, decide, outcome_of
from kaggle_orchestrator.chain.model import (
    Action,
    Attempt,
    Fail,
    Finish,
    Observation,
    Park,
    Phase,
    Policy,
    Push,
    Refuse,
    Stop,
    Wait,
    Why,
    step_of,
)
from kaggle_orchestrator.models import Quota, SessionStatus
from kaggle_orchestrator.protocol import Outcome, attempt_token
from tests.chain.facts import CHAIN, NOW, PAIR, PRINT, result


class Answer(StrEnum):
    """What a push can meet."""

    LANDED = "landed"
    UNCLEAR_LANDED = "unclear, landed"
    UNCLEAR_LOST = "unclear, lost"
    CAP = "cap"
    QUOTA = "quota"


@dataclass
class World:
    """Kaggle's side, and the controller's notes on it."""

    policy: Policy
    draw: st.DataObject
    now: float = NOW
    attempts: dict[int, Attempt] = field(default_factory=dict)
    landed: dict[str, int] = field(default_factory=dict)
    """Versions by token, as Kaggle has them."""
    running: set[str] = field(default_factory=set)
    park: Park | None = None
    pushes: int = 0

    def choose(self, label: str) -> bool:
        return self.draw.draw(mostly, label=label)

    def observation(self) -> Observation:
        attempts = tuple(self.attempts[n] for n in sorted(self.attempts))
        quota = None
        if self.policy.gpu and self.draw.draw(st.booleans(), label="quota known"):
            free = self.draw.draw(st.floats(0, 40 * 3600), label="free quota")
            quota = Quota(used_s=40 * 3600 - free, reserved_s=0, total_s=40 * 3600, refresh_at=self.now + 3600)
        return Observation(PAIR, self.policy, attempts, PRINT, PRINT, park=self.park, quota=quota)

    def apply(self, seen: Observation, action: Action) -> None:
        match action:
            case Push():
                self.check_push(seen, action)
                self.push(action)
            case Wait():
                assert action.until > self.now, "waiting for what is past would spin"
                self.now = action.until if self.choose("on time") else self.now + 1
                self.look()
            case Finish() | Fail() | Stop() | Refuse():
                pass

    def check_push(self, seen: Observation, push: Push) -> None:
        assert not self.running, "a second session beside one that lives"
        best = max((step_of(a) for a in seen.attempts if a.gained), default=0) if self.policy.chained else 0
        assert (push.parent.step if push.parent else 0) == best, "a step went back"
        if push.parent:
            source = PAIR.half(push.parent.kernel)
            assert source is not None
            assert source is not push.kernel, "a kernel can't mount itself"
        if push.again:
            (unsure,) = seen.open
            assert unsure.token not in self.landed, "pushed again what had landed"
            assert unsure.absent_since is not None
            assert self.now - unsure.absent_since >= ABSENT_S, "pushed again too soon"
        else:
            assert not seen.open, "pushed while something was open"
        assert push.leave_after_s is None or 0 < push.leave_after_s <= push.session_limit_s
        assert push.session_limit_s <= self.policy.session_limit_s

    def push(self, push: Push) -> None:
        self.pushes += 1
        token = attempt_token(CHAIN, push.leg, push.number)
        attempt = Attempt(
            push.leg, push.number, token, push.kernel, push.parent, PRINT, push.session_limit_s, push.leave_after_s,
            self.now,
        )  # fmt: skip
        answer = self.draw.draw(answers, label="answer")
        version = len(self.landed) + 1
        if answer in (Answer.LANDED, Answer.UNCLEAR_LANDED):
            self.landed[token] = version
            self.running.add(token)
        if answer in (Answer.CAP, Answer.QUOTA):
            self.attempts.pop(push.number, None)
            self.park = Park(self.now + 60, Why(Why.SESSION_CAP if answer is Answer.CAP else Why.QUOTA), "")
            return
        self.attempts[push.number] = attempt.landed(version, self.now) if answer is Answer.LANDED else attempt

    def look(self) -> None:
        for attempt in list(self.attempts.values()):
            if attempt.phase is Phase.INTENDED and self.choose("read back"):
                if attempt.token in self.landed:
                    self.attempts[attempt.number] = attempt.landed(self.landed[attempt.token], self.now)
                elif attempt.absent_since is None:
                    self.attempts[attempt.number] = replace(attempt, absent_since=self.now)
            elif attempt.phase is Phase.LIVE and self.choose("ended"):
                self.end(attempt)

    def end(self, attempt: Attempt) -> None:
        outcome = self.draw.draw(outcomes, label="outcome")
        gain = outcome not in (Outcome.KILLED, Outcome.OUTPUT_LOST) and self.draw.draw(mostly, label="checkpoint")
        step = attempt.start_step + self.draw.draw(steps, label="steps") if gain else None
        words = None if outcome is Outcome.KILLED else result(attempt, outcome, step)
        if words is not None:
            length = self.draw.draw(st.floats(0, attempt.session_limit_s), label="length")
            words = replace(words, started_at=self.now - length, ended_at=self.now)
        status = SessionStatus.COMPLETE if gain else SessionStatus.ERROR
        self.attempts[attempt.number] = replace(attempt, status=status, result=words).ended(outcome, self.now)
        self.running.discard(attempt.token)


mostly = st.sampled_from([True, True, True, False])
steps = st.sampled_from([30, 20, 10, 1, 0, -10])
outcomes = st.one_of(
    st.just(Outcome.CONTINUE),
    st.sampled_from([o for o, rule in RULES.items() if rule.turn is Turn.RETRY]),
    st.sampled_from([Outcome.CONTINUE, Outcome.KILLED, *Outcome]),
)
answers = st.sampled_from([*[Answer.LANDED] * 4, *Answer])

policies = st.builds(
    Policy,
    chained=st.booleans(),
    gpu=st.booleans(),
    session_limit_s=st.sampled_from([20.0, 3600.0, 43200.0]),
    stop_before_s=st.sampled_from([0.0, 5.0, 600.0, 100000.0]),
    quota_reserve_s=st.sampled_from([0.0, 1800.0]),
    min_leg_s=st.sampled_from([0.0, 1800.0]),
    max_legs=st.integers(1, 6),
    max_gpu_hours=st.sampled_from([0.001, 5.0, 60.0]),
    retries=st.integers(0, 3),
)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(policy=policies, draw=st.data())
def test_whatever_kaggle_does(policy: Policy, draw: st.DataObject) -> None:
    world = World(policy, draw)
    for _ in range(60):
        seen = world.observation()
        action = decide(seen, world.now)
        assert action == decide(seen, world.now), "the same facts, another decision"
        world.apply(seen, action)
        assert len(world.running) <= 1
        check_budgets(world)
        if isinstance(action, Finish | Fail | Stop | Refuse):
            later = decide(seen, world.now + 1e6)
            assert type(later) is type(action), "an end that time undoes"
            return


def check_budgets(world: World) -> None:
    policy, seen = world.policy, world.observation()
    used = sum(a.session_s for a in seen.attempts if a.phase is Phase.ENDED)
    if policy.gpu and policy.chained:
        assert used <= policy.max_gpu_hours * 3600 + 1
    if policy.chained:
        assert len(seen.legs) <= policy.max_legs
    gains = [step_of(a) for a in seen.legs if policy.chained]
    assert gains == sorted(set(gains))
    for leg in {a.leg for a in seen.attempts}:
        ended = [a for a in seen.attempts if a.leg == leg and a.phase is Phase.ENDED]
        ended = [a for a in ended if not (a.gained and policy.chained)]
        counted = [a for a in ended if RULES[outcome_of(a)].turn is Turn.RETRY]
        for budget in {RULES[outcome_of(a)].budget for a in counted}:
            failures = [a for a in counted if RULES[outcome_of(a)].budget is budget]
            tries = RULES[outcome_of(failures[0])].tries
            assert len(failures) <= 1 + (policy.retries if tries is None else tries)
        persons = [a for a in seen.attempts if a.outcome and RULES[outcome_of(a)].turn in (Turn.PERSON, Turn.STOP)]
        assert len(persons) <= 1, "went on although a person was needed"
