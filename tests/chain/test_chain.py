"""Chains through the real client, the real local Kaggle and real sessions, up to their target or a person's turn."""

import itertools

import pytest

from kaggle_orchestrator.chain import Fail, Finish, Options, Push, Wait, Why
from kaggle_orchestrator.chain.events import Accepted, Ended, Pushed
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.errors import Edited
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.protocol import Outcome
from tests.chain.conftest import Lab
from tests.chain.local import state_after


def test_a_chain_with_a_kill_ends_where_an_uninterrupted_training_does(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 250, step_s = 0.02", chain='session_limit = "7s", stop_before = "4s"')
    kill = {"kernel": f"me/{experiment.kernel.slug}-b", "when_output": "checkpoints/*/manifest.json", "after_s": 0.1}
    admin.add_faults(lab.url, [{"kill_session": kill}])
    chain = lab.chain(experiment)
    finish = chain.drive(lab.events.append)

    assert isinstance(finish, Finish)
    assert lab.state(experiment, finish.attempt) == state_after(250)
    attempts = chain.book.attempts
    assert attempts[1].outcome is Outcome.KILLED
    won = [a for a in attempts if a.outcome is not Outcome.KILLED]
    assert len(won) >= 3
    assert [a.outcome for a in won] == [*[Outcome.CONTINUE] * (len(won) - 1), Outcome.DONE]
    assert [a.leg for a in won] == list(range(1, len(won) + 1))
    # Each leg starts from where the last one that counts ended, on the other kernel.
    for before, after in itertools.pairwise(won):
        assert after.parent is not None
        assert before.result is not None
        assert before.result.checkpoint is not None
        assert after.kernel is before.kernel.other
        assert (after.parent.token, after.parent.sha256) == (before.token, before.result.checkpoint.sha256)
        assert after.result is not None
        assert after.result.step_start == before.result.step_end
    killed, again = attempts[1], attempts[2]
    assert (again.kernel, again.parent) == (killed.kernel, killed.parent)
    assert killed.leave_after_s is not None
    assert again.leave_after_s == killed.leave_after_s / 2
    # The server's record: one session an attempt, never two at a time, and no dawdling in between.
    sessions = lab.sessions(experiment)
    assert len(sessions) == len(attempts)
    for session, following in itertools.pairwise(sessions):
        assert session.ended is not None
        assert following.started is not None
        assert 0 <= following.started - session.ended < 5.0


def test_a_failure_stays_until_its_code_is_changed(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 30, step_s = 0.0, fail_at = 5")
    fail = lab.chain(experiment).drive(lab.events.append)
    assert isinstance(fail, Fail)
    assert fail.outcome is Outcome.USER_ERROR
    assert "bad batch at step 5" in fail.message
    # Called again, nothing is pushed; nothing was gained, so an edit needs nobody's word.
    assert lab.chain(experiment).drive() == fail
    assert len(lab.sessions(experiment)) == 1
    train = experiment.root / "train.py"
    train.write_text(train.read_text().replace('PARAMS.get("fail_at")', "None"))
    finish = lab.chain(experiment).drive()
    assert isinstance(finish, Finish)
    assert (finish.attempt.leg, finish.attempt.number, finish.attempt.kernel) == (1, 2, Half.A)


def test_a_failure_after_a_gain_an_edit_in_mid_chain_and_a_new_chain(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 30, step_s = 0.0, fail_at = 25")
    assert isinstance(lab.chain(experiment).drive(), Fail)
    # Retrying goes on from the gain, and fails again.
    fail = lab.chain(experiment, options=Options(retry=True)).drive(lab.events.append)
    assert isinstance(fail, Fail)
    ended = [e for e in lab.events if isinstance(e, Ended)]
    assert [(e.attempt.leg, e.attempt.start_step) for e in ended] == [(2, 20)]

    train = experiment.root / "train.py"
    train.write_text(train.read_text().replace('PARAMS.get("fail_at")', "None"))
    (experiment.root / "extra.py").write_text("# new\n")
    with pytest.raises(Edited, match=r"extra.py \(new\), train.py") as edited:
        lab.chain(experiment).drive()
    assert "--accept-changes" in str(edited.value.hint)
    assert len(lab.sessions(experiment)) == 2

    finish = lab.chain(experiment, options=Options(accept_changes=True)).drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert lab.told(Accepted) == [Accepted(("extra.py (new)", "train.py"))]
    assert finish.attempt.start_step == 20
    assert lab.state(experiment, finish.attempt) == state_after(30)

    # Edited after the end: who calls again is told, and may start over, from nothing.
    edited_again = lab.experiment(slug=experiment.kernel.slug, params="steps = 15, step_s = 0.0")
    with pytest.raises(Edited, match=r"train.params.steps \(30 → 15\)"):
        lab.chain(edited_again).drive()
    finish = lab.chain(edited_again, options=Options(new=True)).drive()
    assert isinstance(finish, Finish)
    assert (finish.attempt.leg, finish.attempt.number, finish.attempt.parent) == (1, 1, None)
    assert lab.state(experiment, finish.attempt) == state_after(15)
    assert lab.chain(edited_again).drive() == finish


def test_no_progress_twice_needs_a_person(lab: Lab) -> None:
    experiment = lab.experiment(
        params="steps = 1000, step_s = 0.05, never_saves = true", chain='session_limit = "3s", stop_before = "2s"'
    )
    fail = lab.chain(experiment).drive(lab.events.append)
    assert isinstance(fail, Fail)
    assert fail.outcome is Outcome.NO_PROGRESS
    assert [s.status for s in lab.sessions(experiment)] == [SessionStatus.ERROR] * 2


def test_a_one_off_is_pushed_anew_each_time_to_one_kernel(lab: Lab) -> None:
    experiment = lab.experiment(chain=None)
    for version in (1, 2):
        finish = lab.chain(experiment).drive()
        assert isinstance(finish, Finish)
        assert (finish.attempt.version, finish.attempt.kernel, finish.attempt.parent) == (version, Half.A, None)
    # Looking only, as cron does, pushes nothing while the experiment is what it was.
    assert lab.chain(experiment, options=Options(fresh=False)).tick() == finish
    assert len(lab.sessions(experiment)) == 2


def test_a_one_off_under_way_is_gone_on_with(lab: Lab) -> None:
    experiment = lab.experiment(chain=None, params="steps = 30, step_s = 0.03")
    assert isinstance(lab.chain(experiment).tick(), Push)
    finish = lab.chain(experiment).drive()
    assert isinstance(finish, Finish)
    assert len(lab.sessions(experiment)) == 1


def test_a_session_cap_is_waited_out_and_costs_nothing(lab: Lab) -> None:
    experiment = lab.experiment()
    admin.set_knobs(lab.url, {"cpu_sessions": 0})
    try:
        chain = lab.chain(experiment)
        wait = chain.tick()
        assert isinstance(wait, Wait)
        assert wait.why is Why.SESSION_CAP
        assert chain.book.attempts == ()
        # Another controller knows it too, and doesn't hammer.
        again = lab.chain(experiment).tick()
        assert isinstance(again, Wait)
        assert again.until == wait.until
    finally:
        admin.set_knobs(lab.url, {"cpu_sessions": 5})
    finish = lab.chain(experiment).drive()
    assert isinstance(finish, Finish)
    assert finish.attempt.number == 1


def test_too_little_quota_parks_the_chain_until_the_refresh(lab: Lab) -> None:
    experiment = lab.experiment(
        kernel='accelerator = "T4x2"', chain='session_limit = "20s", stop_before = "10s", quota_reserve = "1s"'
    )
    admin.set_knobs(lab.url, {"gpu_quota_hours": 5 / 3600})
    try:
        wait = lab.chain(experiment).tick()
        assert isinstance(wait, Wait)
        assert wait.why is Why.QUOTA
        assert wait.until == lab.kaggle.quota().refresh_at
        admin.set_knobs(lab.url, {"gpu_quota_hours": 16 / 3600})
        chain = lab.chain(experiment)
        assert isinstance(chain.tick(), Push)
        # What is left of the quota bounds the session.
        assert chain.book.attempts[0].session_limit_s == lab.sessions(experiment)[0].limit_s == 15
    finally:
        admin.set_knobs(lab.url, {"gpu_quota_hours": 30})
    assert isinstance(lab.chain(experiment).drive(), Finish)


def test_a_push_whose_sources_were_dropped_is_a_failed_one(lab: Lab) -> None:
    experiment = lab.experiment(kernel='datasets = ["me/no-such-data"]')
    fail = lab.chain(experiment).drive(lab.events.append)
    assert isinstance(fail, Fail)
    assert "me/no-such-data" in fail.message
    assert not lab.told(Pushed)
    assert lab.chain(experiment).drive() == fail
    assert len(lab.sessions(experiment)) == 1


def test_faults_of_the_network_cost_no_budget(lab: Lab) -> None:
    experiment = lab.experiment(chain='session_limit = "20s", stop_before = "10s", retries = 0')
    chain = lab.chain(experiment)
    chain.tick()
    faults = [{"rpc": "GetKernelSessionStatus", "number": n, "status": 502} for n in (1, 2)]
    admin.add_faults(lab.url, [*faults, {"rpc": "ListKernelSessionOutput", "number": 1, "status": 429}])
    waits = [chain.tick() for _ in range(2)]
    assert [w.why for w in waits if isinstance(w, Wait)] == [Why.NETWORK] * 2
    finish = chain.drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert finish.attempt.number == 1
