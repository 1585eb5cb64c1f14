"""The verdict on an attempt from what Kaggle says of it, including what Kaggle says wrongly.

A stand-in gives the answers: those of a healthy Kaggle are tried against the real local one in ``test_chain``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from kaggle_orchestrator.chain.judge import OUTPUT_S, OVERDUE_S, SILENT_S, STALE_S, look, result_due
from kaggle_orchestrator.chain.model import Attempt, Phase
from kaggle_orchestrator.chain.pair import Half
from kaggle_orchestrator.errors import NotAccessible, Unavailable
from kaggle_orchestrator.models import KernelRef, OutputFile, OutputListing, SessionStatus, StatusReport
from kaggle_orchestrator.protocol import LEG_RESULT, FileDigest, LegResult, Outcome
from kaggle_orchestrator.protocol.result import ResultState
from tests.chain.facts import NOW, PAIR, ended, live, parent_of, result

TIME_LIMIT = "Your notebook was stopped because it exceeded the max allowed execution duration."
MEMORY = "Your notebook tried to allocate more memory than is available."
LOG = ("kgo: leg 1, attempt 1",)
ATTEMPT = replace(live(), session_limit_s=36000.0, running_since=NOW - 900)


@dataclass
class Said:
    """A Kaggle that says what it's told to."""

    status_: SessionStatus | Exception
    message: str = ""
    files: Sequence[str] = ()
    log: Sequence[str] = LOG
    leg: LegResult | None = None
    denied: bool = False
    asked: list[int] = field(default_factory=list)

    def status(self, ref: KernelRef, version: int) -> StatusReport:
        self.asked.append(version)
        if isinstance(self.status_, Exception):
            raise self.status_
        return StatusReport(self.status_, self.message)

    def read(self, ref: KernelRef, version: int, name: str) -> bytes | None:
        self.asked.append(version)
        assert name == LEG_RESULT
        return self.leg.dumps().encode() if self.leg else None

    def outputs(self, ref: KernelRef, version: int) -> OutputListing:
        self.asked.append(version)
        if self.denied:
            raise NotAccessible("not here")
        names = [*self.files, *([LEG_RESULT] if self.leg else [])]
        return OutputListing(tuple(OutputFile(n, "http://x") for n in names), tuple(self.log))


def judged(said: Said, attempt: Attempt = ATTEMPT, *, after_s: float = 0.0, past: bool = False) -> Attempt:
    """Look once, and again ``after_s`` later."""
    seen = look(said, PAIR.ref(attempt.kernel), attempt, NOW, past=past)
    if after_s and seen.phase is Phase.LIVE:
        seen = look(said, PAIR.ref(attempt.kernel), seen, NOW + after_s)
    assert set(said.asked) == {attempt.version}, "asked for another version"
    return seen


def complete(words: LegResult, *, files: Sequence[str] | None = None) -> Said:
    """A session that ended well; by default with all that its result names."""
    folder = f"{words.checkpoint.path}/" if words.checkpoint else ""
    everything = [*words.outputs, *([folder + "manifest.json"] if folder else [])]
    return Said(SessionStatus.COMPLETE, leg=words, files=everything if files is None else files)


def with_outputs(words: LegResult) -> LegResult:
    assert words.checkpoint is not None
    names = [f"{words.checkpoint.path}/state.pt", "final/model.pt"]
    return replace(words, outputs={n: FileDigest("00", 1) for n in names})


GOOD = with_outputs(result(ATTEMPT, Outcome.CONTINUE, 100))


@pytest.mark.parametrize("status", [SessionStatus.QUEUED, SessionStatus.RUNNING, SessionStatus.CANCEL_REQUESTED])
def test_a_session_that_goes_on_isnt_judged(status: SessionStatus) -> None:
    seen = judged(Said(status, leg=GOOD))
    assert (seen.phase, seen.status) == (Phase.LIVE, status)


def test_the_start_is_noted_once() -> None:
    fresh = replace(ATTEMPT, running_since=None)
    assert judged(Said(SessionStatus.QUEUED), fresh).running_since is None
    assert judged(Said(SessionStatus.RUNNING), fresh, after_s=50).running_since == NOW


def test_its_own_result_is_the_verdict() -> None:
    seen = judged(complete(GOOD))
    assert (seen.outcome, seen.result, seen.ended_at) == (Outcome.CONTINUE, GOOD, GOOD.ended_at)
    assert seen.gained


