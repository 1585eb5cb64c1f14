"""Making a push: the intent is durable before it leaves, and only a push that was surely refused is taken back."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kaggle_orchestrator import __version__
from kaggle_orchestrator.chain.book import Book
from kaggle_orchestrator.chain.decide import next_refresh
from kaggle_orchestrator.chain.edits import Snapshot
from kaggle_orchestrator.chain.events import Ended, Event, Pushed, Unclear
from kaggle_orchestrator.chain.model import Attempt, Park, Push, Wait, Why
from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import (
    BadAnswer,
    KaggleError,
    QuotaExhausted,
    SessionCap,
    SourcesDropped,
    UnclearPush,
    UserError,
)
from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.models import KernelRef, PushRequest
from kaggle_orchestrator.protocol import Header, Outcome, attempt_token
from kaggle_orchestrator.render import AttemptSpec, render

CAP_S = 60.0
"""Seconds between tries while the account's sessions are as many as it may have."""
RESERVED_S = 900.0
"""The same while running sessions hold the quota: it comes free when they end early."""


@dataclass(frozen=True, slots=True)
class Pusher:
    """Pushes the attempts of one chain."""

    experiment: Experiment
    kaggle: Kaggle
    book: Book
    clock: Clock
    tell: Callable[[Event], None]

    def push(self, action: Push, files: Snapshot) -> Wait | None:
        """Push an attempt.

        Args:
            action: What was decided.
            files: The experiment as it is now.

        Returns:
            None if it landed, or what to wait for.

        Raises:
            RenderError: The kernel can't be made; nothing was pushed.
            KaggleError, UserError: It was refused.
        """
        intent = self._intent(action, files)
        request = self._request(intent)
        if self.book.record.fingerprint != files.fingerprint:
            self.book.pin(files, "pinned", "edited before anything was gained")
        self.book.put(intent, "intended", f"leg {intent.leg} to {self.book.ref(intent)}")
        return self._send(intent, request)

    def _intent(self, action: Push, files: Snapshot) -> Attempt:
        now = self.clock.now()
        if action.again:
            attempt = self.book.get(action.number)
            assert attempt is not None
            return replace(attempt, absent_since=None, intended_at=now)
        return Attempt(
            leg=action.leg,
            number=action.number,
            token=attempt_token(self.book.record.chain, action.leg, action.number),
            kernel=action.kernel,
            parent=action.parent,
            fingerprint=files.fingerprint,
            session_limit_s=action.session_limit_s,
            leave_after_s=action.leave_after_s,
            intended_at=now,
        )

    def _request(self, attempt: Attempt) -> PushRequest:
        header = Header(
            chain=self.book.record.chain,
            leg=attempt.leg,
            attempt=attempt.number,
            token=attempt.token,
            parent=attempt.parent,
            code_sha256=attempt.fingerprint.code,
            config_sha256=attempt.fingerprint.config,
            kgo_version=__version__,
        )
        legs = self.book.observation(None).legs if self.book.policy.chained else ()
        spec = AttemptSpec(
            kernel=self.book.ref(attempt),
            title=self.book.pair.title(attempt.kernel, self.experiment.kernel.title),
            header=header,
            leave_after_s=attempt.leave_after_s,
            session_limit_s=attempt.session_limit_s,
            mounts=(attempt.parent.kernel,) if attempt.parent else (),
            lineage=tuple(leg.record() for leg in legs),
        )
        return render(self.experiment, spec)

    def _send(self, intent: Attempt, request: PushRequest) -> Wait | None:
        book, ref = self.book, self.book.ref(intent)
        try:
            answer = self.kaggle.push(request)
        except (UnclearPush, BadAnswer) as error:  # it may have landed: the intent stays
            self.tell(Unclear(intent, ref, error.message))
            return Wait(self.clock.now(), Why.LANDING, error.message)
        except SourcesDropped as error:
            self._dropped(intent, ref, error)
            return None
        except (SessionCap, QuotaExhausted) as error:
            book.drop(intent, "refused", error.message)
            return self._park(error)
        except (KaggleError, UserError) as error:
            book.drop(intent, "refused", error.message)
            raise
        landed = intent.landed(answer.version, self.clock.now())
        book.put(landed, "pushed", f"{ref} v{answer.version}")
        book.park(None)
        if answer.version == book.record.seen(intent.kernel) + 1:
            book.saw(intent.kernel, answer.version)  # otherwise the next sync looks at those in between
        self.tell(Pushed(landed, ref, answer.url))
        return None

    def _dropped(self, intent: Attempt, ref: KernelRef, error: SourcesDropped) -> None:
        """It runs without its data: whatever it says, it doesn't count."""
        now = self.clock.now()
        ended = intent.landed(error.version, now).ended(
            Outcome.NO_DATA, now, reason="sources dropped", message=error.message
        )
        self.book.put(ended, "ended no_data", error.message)
        self.tell(Ended(ended, ref))

    def _park(self, error: SessionCap | QuotaExhausted) -> Wait:
        now = self.clock.now()
        if isinstance(error, SessionCap):
            soon_s = min(CAP_S, max(self.book.policy.session_limit_s / 50, 0.5))
            park = Park(now + soon_s, Why.SESSION_CAP, error.message)
        else:
            until = now + RESERVED_S if error.reserved else self._quota_back(now)
            park = Park(until, Why.QUOTA, error.message)
        self.book.park(park)
        return Wait(park.until, park.why, park.message)

    def _quota_back(self, now: float) -> float:
        """When to ask again after a refusal because the quota is used up."""
        try:
            refresh = self.kaggle.quota().refresh_at
        except KaggleError:
            return min(next_refresh(now), now + RESERVED_S)
        return refresh if refresh is not None and refresh > now else next_refresh(now)
