"""The measurements: five that need nothing of each other, side by side, within an account's five CPU sessions.

Whatever happens, an interrupt included, the probe's kernels are removed at its end.
"""

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import BadAnswer, KaggleError, NotAccessible
from kaggle_orchestrator.models import KernelRef, LogRecord, SessionStatus
from kaggle_orchestrator.probe.findings import Finding
from kaggle_orchestrator.probe.stage import MARKER, Pace, Stage, Unmeasured
from kaggle_orchestrator.profile import (
    ContainerCancel,
    Disposition,
    FirstMount,
    MountLayout,
    QueuedStatus,
    QuickSave,
    SelfMount,
)
from kaggle_orchestrator.protocol import KgoError

PREFIX = "kgo-probe-"
SESSIONS = 10
"""So many it runs, and one version that it only saves."""
_CONTAINER = re.compile(r"PROBE container (\S+)")
_FOUND = re.compile(r"PROBE found (\S+)")


def leftovers(kaggle: Kaggle) -> tuple[KernelRef, ...]:
    """Kernels of probes that were killed before they could remove them.

    Raises:
        KaggleError: The account can't be asked.
    """
    return tuple(ref for ref in kaggle.kernels() if ref.slug.startswith(PREFIX))


@dataclass(slots=True)
class Probe:
    """One run of all measurements.

    Attributes:
        lenient: A client that takes a missing status for QUEUED.
        strict: One that doesn't.
        tell: Called with each finding as it is made.
        left: Kernels that couldn't be removed at the end, and why.
    """

    lenient: Kaggle
    strict: Kaggle
    clock: Clock
    pace: Pace
    tell: Callable[[Finding], None]
    left: dict[KernelRef, str] = field(default_factory=dict)
    _name: str = field(default_factory=lambda: secrets.token_hex(3))
    _stages: list[Stage] = field(default_factory=list)
    _queued: QueuedStatus | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> tuple[Finding, ...]:
        """Measure everything, then remove the kernels; those that can't be are in :attr:`left`."""
        parts: Sequence[Callable[[], list[Finding]]] = (
            self._error,
            self._limit,
            self._cancel,
            self._self_mount,
            self._mounts,
        )
        findings: list[Finding] = []
        pool = ThreadPoolExecutor(len(parts))
        try:
            for part in [pool.submit(self._guarded, part) for part in parts]:
                findings += part.result()
        except BaseException:
            self._stop.set()
            self._clean_up()  # which also ends the sessions that the others wait for
            raise
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)
            self._clean_up()
        findings += self._told([self._queue()])
        return tuple(findings)

    def _guarded(self, part: Callable[[], list[Finding]]) -> list[Finding]:
        """A part's findings; what it can't find out costs the others nothing."""
        names = _NAMES[part.__name__]
        try:
            found = part()
        except Unmeasured as error:
            found = [Finding(name, None, str(error)) for name in names]
        except KgoError as error:
            found = [Finding(name, None, error.message) for name in names]
        return self._told(found)

    def _told(self, findings: list[Finding]) -> list[Finding]:
        for finding in findings:
            self.tell(finding)
        return findings

    def _stage(self, what: str) -> Stage:
        ref = KernelRef(self.lenient.owner(), f"{PREFIX}{self._name}-{what}")
        stage = Stage(self.lenient, self.clock, self.pace, ref, self._look_at_queue, self._stop)
        self._stages.append(stage)
        return stage

    def _clean_up(self) -> None:
        self.left.clear()
        for stage in self._stages:
            try:
                self.lenient.delete(stage.ref)
            except KaggleError as error:
                self.left[stage.ref] = error.message

    def _error(self) -> list[Finding]:
        stage = self._stage("error")
        version = stage.push("fails")
        status = stage.ended(version)
        if status is not SessionStatus.ERROR:
            raise Unmeasured(f"a session that exits 1 ended as {status}")
        return [_kept("output_after_error", stage, version, "exit 1")]

    def _limit(self) -> list[Finding]:
        stage = self._stage("limit")
        version = stage.push("runs", limit=True)
        records = self._heard(stage, version)
        status = stage.ended(version)
        kept = _kept("output_after_kill", stage, version, f"a limit of {self.pace.limit_s} s, {status}")
        alive = [r.time for r in records if "PROBE alive" in r.data]
        warned = [r.time for r in records if "PROBE sigterm" in r.data]
        if not alive:
            return [kept, Finding("sigterm_before_kill_s", None, "the session's log couldn't be read")]
        if not warned:
            return [kept, Finding("sigterm_before_kill_s", 0.0, "no SIGTERM before the end of the log")]
        seconds = float(round(alive[-1] - warned[0]))
        return [
            kept,
            Finding("sigterm_before_kill_s", seconds, f"it lived {alive[-1] - warned[0]:.1f} s after SIGTERM"),
        ]

    def _heard(self, stage: Stage, version: int) -> list[LogRecord]:
        """The whole log, read while it's written: it may be dropped at the end."""
        records: list[LogRecord] = []
        over = 0
        while over < 2:  # once more after the end: it may just have been late
            try:
                for number, record in enumerate(self.lenient.follow(stage.ref, version)):
                    if number >= len(records):
                        records.append(record)
                break
            except KaggleError:
                over += stage.is_over(version)
                stage.pause()
        return records

    def _cancel(self) -> list[Finding]:
        stage = self._stage("cancel")
        version = stage.push("runs")
        container = self._container(stage, version)
        numbers = sorted(set(re.findall(r"\d{3,18}", container)), key=len, reverse=True)
        for number in numbers:
            try:
                self.lenient.cancel(int(number))
            except NotAccessible:
                continue
            status = stage.ended(version)
            works = Finding("container_cancel", ContainerCancel.WORKS, f"{container}: {status}")
            return [works, _kept("output_after_cancel", stage, version, f"a cancel, {status}")]
        refused = Finding("container_cancel", ContainerCancel.REFUSED, f"no number in {container!r} is a session's")
        return [refused, Finding("output_after_cancel", None, "no session could be cancelled")]

    def _container(self, stage: Stage, version: int) -> str:
        until = self.clock.now() + self.pace.patience_s
        while self.clock.now() < until:
            try:
                for record in self.lenient.follow(stage.ref, version):
                    if match := _CONTAINER.search(record.data):
                        return match[1]
                    if "PROBE alive" in record.data:
                        raise Unmeasured("the session has no KAGGLE_CONTAINER_NAME")
            except KaggleError:
                pass  # a session that waits has no log yet
            if stage.is_over(version):
                break
            stage.pause()
        raise Unmeasured("the session's log couldn't be read while it ran")

    def _self_mount(self) -> list[Finding]:
        stage = self._stage("self")
        stage.complete(stage.push("ends"))
        places: list[str] = []
        for _ in range(2):  # a new source may be missing in its first session
            version = stage.push("looks", stage.ref)
            stage.complete(version)
            places = _places(stage, version)
            if places:
                return [Finding("self_mount", SelfMount.MOUNT, f"its own output was at {places[0]}")]
        return [Finding("self_mount", SelfMount.DROP, "its own output was nowhere, in two sessions")]

    def _mounts(self) -> list[Finding]:
        source, reader = self._stage("source"), self._stage("reader")
        source.complete(source.push("ends"))
        first = reader.push("looks", source.ref)
        reader.complete(first)
        second = reader.push("looks", source.ref)
        reader.complete(second)
        at_first, places = _places(reader, first), _places(reader, second)
        if not places:
            raise Unmeasured("a source wasn't mounted in its second session either")
        owner = f"notebooks/{source.ref.owner}/{source.ref.slug}"
        flat = source.ref.slug
        layout = None
        if flat in places and owner in places:
            layout = MountLayout.BOTH
        elif flat in places:
            layout = MountLayout.FLAT
        elif owner in places:
            layout = MountLayout.OWNER
        first_mount = FirstMount.FULL if at_first else FirstMount.EMPTY
        seen = f"first session: {', '.join(at_first) or 'nothing'}; second: {', '.join(places)}"
        found = [
            Finding("first_mount", first_mount, seen),
            Finding("mount_layout", layout, f"mounted at {', '.join(places)}"),
        ]
        try:
            return [*found, self._quick_save(source, reader)]
        except Unmeasured as error:
            return [*found, Finding("quick_save", None, str(error))]

    def _quick_save(self, source: Stage, reader: Stage) -> Finding:
        source.push("ends", run=False)
        version = reader.push("looks", source.ref)
        reader.complete(version)
        places = _places(reader, version)
        if places:
            return Finding("quick_save", QuickSave.KEEP, f"after a saved version still mounted at {places[0]}")
        return Finding("quick_save", QuickSave.MASK, "after a saved version nothing was mounted")

    def _look_at_queue(self, ref: KernelRef, version: int) -> None:
        """A session waits: how is that told?"""
        if self._queued is not None:
            return
        try:
            if self.strict.status(ref, version).status is SessionStatus.QUEUED:
                self._queued = QueuedStatus.NAMED
        except BadAnswer:
            self._queued = QueuedStatus.OMITTED
        except KaggleError:
            pass

    def _queue(self) -> Finding:
        evidence = {
            None: "no session was seen waiting",
            QueuedStatus.NAMED: "a waiting session read QUEUED",
            QueuedStatus.OMITTED: "a waiting session had no status",
        }
        return Finding("queued_status", self._queued, evidence[self._queued])


_NAMES = {
    "_error": ("output_after_error",),
    "_limit": ("output_after_kill", "sigterm_before_kill_s"),
    "_cancel": ("container_cancel", "output_after_cancel"),
    "_self_mount": ("self_mount",),
    "_mounts": ("first_mount", "mount_layout", "quick_save"),
}


def _kept(name: str, stage: Stage, version: int, ending: str) -> Finding:
    listing = stage.output(version)
    if MARKER in listing.by_name:
        return Finding(name, Disposition.KEEP, f"after {ending} the file was there")
    return Finding(name, Disposition.DROP, f"after {ending} the file wasn't there")


def _places(stage: Stage, version: int) -> list[str]:
    """Where a session found the marker below its input folder."""
    log = stage.output(version, log=True).log
    return sorted(match[1] for line in log if (match := _FOUND.search(line)))