def test_its_own_result_counts_above_a_wrong_status() -> None:
    done = with_outputs(result(ATTEMPT, Outcome.DONE, 100))
    seen = judged(replace_status(complete(done), SessionStatus.CANCEL_ACKNOWLEDGED, TIME_LIMIT))
    assert seen.outcome is Outcome.DONE


def replace_status(said: Said, status: SessionStatus, message: str = "") -> Said:
    return Said(status, message, said.files, said.log, said.leg)


def test_the_last_log_line_does_when_the_outputs_were_dropped() -> None:
    failed = replace(result(ATTEMPT, Outcome.USER_ERROR, None), message="ValueError")
    seen = judged(Said(SessionStatus.ERROR, log=[*LOG, failed.log_line()]))
    assert (seen.outcome, seen.message) == (Outcome.USER_ERROR, "ValueError")


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GOOD, token="another's"),
        replace(GOOD, state=ResultState.RUNNING),
        replace(GOOD, outcome=None),
    ],
    ids=["another's token", "still running", "no outcome"],
)
def test_only_a_final_result_with_the_right_token_counts(wrong: LegResult) -> None:
    assert judged(Said(SessionStatus.ERROR, leg=wrong), after_s=60).outcome is Outcome.KILLED
    assert judged(Said(SessionStatus.ERROR, log=[*LOG, wrong.log_line()]), after_s=60).outcome is Outcome.KILLED


def test_a_target_told_of_by_the_log_doesnt_wait_for_the_result_file() -> None:
    done = with_outputs(result(ATTEMPT, Outcome.DONE, 100))
    log = [*LOG, done.log_line()]
    assert judged(Said(SessionStatus.COMPLETE, log=log, files=["final/model.pt"])).outcome is Outcome.DONE
    # With nothing listed at all the listing is late, or the output was dropped.
    assert judged(Said(SessionStatus.COMPLETE, log=log)).phase is Phase.LIVE
    assert judged(Said(SessionStatus.COMPLETE, log=log), after_s=OUTPUT_S).outcome is Outcome.OUTPUT_LOST


def test_a_gain_told_of_by_the_log_needs_its_checkpoint_only() -> None:
    log, manifest = [*LOG, GOOD.log_line()], "checkpoints/step-00000100/manifest.json"
    assert judged(Said(SessionStatus.COMPLETE, log=log, files=[manifest])).outcome is Outcome.CONTINUE
    assert judged(Said(SessionStatus.COMPLETE, log=log, files=["final/model.pt"])).phase is Phase.LIVE


def test_it_says_until_when_a_result_is_waited_for() -> None:
    assert result_due(ATTEMPT) is None
    for said in (Said(SessionStatus.COMPLETE), Said(SessionStatus.ERROR, log=())):
        late = judged(said)
        due = result_due(late)
        assert due is not None
        assert judged(said, late, after_s=due - NOW - 1).phase is Phase.LIVE
        assert judged(said, late, after_s=due - NOW).phase is Phase.ENDED


def test_a_gain_needs_its_files_for_ten_minutes() -> None:
    for missing in (["final/model.pt"], [n for n in complete(GOOD).files if not n.endswith("manifest.json")]):
        assert judged(complete(GOOD, files=missing)).phase is Phase.LIVE
        assert judged(complete(GOOD, files=missing), after_s=OUTPUT_S - 1).phase is Phase.LIVE
        lost = judged(complete(GOOD, files=missing), after_s=OUTPUT_S)
        assert lost.outcome is Outcome.OUTPUT_LOST
        assert not lost.gained
    late = look(complete(GOOD), PAIR.ref(Half.A), judged(complete(GOOD, files=[])), NOW + 60)
    assert late.outcome is Outcome.CONTINUE


def test_a_gain_that_cant_be_mounted_is_lost() -> None:
    seen = judged(replace_status(complete(GOOD), SessionStatus.ERROR))
    assert seen.outcome is Outcome.OUTPUT_LOST
    assert "can't be mounted" in seen.reason


def test_what_isnt_needed_may_be_missing() -> None:
    failed = with_outputs(result(ATTEMPT, Outcome.USER_ERROR, 100))
    assert failed.checkpoint is not None
    folder = failed.checkpoint.path
    seen = judged(complete(failed, files=[f"{folder}/state.pt", f"{folder}/manifest.json"]))
    assert seen.outcome is Outcome.USER_ERROR
    assert seen.gained


