"""One leg, from the session's start to its exit code.

The result is written whatever happens: a failure of ours is an outcome like any other.
"""

import os
import shutil
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kaggle_orchestrator.protocol import Checkpoint, Outcome, Plan
from kaggle_orchestrator.runtime.supervisor import preflight
from kaggle_orchestrator.runtime.supervisor.environment import session_environment
from kaggle_orchestrator.runtime.supervisor.loadcheck import LoadCheck
from kaggle_orchestrator.runtime.supervisor.log import Log
from kaggle_orchestrator.runtime.supervisor.memory import oom_kills
from kaggle_orchestrator.runtime.supervisor.outputs import Outputs, bytes_below, reclaim, sweep
from kaggle_orchestrator.runtime.supervisor.places import Places
from kaggle_orchestrator.runtime.supervisor.plainscript import Wrapper, bring_back, drop_resume, is_wrapped, links
from kaggle_orchestrator.runtime.supervisor.process import Training
from kaggle_orchestrator.runtime.supervisor.report import Report
from kaggle_orchestrator.runtime.supervisor.restore import restore
from kaggle_orchestrator.runtime.supervisor.signals import Signals
from kaggle_orchestrator.runtime.supervisor.times import Limits, session_start, tail_s
from kaggle_orchestrator.runtime.supervisor.verdict import EndedBy, Facts, Unfit, Verdict, judge
from kaggle_orchestrator.runtime.supervisor.watch import Move, Watch
from kaggle_orchestrator.runtime.supervisor.words import duration, size, steps


def main(bundle: Path, *, environ: Mapping[str, str] | None = None, log: Log | None = None) -> int:
    """Run the attempt that a bundle describes.

    Args:
        bundle: Folder with ``plan.json``, ``src/`` and ``lib/``.
        environ: The session's environment; our own by default.
        log: Where to talk; our own two streams by default.

    Returns:
        The session's exit code: 0 only if the output holds a verified checkpoint newer than the one restored, or
        the target is reached.
    """
    environ = dict(os.environ if environ is None else environ)
    log = Log(environ=environ) if log is None else log
    begun = time.time()
    try:
        plan = Plan.load(bundle / "plan.json")
    except (OSError, ValueError) as error:
        log.say(f"the bundle can't be used: {error}")
        return 1
    places = Places.of(bundle, environ)
    limits = Limits.of(plan, environ, session_start(environ, begun, plan.session_limit_s))
    report = Report(plan, places.working, limits.start, log)
    leg = Leg(plan, places, environ, log, limits, report)
    with Signals() as signals:
        return leg.run(signals)


