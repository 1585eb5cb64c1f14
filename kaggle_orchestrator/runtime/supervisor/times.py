"""When the session began, when it will be killed, and when training must have left: all in wall time.

Kaggle counts from the session's start, which lies before ours, and tells nobody; so it is taken as the start of the
container's first process, unless that can't be true.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kaggle_orchestrator.protocol import Plan, Variable

VERIFY_BYTES_PER_S = 150e6
"""A cautious rate for reading and hashing outputs; measured 700 MB/s on a quiet machine."""
LONGEST_REPLAY_S = 30.0
"""Ten steps of most trainings."""
LONGEST_GRACE_S = 600.0
"""How long training that doesn't leave is waited for at most, however far away the kill is."""


def process_start(pid: int, now: float, proc: Path = Path("/proc")) -> float | None:
    """Wall time at which a process of this PID namespace started, or None where the kernel doesn't say."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return now - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def session_start(environ: Mapping[str, str], now: float, limit_s: float, proc: Path = Path("/proc")) -> float:
    """Seconds since the epoch at which the session began.

    ``KGO_SESSION_START`` where it is set, else the start of the first process. A first process that is older than
    half the limit isn't the session's (a laptop's, or a container that was kept warm): then it is our own start.
    """
    own = process_start(os.getpid(), now, proc)
    own = own if own is not None and 0 <= now - own <= limit_s else now
    given = environ.get(Variable.SESSION_START)
    if given:
        try:
            start = float(given)
        except ValueError:
            return own
        return start if start <= now + 1 else own
    first = process_start(1, now, proc)
    return first if first is not None and 0 <= now - first <= limit_s / 2 else own


@dataclass(frozen=True, slots=True)
class Limits:
    """What is fixed when the session begins.

    Attributes:
        start: Start of the session.
        kill_at: Kaggle (or the local one) kills everything.
        leave_at: Training should have left; in a one-off just before the kill, so that its output isn't lost.
        chained: Whether ``leave_at`` is a chain's deadline.
    """

    start: float
    kill_at: float
    leave_at: float
    chained: bool

    @property
    def replay_s(self) -> float:
        """Seconds behind the deadline in which steps may be replayed; what they don't need is nobody's."""
        return min(LONGEST_REPLAY_S, 0.25 * (self.kill_at - self.leave_at))

    @property
    def report_by(self) -> float:
        """When hashing must stop, so that the result is still written."""
        return self.kill_at - min(5.0, 0.02 * (self.kill_at - self.start))

    @classmethod
    def of(cls, plan: Plan, environ: Mapping[str, str], start: float) -> "Limits":
        """The limits of a plan in a session that began at ``start``."""
        limit = plan.session_limit_s
        with contextlib.suppress(KeyError, ValueError):
            limit = min(limit, float(environ[Variable.SESSION_LIMIT]))
        latest = start + limit - min(120.0, max(0.02 * limit, min(2.0, 0.25 * limit)))
        if plan.leave_after_s is None:
            return cls(start, start + limit, latest, chained=False)
        return cls(start, start + limit, min(start + plan.leave_after_s, latest), chained=True)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How training is made to leave; each later than the one before.

    Attributes:
        ask_at: It is asked to, by the stop file.
        term_at: SIGTERM, unless a checkpoint is open.
        kill_at: SIGKILL of the whole tree, unless a checkpoint is open.
        last_at: SIGKILL in any case: what is left is needed for verifying and reporting.
    """

    ask_at: float
    term_at: float
    kill_at: float
    last_at: float

    @classmethod
    def of(cls, limits: Limits, *, save_s: float = 0.0, step_s: float = 0.0, tail_s: float = 0.0) -> "Schedule":
        """The schedule, given the slowest save and step so far and the time that the end will take (seconds)."""
        ask = max(limits.start, limits.leave_at - save_s - tail_s)
        window = max(0.0, limits.kill_at - limits.leave_at)
        margin = min(20.0, max(0.1 * window, min(0.5, 0.25 * window)))
        last = min(limits.kill_at - tail_s - margin, ask + max(LONGEST_GRACE_S, 4 * (save_s + step_s)))
        last = max(last, ask)
        return cls(ask, ask + 0.6 * (last - ask), ask + 0.85 * (last - ask), last)

    @classmethod
    def at_once(cls, now: float, before: "Schedule", grace_s: float) -> "Schedule":
        """The same order within ``grace_s`` from now, and no later than ``before``."""
        last = min(now + grace_s, max(before.last_at, now))
        return cls(now, now + 0.6 * (last - now), now + 0.85 * (last - now), last)


def tail_s(bytes_to_read: int) -> float:
    """Seconds that verifying, hashing and reporting will take."""
    return 0.3 + bytes_to_read / VERIFY_BYTES_PER_S
