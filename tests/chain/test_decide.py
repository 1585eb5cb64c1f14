"""Each situation and the one thing that is done in it."""

from dataclasses import replace

import pytest

from kaggle_orchestrator.chain.budget import RULES, Turn
from kaggle_orchestrator.chain.decide import ABSENT_S, decide, next_refresh
from kaggle_orchestrator.chain.judge import OUTPUT_S
from kaggle_orchestrator.chain.model import Bound, Fail, Finish, Observation, Park, Push, Refuse, Stop, Wait, Why
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.models import Quota, SessionStatus
from kaggle_orchestrator.protocol import Outcome
from tests.chain.facts import (
    EDITED,
    GPU,
    NOW,
    ONE_OFF,
    POLICY,
    ended,
    intended,
    live,
    observation,
    parent_of,
)

LEG1 = ended(1, step=100)
LEG2 = ended(2, step=200, leg=2, kernel=Half.B, parent=parent_of(LEG1))
LATER = NOW + 10 * 86400  # after every wait


def pushed(seen: Observation, now: float = LATER) -> Push:
    action = decide(seen, now)
    assert isinstance(action, Push), action
    return action


def waited(seen: Observation, now: float = NOW) -> Wait:
    action = decide(seen, now)
    assert isinstance(action, Wait), action
    return action


def failed(seen: Observation, now: float = LATER) -> Fail:
    action = decide(seen, now)
    assert isinstance(action, Fail), action
    return action


def test_every_outcome_has_a_rule() -> None:
    assert set(RULES) == set(Outcome)


def test_every_outcome_that_needs_a_person_says_what_to_do() -> None:
    assert all(rule.hint for rule in RULES.values() if rule.turn in (Turn.PERSON, Turn.RETRY, Turn.STOP))


def test_the_first_leg_goes_to_the_first_kernel_from_nothing() -> None:
    push = pushed(observation(), NOW)
    assert (push.leg, push.number, push.kernel, push.parent) == (1, 1, Half.A, None)
    assert push.session_limit_s == 36000
    assert push.leave_after_s == 36000 - 600


def test_the_next_leg_goes_to_the_other_kernel_and_mounts_the_first() -> None:
    push = pushed(observation(LEG1), NOW)
    assert (push.leg, push.number, push.kernel) == (2, 2, Half.B)
    assert push.parent == parent_of(LEG1)
    assert push.parent.kernel == "me/x"


def test_the_third_leg_comes_back_to_the_first_kernel() -> None:
    push = pushed(observation(LEG1, LEG2), NOW)
    assert (push.leg, push.kernel) == (3, Half.A)
    assert push.parent is not None
    assert (push.parent.kernel, push.parent.step) == ("me/x-b", 200)


def test_a_killed_attempt_is_repeated_where_it_was_from_what_it_had() -> None:
    killed = ended(2, Outcome.KILLED, leg=2, kernel=Half.B, parent=parent_of(LEG1))
    push = pushed(observation(LEG1, killed))
    assert (push.leg, push.number, push.kernel, push.parent) == (2, 3, Half.B, parent_of(LEG1))


def test_a_killed_first_attempt_goes_to_the_first_kernel_again() -> None:
    assert pushed(observation(ended(1, Outcome.KILLED))).kernel is Half.A


def test_after_each_kill_of_a_leg_half_the_length_is_planned() -> None:
    killed = [ended(n, Outcome.KILLED) for n in (1, 2, 3)]
    assert [pushed(observation(*killed[:n])).leave_after_s for n in (1, 2, 3)] == [17700, 8850, 4425]


def test_a_kill_in_an_earlier_leg_doesnt_shorten_this_one() -> None:
    won = ended(2, step=100)
    assert pushed(observation(ended(1, Outcome.KILLED), won)).leave_after_s == 35400


def test_while_a_session_lives_nothing_else_is_done() -> None:
    assert waited(observation(LEG1, live(2, leg=2))).why is Why.SESSION
    # Not even when the code was edited, the legs are used up, or another push would be possible.
    edited = replace(observation(LEG1, live(2, leg=2), policy=replace(POLICY, max_legs=1)), current=EDITED)
    assert waited(edited).why is Why.SESSION