@dataclass(slots=True)
class Leg:
    """The state of the attempt as it goes on.

    Attributes:
        note: What was wrong with a newer checkpoint than the restored one.
        watch: The watch over training, once that was started.
    """

    plan: Plan
    places: Places
    environ: Mapping[str, str]
    log: Log
    limits: Limits
    report: Report
    note: str = ""
    watch: Watch | None = None
    outputs: Outputs = field(init=False)
    _loadcheck: LoadCheck | None = None
    _wrapper: Wrapper | None = None

    def __post_init__(self) -> None:
        self.outputs = Outputs(self.places.working)

    def run(self, signals: Signals) -> int:
        """The whole of it."""
        try:
            self.places.working.mkdir(parents=True, exist_ok=True)
            self.places.control.mkdir(parents=True, exist_ok=True)
            sweep(self.places.working)
            self.report.running()
            self._introduce()
            verdict = self._attempt(signals)
        except Unfit as unfit:
            message = unfit.message if unfit.hint is None else f"{unfit.message} {unfit.hint}"
            verdict = Verdict(unfit.outcome, unfit.reason, message)
        except Exception as error:
            verdict = self._own_failure(error)
        try:
            return self._conclude(verdict)
        except Exception as error:
            failure = self._own_failure(error)
            self.report.final(failure.outcome, failure.reason, failure.message)
            return 1
        finally:
            if self._loadcheck is not None:
                self._loadcheck.close()

    def _own_failure(self, error: Exception) -> Verdict:
        text = "".join(traceback.format_exception(error))
        self.log.say(f"the supervisor failed:\n{text}")
        return Verdict(Outcome.PLATFORM_ERROR, type(error).__name__, f"The supervisor failed: {error}")

    def _introduce(self) -> None:
        header, now = self.plan.header, time.time()
        what = f"leg {header.leg}, attempt {header.attempt}" if self.limits.chained else f"attempt {header.attempt}"
        self.log.say(f"{what} (token {header.token}), {duration(now - self.limits.start)} after the session's start")
        kill = duration(self.limits.kill_at - now)
        if self.limits.chained:
            self.log.say(f"deadline in {duration(self.limits.leave_at - now)}, session limit in {kill}")
        else:
            self.log.say(f"session limit in {kill}")

    def _attempt(self, signals: Signals) -> Verdict:
        self._preflight()
        began = time.time()
        resume = self._restore()
        self.report.buckets["restore"] = time.time() - began
        if signals.received:
            raise Unfit(Outcome.STOPPED, "signal", f"{signals.name} before training began.")
        return self._train(resume, signals)

    def _preflight(self) -> None:
        if self.plan.launch != "python":
            raise Unfit(Outcome.USER_ERROR, "launch", f"launch = {self.plan.launch!r} isn't known here.")
        if not (self.places.src / self.plan.entry).is_file():
            raise Unfit(Outcome.USER_ERROR, "entry", f"The bundle holds no {self.plan.entry}.")
        self.report.environment |= preflight.check_accelerator(self.plan, self.environ, self.log)
        parent = self.plan.header.parent
        own = parent.kernel.rpartition("/")[2] if parent else None  # looked at by restore, which tells more
        preflight.check_sources([s for s in self.plan.sources if s != own], self.places.input)

    def _restore(self) -> Path | None:
        """Find what to go on from, and bring a plain script's files back; returns what ``KGO_RESUME`` says."""
        header = self.plan.header
        if header.parent is None:
            if header.leg > 1:
                raise Unfit(Outcome.WRONG_SOURCE, "no parent", f"Leg {header.leg} names no checkpoint to go on from.")
            preflight.check_disk(self.places.working, 0, self.log)
            return None
        found = restore(header.parent, self.plan.lineage, self.places.input)
        self.report.restored, self.note = found.checkpoint, found.note
        if found.note:
            self.log.say(found.note)
        self.log.say(f"going on from step {found.checkpoint.step}: {found.checkpoint.folder}")
        self.report.running()
        needed, wrapped = bytes_below(found.checkpoint.folder), is_wrapped(found.checkpoint)
        preflight.check_disk(self.places.working, needed * (1 + wrapped), self.log)
        if wrapped:
            return bring_back(found.checkpoint, self.places.working)
        return found.checkpoint.folder

    def _train(self, resume: Path | None, signals: Signals) -> Verdict:
        plan, places, began = self.plan, self.places, time.time()
        restored = self.report.restored
        kept = plan.keep * bytes_below(restored.folder) if restored else 0
        deadline = self.limits.leave_at - tail_s(kept) if self.limits.chained else None
        env = session_environment(
            plan,
            places,
            self.environ,
            now=began,
            deadline=deadline,
            replay_s=self.limits.replay_s if self.limits.chained else None,
            resume=resume,
        )
        args = drop_resume(plan.args, str(resume) if resume else None)
        command = [sys.executable, "-u", str(places.src / plan.entry), *args]
        kills_before = oom_kills() or 0
        try:
            training = Training(command, cwd=places.working, env=env)
        except OSError as error:
            raise Unfit(Outcome.PLATFORM_ERROR, "start", f"Training can't be started: {error}.") from error
        try:
            out, err = training.pipes
            threads = [self.log.stream(out, err=False), self.log.stream(err, err=True)]
            if self.limits.chained and plan.header.leg == 1:
                self._loadcheck = LoadCheck(places, env, training.leave_alone)
            if self.limits.chained and plan.paths:
                self._wrapper = Wrapper.after(
                    restored, places.working, places.checkpoints, plan.paths, plan.header.token
                )
            self.report.buckets["start"] = began - self.limits.start - self.report.buckets.get("restore", 0.0)
            watch = self.watch = Watch(
                plan, places, self.limits, self.log, self.report, training, signals, self._loadcheck, self._wrapper
            )
            code = watch.run()
            for thread in threads:
                thread.join(2.0)
        finally:
            training.close()
        ended = time.time()
        self._share_out(watch, ended - began)
        misuse = reclaim(places.working)
        facts = self._facts(watch, code, (oom_kills() or 0) - kills_before)
        if misuse:
            self.log.say(misuse)
            return Verdict(Outcome.USER_ERROR, "working folder", misuse)
        verdict = self._check_loading(judge(facts))
        self.report.buckets["verify"] = time.time() - ended
        return verdict

    def _share_out(self, watch: Watch, wall_s: float) -> None:
        """Training's wall time into the buckets it told of; what is left over is its start: imports, mostly."""
        told = (watch.progress.buckets or {}) if watch.progress else {}
        others = {name: told.get(name, 0.0) for name in ("restore", "data", "save", "replay")}
        train_s = told.get("train", wall_s - sum(others.values()))
        buckets = self.report.buckets
        for name, spent in {**others, "train": max(0.0, train_s)}.items():
            buckets[name] = buckets.get(name, 0.0) + spent
        buckets["start"] += max(0.0, wall_s - train_s - sum(others.values()))

    def _settle(self) -> None:
        """Verify and prune the checkpoints, once."""
        if not self.outputs.settled:
            token, keep = self.plan.header.token, self.plan.keep
            self.outputs.settle(self.places.checkpoints, token, keep, self.limits.report_by)

    def _facts(self, watch: Watch, code: int, kills: int) -> Facts:
        """Verify what training left, and gather what the verdict depends on."""
        free = shutil.disk_usage(self.places.working).free
        if self._wrapper is not None and watch.progress is None:
            try:
                self._wrapper.look(last=True, whole=watch.whole)
            except OSError as error:
                self.log.say(f"the last checkpoint can't be kept: {error.strerror or error}")
            if linked := links(self.places.working, self.plan.paths):
                self.log.say(
                    f"links out of the working folder aren't followed: no checkpoint holds {', '.join(linked)}"
                )
            if self._wrapper.removed:
                self.log.say("training removed kgo's copies of its checkpoints")
        self._settle()
        newest = self.outputs.newest
        stdout, stderr = self.log.tail()
        return Facts(
            exit_code=code,
            ended_by=watch.ended_by,
            signalled=watch.done in (Move.TERM, Move.KILL),
            chained=self.limits.chained,
            progress=watch.progress,
            step_start=self.report.step_start,
            step_end=newest.step if newest else None,
            done_file=os.access(self.places.working / self.plan.done, os.F_OK) if self.plan.done else None,
            near_deadline=watch.near_deadline,
            oom_kills=kills,
            disk_free=free,
            stdout=tuple(stdout),
            stderr=tuple(stderr),
            hung_s=self.plan.hung_s,
            load_fault=self._loadcheck.fault if self._loadcheck else "",
        )

    def _check_loading(self, verdict: Verdict) -> Verdict:
        """The first checkpoint of a chain must have been loaded once before another leg relies on it."""
        check, newest = self._loadcheck, self.outputs.newest
        if check is None:
            return verdict
        reports = self.watch is not None and self.watch.progress is not None
        if verdict.outcome is not Outcome.CONTINUE or newest is None or not reports:
            return verdict
        if not check.exists:
            return verdict
        for _ in range(2):  # the one under way may be of a checkpoint that was pruned meanwhile
            if check.wanted:
                check.start(newest.folder)
            if check.finish(max(0.0, self.limits.report_by - time.time())):
                break
        if check.loads is None:
            self.log.say(
                f"whether the checkpoint loads in a fresh process couldn't be found out. {check.fault}".strip()
            )
        if check.loads is not False:
            return verdict
        return judge(Facts(0, ended_by=EndedBy.UNLOADABLE, load_fault=check.fault))

    def _conclude(self, verdict: Verdict) -> int:
        """Write the result; the exit code follows from what is in the output, not from what was meant."""
        began = time.time()
        self._settle()
        self.report.make_way()
        self.outputs.digest(self.limits.report_by)
        for note in self.outputs.notes:
            self.log.say(note)
        newest, progress = self.outputs.newest, self.watch.progress if self.watch else None
        gained = newest is not None and newest.step > self.report.step_start
        self.report.buckets["tail"] = time.time() - began
        message = f"{verdict.message} ({self.note})" if self.note else verdict.message
        self._summarise(verdict, newest, gained)
        self.report.final(
            verdict.outcome,
            verdict.reason,
            message,
            checkpoint=newest,
            progress=progress,
            outputs=lambda: self.outputs.digests,
            make_room=self.outputs.make_room,
        )
        with suppress(OSError):
            shutil.rmtree(self.places.control)
        return verdict.exit_code(gained)

    def _summarise(self, verdict: Verdict, newest: Checkpoint | None, gained: bool) -> None:
        progress = self.watch.progress if self.watch else None
        parts = [f"{verdict.outcome} ({verdict.reason})"]
        if progress is not None:
            parts.append(steps(progress))
        if newest is not None and gained:
            parts.append(f"checkpoint of step {newest.step} verified, {size(bytes_below(newest.folder))}")
        self.log.say(f"{', '.join(parts)}, {duration(time.time() - self.limits.start)} after the session's start")
        if verdict.outcome not in (Outcome.DONE, Outcome.CONTINUE):
            self.log.say(verdict.message)
