"""Throttling: so many calls a minute an account, in the world's time; the rest is answered 429."""

from collections import defaultdict, deque
from email.utils import formatdate
from typing import assert_never

from kaggle_orchestrator.localkaggle.context import Context
from kaggle_orchestrator.localkaggle.knobs import RetryAfter
from kaggle_orchestrator.localkaggle.wire import Refusal

_MINUTE_S = 60.0


class Throttle:
    """Counts the calls of each account."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._calls: defaultdict[str, deque[float]] = defaultdict(deque)

    def count(self, user: str) -> None:
        """One more call.

        Raises:
            Refusal: 429, it's one too many. It isn't counted.
        """
        most = self._context.knobs.calls_per_minute
        if not most:
            return
        now, calls = self._context.clock.now(), self._calls[user]
        while calls and calls[0] <= now - _MINUTE_S:
            calls.popleft()
        if len(calls) >= most:
            raise Refusal(429, "Too many requests", self._headers(calls[0] + _MINUTE_S - now))
        calls.append(now)

    def _headers(self, wait_s: float) -> dict[str, str]:
        match self._context.knobs.retry_after:
            case RetryAfter.SECONDS:
                return {"Retry-After": f"{int(wait_s) + 1}"}
            case RetryAfter.DATE:
                return {"Retry-After": formatdate(self._context.clock.now() + wait_s + 1, usegmt=True)}
            case RetryAfter.NONE:
                return {}
            case unknown:
                assert_never(unknown)
