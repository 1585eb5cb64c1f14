"""How often to look: often while an end would be news, rarely in the middle of a long session.

A session that ends unexpectedly is noticed within a twentieth of its age, so polling never costs more than 5 %.
"""

from kaggle_orchestrator.chain.model import Attempt

SHORT_SESSION_S = 600.0
QUICK_S = 0.25
"""For sessions of at most ten minutes."""
SOON_S = 1.0
NEAR_END_S = 30.0
NEAR_S = 600.0
RARELY_S = 300.0
LANDING_S = 60.0
MAX_SLEEP_S = 300.0
"""A longer wait is cut into pieces: wall time rules, also over a laptop's sleep."""


def session_interval(attempt: Attempt, now: float) -> float:
    """Seconds until the next look at a live session."""
    since = next(t for t in (attempt.running_since, attempt.pushed_at, attempt.intended_at) if t is not None)
    age = max(0.0, now - since)
    short = attempt.session_limit_s <= SHORT_SESSION_S
    most = SOON_S if short else RARELY_S
    expected = attempt.leave_after_s if attempt.leave_after_s is not None else attempt.session_limit_s
    if not short and abs(age - expected) <= NEAR_S:
        most = NEAR_END_S
    return min(max(age / 20, QUICK_S if short else SOON_S), most)


def landing_interval(absent_s: float) -> float:
    """Seconds until the next look for a push that hasn't shown up for ``absent_s``."""
    return min(max(absent_s, SOON_S), LANDING_S)


def fault_interval(faults: int) -> float:
    """Seconds until the next try after so many network faults in a row."""
    return float(min(2 ** (faults - 1), RARELY_S))