def test_a_push_in_doubt_is_waited_for_and_then_repeated_as_the_same_attempt() -> None:
    unsure = replace(intended(2, leg=2, kernel=Half.B, parent=parent_of(LEG1)), absent_since=NOW)
    assert waited(observation(LEG1, replace(unsure, absent_since=None))).why is Why.LANDING
    wait = waited(observation(LEG1, unsure), NOW + ABSENT_S - 1)
    assert wait.why is Why.LANDING
    assert wait.until == NOW + ABSENT_S
    push = pushed(observation(LEG1, unsure), NOW + ABSENT_S)
    assert push.again
    assert (push.leg, push.number, push.kernel, push.parent) == (2, 2, Half.B, parent_of(LEG1))


def test_done_finishes() -> None:
    done = ended(1, Outcome.DONE, step=100)
    assert decide(observation(done), NOW) == Finish(done)


def test_done_finishes_even_when_the_files_were_edited_since_and_says_so() -> None:
    done = ended(1, Outcome.DONE, step=100)
    seen = replace(observation(done), current=EDITED, changed=("train.py",))
    assert decide(seen, NOW) == Finish(done, ("train.py",))


@pytest.mark.parametrize("outcome", [Outcome.KILLED, Outcome.OUTPUT_LOST, Outcome.HUNG, Outcome.PLATFORM_ERROR])
def test_faults_are_retried_with_growing_waits_and_then_need_a_person(outcome: Outcome) -> None:
    attempts = [ended(n, outcome) for n in range(1, 5)]
    waits = []
    for n in (1, 2, 3):
        wait = waited(observation(*attempts[:n]), NOW - 100)
        assert wait.why is Why.BACKOFF
        waits.append(wait.until - (NOW - 100))
        assert pushed(observation(*attempts[:n]), wait.until).number == n + 1
    assert waits == [60, 240, 720]  # 960, cut to 2 % of the session limit
    fail = failed(observation(*attempts))
    assert (fail.bound, fail.outcome) == (Bound.RETRIES, outcome)
    assert "4 times" in fail.message


def test_one_failure_without_retries_is_told_as_one() -> None:
    message = failed(observation(ended(1, Outcome.KILLED), policy=ONE_OFF)).message
    assert message.startswith("Attempt 1 of leg 1 ended as killed")


def test_a_late_result_is_waited_for_by_name_and_with_an_end() -> None:
    late = replace(live(), running_since=NOW - 900, status=SessionStatus.COMPLETE, terminal_since=NOW - 10)
    wait = waited(observation(late))
    deadline = NOW - 10 + OUTPUT_S
    assert (wait.why, wait.deadline) == (Why.RESULT, deadline)
    assert "COMPLETE" in wait.message
    assert NOW < wait.until <= deadline
    # The look that settles it isn't slept through.
    assert waited(observation(late), deadline - 0.5).until == deadline


def test_the_four_kinds_of_fault_share_one_budget() -> None:
    kinds = [Outcome.KILLED, Outcome.HUNG, Outcome.PLATFORM_ERROR, Outcome.OUTPUT_LOST]
    attempts = [ended(n, outcome) for n, outcome in enumerate(kinds, 1)]
    assert failed(observation(*attempts)).bound is Bound.RETRIES


def test_a_leg_that_was_won_gives_the_budget_back() -> None:
    lost = [ended(n, Outcome.KILLED) for n in (1, 2, 3)]
    again = [ended(n, Outcome.KILLED, leg=2, kernel=Half.B) for n in (5, 6, 7)]
    assert pushed(observation(*lost, ended(4, step=100), *again)).number == 8


@pytest.mark.parametrize(
    ("outcome", "tries"), [(Outcome.MOUNT_MISSING, 3), (Outcome.NO_GPU, 2), (Outcome.WRONG_GPU, 2)]
)
def test_budgets_of_their_own(outcome: Outcome, tries: int) -> None:
    attempts = [ended(n, outcome) for n in range(1, tries + 2)]
    assert pushed(observation(*attempts[:tries])).number == tries + 1
    assert failed(observation(*attempts)).bound is Bound.RETRIES
    # They don't eat each other's budgets.
    assert pushed(observation(*attempts[:tries], ended(tries + 1, Outcome.KILLED))).number == tries + 2


