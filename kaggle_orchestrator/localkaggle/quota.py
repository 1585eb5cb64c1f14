"""An account's weekly GPU quota: what is used of it, what running sessions may still use, and when nothing is left.

When it is used up depends on the sessions alone, never on when somebody looks.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from kaggle_orchestrator.localkaggle.records import Session
from kaggle_orchestrator.localkaggle.world import World

WEEK_S = 7 * 86_400.0


def quota_refresh(now: float) -> float:
    """The next Saturday 00:00 UTC, in seconds since the epoch."""
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (day + timedelta(days=(5 - day.weekday()) % 7 or 7)).timestamp()


def gpu_time(world: World, user: str, now: float) -> tuple[float, float]:
    """GPU seconds that an account has used this week, and those that running sessions may still use."""
    used, reserved = world.gpu_used_s(user, quota_refresh(now) - WEEK_S), 0.0
    for session in world.sessions(live=True):
        if session.gpu and session.kernel.owner == user:
            spent = now - (session.started or now)
            used += spent
            reserved += max(0.0, session.limit_s - spent)
    return used, reserved


def used_up(world: World, live: Sequence[Session], total_s: float, now: float) -> dict[str, float]:
    """When the quota of each account that has sessions on GPUs is used up by them, where that is by now.

    Args:
        world: Tells what earlier sessions used.
        live: All sessions that haven't ended.
        total_s: The quota, in seconds.
        now: World time.
    """
    owners = {session.kernel.owner for session in live if session.gpu and session.started is not None}
    found = {owner: _used_up(world, owner, live, total_s, now) for owner in owners}
    return {owner: at for owner, at in found.items() if at is not None}


def _used_up(world: World, owner: str, live: Sequence[Session], total_s: float, now: float) -> float | None:
    begun = [(s.started, s.cancelled) for s in live if s.gpu and s.kernel.owner == owner and s.started is not None]
    running = [started for started, cancelled in begun if cancelled is None]
    saving = sum(max(0.0, cancelled - started) for started, cancelled in begun if cancelled is not None)
    if not running:
        return None
    latest = max(running)
    week = quota_refresh(latest) - WEEK_S
    while week <= now:
        # used + (at - a) + (at - b) + … = total, for sessions that run since a, b, …
        used = world.gpu_used_s(owner, week) + saving
        at = max((total_s - used + sum(running)) / len(running), latest, week)
        if at < week + WEEK_S:
            return at if at <= now else None
        week += WEEK_S
    return None
