"""One probe kernel: its pushes, the ends of its sessions, what they left; with patience for all that Kaggle can do.

A probe kernel is nobody else's, so a push of unknown fate may be repeated once the kernel shows nothing of it.
"""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import (
    BadAnswer,
    KaggleError,
    NotAccessible,
    SessionCap,
    Throttled,
    Unavailable,
    UnclearPush,
)
from kaggle_orchestrator.models import KernelRef, OutputListing, PushRequest, SessionStatus

MARKER = "marker.txt"
_PASSING = (BadAnswer, NotAccessible, Throttled, Unavailable)


@dataclass(frozen=True, slots=True)
class Pace:
    """Patience, in seconds.

    Attributes:
        limit_s: Time limit of the sessions that run into it.
        settle_s: For so long after a session's end its output may still come.
        landing_s: For so long a push of unknown fate may still show up.
        patience_s: For so long anything is waited for at all, queue included.
        look_s: Between two looks, at first.
    """

    limit_s: int = 120
    settle_s: float = 90.0
    landing_s: float = 60.0
    patience_s: float = 3600.0
    look_s: float = 2.0

    @classmethod
    def local(cls) -> "Pace":
        """For a local Kaggle, where everything happens at once."""
        return cls(limit_s=6, settle_s=1.0, landing_s=1.0, patience_s=60.0, look_s=0.1)


class Unmeasured(Exception):
    """A setting can't be found out; the message says why."""


@dataclass(slots=True)
class Stage:
    """A kernel of the probe.

    Attributes:
        kaggle: A client that takes a missing status for QUEUED.
        ref: The kernel.
        seen_queued: Called each time its session is found waiting, with kernel and version.
        stop: Set when nothing more is to be measured.
    """

    kaggle: Kaggle
    clock: Clock
    pace: Pace
    ref: KernelRef
    seen_queued: Callable[[KernelRef, int], None]
    stop: threading.Event

    def push(self, script: str, *sources: KernelRef, limit: bool = False, run: bool = True) -> int:
        """Push one of the kernels in ``kernels/``; returns its version.

        Raises:
            Unmeasured: It can't be pushed.
        """
        nonce = secrets.token_hex(8)
        text = resources.files("kaggle_orchestrator.probe").joinpath("kernels", f"{script}.py").read_text("utf-8")
        request = PushRequest(
            ref=self.ref,
            title=self.ref.slug,
            source=f"# {nonce}\n{text}",
            kernels=tuple(str(source) for source in sources),
            session_timeout_s=self.pace.limit_s if limit else None,
            run=run,
        )
        until = self.clock.now() + self.pace.patience_s
        while not self.stop.is_set():
            try:
                return self.kaggle.push(request).version
            except (UnclearPush, BadAnswer):
                landed = self._landed(nonce)
                if landed is not None:
                    return landed
            except (SessionCap, Throttled, Unavailable) as error:
                if self.clock.now() > until:
                    raise Unmeasured(f"{self.ref} can't be pushed: {error.message}") from error
            except KaggleError as error:
                raise Unmeasured(f"{self.ref} can't be pushed: {error.message}") from error
            self.pause(5)
        raise Unmeasured("the probe was interrupted")

    def pause(self, looks: float = 1) -> None:
        """Wait before the next look.

        Raises:
            Unmeasured: The probe was interrupted.
        """
        self.clock.sleep(self.pace.look_s * looks)
        if self.stop.is_set():
            raise Unmeasured("the probe was interrupted")

    def _landed(self, nonce: str) -> int | None:
        until = self.clock.now() + self.pace.landing_s
        while self.clock.now() < until:
            try:
                latest = self.kaggle.version(self.ref)
            except _PASSING:
                latest = None
            if latest is not None and nonce in latest.source:
                return latest.current_version
            self.pause()
        return None

    def ended(self, version: int) -> SessionStatus:
        """Wait for the end of a version's session.

        Raises:
            Unmeasured: It doesn't end.
        """
        began, looks = self.clock.now(), 1.0
        while self.clock.now() < began + self.pace.patience_s:
            status = self._status(version)
            if status is not None and status.terminal:
                return status
            self.pause(looks)
            looks = min(looks * 1.2, 5)
        raise Unmeasured(f"the session of {self.ref} v{version} didn't end in {self.pace.patience_s / 60:.0f} min")

    def is_over(self, version: int) -> bool:
        """Whether a version's session has ended, as far as Kaggle tells."""
        status = self._status(version)
        return status is not None and status.terminal

    def _status(self, version: int) -> SessionStatus | None:
        try:
            status = self.kaggle.status(self.ref, version).status
        except _PASSING:
            return None
        if status is SessionStatus.QUEUED:
            self.seen_queued(self.ref, version)
        return status

    def complete(self, version: int) -> None:
        """Wait for a session that has to end well.

        Raises:
            Unmeasured: It didn't.
        """
        status = self.ended(version)
        if status is not SessionStatus.COMPLETE:
            raise Unmeasured(f"the session of {self.ref} v{version} ended as {status}")

    def output(self, version: int, *, log: bool = False) -> OutputListing:
        """What a session that is over left, once its file (or its log) is there or has had its time.

        Raises:
            Unmeasured: It can't be read.
        """
        until, last = self.clock.now() + self.pace.settle_s, None
        listing: OutputListing | None = None
        while True:
            try:
                listing = self.kaggle.outputs(self.ref, version)
            except _PASSING as error:
                last = error
            if listing is not None and (MARKER in listing.by_name or (log and listing.log)):
                return listing
            if self.clock.now() > until:
                break
            self.pause()
        if listing is None:
            why = last.message if last else "no answer"
            raise Unmeasured(f"the output of {self.ref} v{version} can't be read: {why}")
        return listing