def test_a_missing_mount_is_tried_again_at_once_a_missing_gpu_is_not() -> None:
    assert isinstance(decide(observation(ended(1, Outcome.MOUNT_MISSING)), NOW - 100), Push)
    assert waited(observation(ended(1, Outcome.NO_GPU)), NOW - 100).why is Why.BACKOFF


@pytest.mark.parametrize("outcome", [o for o, rule in RULES.items() if rule.turn is Turn.PERSON])
def test_what_only_a_person_can_mend_isnt_tried_again(outcome: Outcome) -> None:
    fail = failed(observation(ended(1, outcome)))
    assert (fail.bound, fail.outcome) == (Bound.OUTCOME, outcome)
    assert outcome in fail.message


def test_a_gain_followed_by_an_error_still_needs_a_person_and_is_gone_on_from() -> None:
    broken = ended(1, Outcome.USER_ERROR, step=100)
    assert failed(observation(broken)).outcome is Outcome.USER_ERROR
    push = pushed(replace(observation(broken), forgiven=1))
    assert (push.leg, push.parent) == (2, parent_of(broken))


def test_a_fault_after_a_gain_spends_no_retry() -> None:
    attempts = [replace(ended(n, Outcome.HUNG, step=100 * n, leg=n, parent=None), parent=None) for n in range(1, 8)]
    assert pushed(observation(*attempts)).leg == 8


def test_no_progress_twice_stops() -> None:
    idle = [ended(n, Outcome.NO_PROGRESS) for n in (1, 2)]
    assert pushed(observation(idle[0])).number == 2
    assert failed(observation(*idle)).outcome is Outcome.NO_PROGRESS


def test_a_continue_without_a_newer_checkpoint_counts_as_no_progress() -> None:
    again = ended(2, step=100, leg=2, kernel=Half.B, parent=parent_of(LEG1))  # ends where it began
    assert not again.gained
    assert pushed(observation(LEG1, again)).parent == parent_of(LEG1)
    assert failed(observation(LEG1, again, replace(again, number=3))).outcome is Outcome.NO_PROGRESS


def test_a_checkpoint_that_cant_be_mounted_isnt_gone_on_from() -> None:
    lost = replace(ended(2, step=200, leg=2, kernel=Half.B, parent=parent_of(LEG1)), status=SessionStatus.ERROR)
    assert pushed(observation(LEG1, replace(lost, outcome=Outcome.HUNG))).parent == parent_of(LEG1)


def test_another_attempts_checkpoint_in_the_output_isnt_a_gain() -> None:
    copied = ended(1, step=100)
    assert copied.result is not None
    assert copied.result.checkpoint is not None
    stolen = replace(copied.result, checkpoint=replace(copied.result.checkpoint, token="somebody else's"))
    assert not replace(copied, result=stolen).gained


def test_stopped_stays_stopped_until_a_person_goes_on() -> None:
    stopped = ended(1, Outcome.STOPPED)
    assert decide(observation(stopped), LATER) == Stop(stopped)
    assert pushed(replace(observation(stopped), forgiven=1)).number == 2


def test_max_legs() -> None:
    seen = observation(LEG1, LEG2, policy=replace(POLICY, max_legs=2))
    assert failed(seen).bound is Bound.MAX_LEGS
    assert pushed(replace(seen, policy=POLICY)).leg == 3


def test_gpu_hours_bound_the_chain_and_shorten_its_last_session() -> None:
    # A leg of these facts used 800 s.
    hours = (800 + 7200) / 3600
    push = pushed(observation(LEG1, policy=replace(GPU, max_gpu_hours=hours)))
    assert push.session_limit_s == 7200
    assert push.leave_after_s == 6600
    assert failed(observation(LEG1, policy=replace(GPU, max_gpu_hours=hours - 1.9))).bound is Bound.MAX_GPU_HOURS
    assert pushed(observation(LEG1, policy=replace(POLICY, max_gpu_hours=hours - 1.9))).session_limit_s == 36000


