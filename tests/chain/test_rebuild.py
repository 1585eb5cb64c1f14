"""A lost journal: the chain is read back from the versions of both kernels, and training never starts from zero."""

import shutil
from dataclasses import replace

import pytest

from kaggle_orchestrator.chain import Attempt, Finish, Options, Phase, Push, Wait, Why
from kaggle_orchestrator.chain.events import Rebuilt
from kaggle_orchestrator.errors import ChainError, ChainLive, ForeignKernel
from kaggle_orchestrator.localkaggle import admin
from kaggle_orchestrator.models import KernelRef, PushRequest
from kaggle_orchestrator.protocol import Outcome
from tests.chain.conftest import Lab
from tests.chain.local import state_after

CHAIN = 'session_limit = "5s", stop_before = "2s"'


def essence(attempt: Attempt) -> Attempt:
    """Without what only the controller that pushed it could know."""
    return replace(
        attempt, intended_at=0, pushed_at=0, running_since=0, terminal_since=0, ended_at=0, leave_after_s=None,
        session_limit_s=0, message="", reason="",
    )  # fmt: skip


def test_a_chain_goes_on_after_its_journal_was_lost(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 80, step_s = 0.03", chain=CHAIN)
    kill = {"kernel": f"me/{experiment.kernel.slug}", "when_output": "checkpoints/*/manifest.json", "as": "error"}
    admin.add_faults(lab.url, [{"kill_session": kill}])
    chain = lab.chain(experiment)
    while not any(a.gained for a in chain.book.attempts) if chain.seen else True:
        chain.tick()
    before = chain.book.attempts
    assert [a.outcome for a in before][:2] == [Outcome.KILLED, Outcome.CONTINUE]
    shutil.rmtree(experiment.root / ".kgo")

    again = lab.chain(experiment)
    again.observe()
    judged = [a for a in again.book.attempts if a.phase is Phase.ENDED]
    assert [essence(a) for a in judged][:2] == [essence(a) for a in before][:2]
    finish = again.drive(lab.events.append)
    assert isinstance(finish, Finish)
    assert lab.state(experiment, finish.attempt) == state_after(80)
    starts = [a.start_step for a in again.book.attempts]
    assert starts.count(0) == 2  # the killed one and the leg it was
    sessions = len(lab.sessions(experiment))
    assert sessions == len(again.book.attempts)

    # A finished chain is known to be finished, on any machine.
    elsewhere = lab.experiment(
        folder="elsewhere", slug=experiment.kernel.slug, params="steps = 80, step_s = 0.03", chain=CHAIN
    )
    there = lab.chain(elsewhere)
    found = there.drive(lab.events.append)
    assert isinstance(found, Finish)
    assert essence(found.attempt) == essence(finish.attempt)
    assert lab.told(Rebuilt)[-1] == Rebuilt(len(again.book.attempts))
    assert len(lab.sessions(experiment)) == sessions


def test_a_session_under_way_is_taken_up_again(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 30, step_s = 0.03")
    assert isinstance(lab.chain(experiment).tick(), Push)
    shutil.rmtree(experiment.root / ".kgo")
    finish = lab.chain(experiment).drive()
    assert isinstance(finish, Finish)
    assert len(lab.sessions(experiment)) == 1


def test_a_kernel_that_is_listed_but_denied_isnt_taken_for_absent(lab: Lab) -> None:
    experiment = lab.experiment()
    finish = lab.chain(experiment).drive()
    assert isinstance(finish, Finish)
    shutil.rmtree(experiment.root / ".kgo")
    admin.add_faults(lab.url, [{"rpc": "GetKernel", "number": 1, "status": 404}])
    chain = lab.chain(experiment)
    wait = chain.tick()
    assert isinstance(wait, Wait)
    assert wait.why is Why.NETWORK
    again = chain.drive()
    assert isinstance(again, Finish)
    assert again.attempt.token == finish.attempt.token
    assert len(lab.sessions(experiment)) == 1


def test_the_newest_generation_is_the_one_that_is_read_back(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 20, step_s = 0.0")
    lab.chain(experiment).drive()
    lab.chain(experiment, options=Options(new=True)).drive()
    shutil.rmtree(experiment.root / ".kgo")
    chain = lab.chain(experiment)
    assert isinstance(chain.drive(), Finish)
    assert chain.book.record.generation == 2
    assert [(a.number, a.version) for a in chain.book.attempts] == [(1, 2)]


def test_a_kernel_that_isnt_ours_is_refused_unless_taken_over(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 20, step_s = 0.0")
    ref = KernelRef("me", experiment.kernel.slug)
    lab.kaggle.push(PushRequest(ref, experiment.kernel.title, "print('mine')"))
    with pytest.raises(ForeignKernel, match="kgo didn't push it") as refused:
        lab.chain(experiment).drive()
    assert "--take-over" in str(refused.value.hint)
    assert len(lab.sessions(experiment)) == 1
    finish = lab.chain(experiment, options=Options(take_over=True)).drive()
    assert isinstance(finish, Finish)
    assert (finish.attempt.version, finish.attempt.parent) == (2, None)
    # Once taken over, it's ours, also without the journal.
    shutil.rmtree(experiment.root / ".kgo")
    assert isinstance(lab.chain(experiment).drive(), Finish)


def test_versions_that_are_gone_are_told_and_only_a_new_chain_gets_past_that(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 20, step_s = 0.0")
    chain = lab.chain(experiment)
    chain.drive()
    # As if the kernel had been deleted: the journal knows more versions than Kaggle.
    chain.book.put(replace(chain.book.attempts[0], pushed_at=0.0), "aged")
    chain.book.saw(chain.book.attempts[0].kernel, 7)
    with pytest.raises(ChainError, match="knows v7") as gone:
        lab.chain(experiment).drive()
    assert "--new" in str(gone.value.hint)
    finish = lab.chain(experiment, options=Options(new=True)).drive()
    assert isinstance(finish, Finish)
    assert finish.attempt.version == 2


def test_a_new_chain_isnt_begun_beside_a_live_session(lab: Lab) -> None:
    experiment = lab.experiment(params="steps = 30, step_s = 0.03")
    lab.chain(experiment).tick()
    with pytest.raises(ChainLive):
        lab.chain(experiment, options=Options(new=True)).tick()
    assert len(lab.sessions(experiment)) == 1