def test_a_leg_that_gained_nothing_made_no_progress() -> None:
    parent = parent_of(ended(1, step=100))
    again = live(2, leg=2, kernel=Half.B, parent=parent)
    idle = result(again, Outcome.CONTINUE, 100)
    assert judged(replace_status(complete(idle), SessionStatus.ERROR), again).outcome is Outcome.NO_PROGRESS
    assert judged(complete(idle), again).outcome is Outcome.NO_PROGRESS


def test_complete_without_a_word_may_be_the_version_before() -> None:
    said = Said(SessionStatus.COMPLETE)
    assert judged(said, after_s=OUTPUT_S - 1).phase is Phase.LIVE
    assert judged(Said(SessionStatus.COMPLETE), after_s=OUTPUT_S).outcome is Outcome.OUTPUT_LOST
    # It was: now it runs, and what was seen doesn't count.
    runs = look(Said(SessionStatus.RUNNING), PAIR.ref(Half.A), judged(said), NOW + 60)
    assert (runs.phase, runs.terminal_since) == (Phase.LIVE, None)


@pytest.mark.parametrize(
    ("status", "message", "outcome"),
    [
        (SessionStatus.CANCEL_ACKNOWLEDGED, TIME_LIMIT, Outcome.KILLED),
        (SessionStatus.ERROR, MEMORY, Outcome.OOM),
        (SessionStatus.ERROR, "", Outcome.KILLED),
        (SessionStatus.CANCEL_ACKNOWLEDGED, "", Outcome.STOPPED),
    ],
)
def test_without_a_word_the_status_speaks_once_it_has_settled(
    status: SessionStatus, message: str, outcome: Outcome
) -> None:
    assert judged(Said(status, message)).phase is Phase.LIVE
    seen = judged(Said(status, message), after_s=60)
    assert (seen.outcome, seen.ended_at) == (outcome, NOW)


def test_a_cancel_near_the_limit_is_the_limit() -> None:
    old = replace(ATTEMPT, running_since=NOW - 0.95 * ATTEMPT.session_limit_s)
    assert judged(Said(SessionStatus.CANCEL_ACKNOWLEDGED), old, after_s=60).outcome is Outcome.KILLED


def test_a_session_that_left_no_log_is_doubted_longer() -> None:
    assert judged(Said(SessionStatus.ERROR, log=()), after_s=SILENT_S - 1).phase is Phase.LIVE
    assert judged(Said(SessionStatus.ERROR, log=()), after_s=SILENT_S).outcome is Outcome.KILLED
    assert judged(Said(SessionStatus.ERROR, denied=True), after_s=SILENT_S).outcome is Outcome.KILLED


def test_short_sessions_are_judged_sooner() -> None:
    short = replace(ATTEMPT, session_limit_s=20.0)
    assert judged(Said(SessionStatus.ERROR), short, after_s=0.5).outcome is Outcome.KILLED


def test_once_a_later_attempt_is_known_nothing_is_waited_for() -> None:
    assert judged(Said(SessionStatus.COMPLETE), past=True).outcome is Outcome.OUTPUT_LOST
    assert judged(Said(SessionStatus.ERROR, log=()), past=True).outcome is Outcome.KILLED


def test_a_new_kernel_may_be_denied_for_a_while() -> None:
    fresh = replace(ATTEMPT, pushed_at=NOW)
    denied = NotAccessible("403")
    assert judged(Said(denied), fresh) == fresh
    with pytest.raises(NotAccessible):
        judged(Said(denied), replace(ATTEMPT, pushed_at=NOW - STALE_S))


def test_when_kaggle_doesnt_answer_nothing_is_concluded() -> None:
    with pytest.raises(Unavailable):
        judged(Said(Unavailable("500")))


def test_a_dead_session_that_reads_running_is_given_up_in_the_end() -> None:
    old = replace(ATTEMPT, running_since=NOW - ATTEMPT.session_limit_s - OVERDUE_S + 1)
    assert judged(Said(SessionStatus.RUNNING, leg=GOOD), old).phase is Phase.LIVE
    seen = judged(Said(SessionStatus.RUNNING), old, after_s=2)
    assert seen.outcome is Outcome.KILLED