def test_a_killed_session_of_unknown_length_counts_in_full() -> None:
    assert replace(ended(1, Outcome.KILLED), pushed_at=None).session_s == 36000


def test_quota_shortens_a_session_and_parks_a_chain() -> None:
    seen = observation(LEG1, policy=GPU)
    some = Quota(used_s=90000, reserved_s=0, total_s=108000, refresh_at=NOW + 5000)
    assert pushed(replace(seen, quota=some)).session_limit_s == 18000 - 1800
    none = Quota(used_s=105000, reserved_s=0, total_s=108000, refresh_at=NOW + 5000)
    wait = waited(replace(seen, quota=none))
    assert (wait.why, wait.until) == (Why.QUOTA, NOW + 5000)
    unsaid = waited(replace(seen, quota=replace(none, refresh_at=None)))
    assert unsaid.until == next_refresh(NOW)


def test_an_attempt_ended_by_quota_costs_nothing_and_waits_for_the_refresh() -> None:
    attempts = [ended(n, Outcome.QUOTA) for n in range(1, 9)]
    wait = waited(observation(*attempts, policy=replace(GPU, max_gpu_hours=1e6)))
    assert (wait.why, wait.until) == (Why.QUOTA, next_refresh(NOW - 100))
    plenty = Quota(used_s=0, reserved_s=0, total_s=108000, refresh_at=None)
    known = replace(observation(*attempts, policy=replace(GPU, max_gpu_hours=1e6)), quota=plenty)
    assert pushed(known, NOW).number == 9


def test_the_refresh_is_saturday_midnight() -> None:
    assert next_refresh(0) == 2 * 86400  # the epoch was a Thursday
    assert next_refresh(2 * 86400) == 9 * 86400


def test_a_refused_push_is_parked_until_its_time() -> None:
    parked = replace(observation(LEG1), park=Park(NOW + 60, Why.SESSION_CAP, "Maximum batch CPU session count of 5"))
    assert waited(parked) == Wait(NOW + 60, Why.SESSION_CAP, "Maximum batch CPU session count of 5")
    assert pushed(parked, NOW + 60).number == 2


def test_an_edit_in_mid_chain_is_refused_by_name() -> None:
    seen = replace(observation(LEG1), current=EDITED, changed=("train.py",))
    assert decide(seen, NOW) == Refuse(("train.py",))
    # Once accepted, the chain goes on from where it was.
    assert pushed(replace(seen, pinned=EDITED, changed=())).parent == parent_of(LEG1)


def test_an_edit_before_anything_was_gained_is_free_and_clears_the_failure() -> None:
    broken = ended(1, Outcome.USER_ERROR)
    push = pushed(replace(observation(broken), current=EDITED, changed=("train.py",)))
    assert (push.leg, push.number) == (1, 2)


def test_a_done_chain_goes_on_when_an_edit_was_accepted() -> None:
    done = ended(1, Outcome.DONE, step=100)
    push = pushed(replace(observation(done), pinned=EDITED, current=EDITED))
    assert (push.leg, push.parent) == (2, parent_of(done))


def test_a_one_off_is_pushed_to_one_kernel_without_a_deadline() -> None:
    push = pushed(observation(policy=ONE_OFF), NOW)
    assert (push.kernel, push.leave_after_s, push.leg) == (Half.A, None, 1)
    done = ended(1, Outcome.DONE, step=100)
    assert decide(observation(done, policy=ONE_OFF), NOW) == Finish(done)
    again = pushed(replace(observation(done, policy=ONE_OFF), forgiven=1))
    assert (again.kernel, again.number, again.parent) == (Half.A, 2, None)


def test_a_one_off_that_was_killed_hints_at_a_chain() -> None:
    fail = failed(observation(ended(1, Outcome.KILLED), policy=ONE_OFF))
    assert "[chain]" in fail.hint


def test_a_one_off_doesnt_care_about_edits_while_it_ran() -> None:
    done = ended(1, Outcome.DONE, step=100)
    assert isinstance(decide(replace(observation(done, policy=ONE_OFF), current=EDITED), NOW), Finish)
