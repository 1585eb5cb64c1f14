"""What the chain does about each outcome, as data: whose turn it is, how often it tries again, how long it waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kaggle_orchestrator.protocol import Outcome


class Turn(StrEnum):
    """Who acts next."""

    FINISH = "finish"
    """Nobody: the target is reached."""
    NEXT_LEG = "next leg"
    """The chain goes on; nothing is spent."""
    RETRY = "retry"
    """The chain tries the leg again, as long as the budget lasts."""
    PARK = "park"
    """The chain waits for the quota's refresh; nothing is spent."""
    PERSON = "person"
    """Somebody has to change something."""
    STOP = "stop"
    """Somebody stopped it."""


class Budget(StrEnum):
    """Outcomes of one budget are counted together, within a leg."""

    FAULTS = "faults"
    MOUNTS = "mounts"
    GPUS = "gpus"
    IDLING = "idling"


@dataclass(frozen=True, slots=True)
class Rule:
    """What follows on an outcome.

    Attributes:
        budget: Which budget a retry is taken from.
        tries: Retries in it; None: ``chain.retries``.
        wait_s: Seconds before the first retry; each further one waits four times as long.
        hint: What a person can do, once it's their turn.
    """

    turn: Turn
    hint: str = ""
    budget: Budget | None = None
    tries: int | None = None
    wait_s: float = 0.0


_FAULT = Rule(
    Turn.RETRY,
    "See the log of the last attempts. `kgo run --retry` tries again.",
    budget=Budget.FAULTS,
    wait_s=60.0,
)
_GPU = Rule(
    Turn.RETRY,
    "Verify the account's phone number at Kaggle, or ask for another kernel.accelerator; then `kgo run --retry`.",
    budget=Budget.GPUS,
    tries=2,
    wait_s=900.0,
)

RULES: Mapping[Outcome, Rule] = {
    Outcome.DONE: Rule(Turn.FINISH),
    Outcome.CONTINUE: Rule(Turn.NEXT_LEG),
    Outcome.KILLED: _FAULT,
    Outcome.OUTPUT_LOST: _FAULT,
    Outcome.HUNG: _FAULT,
    Outcome.PLATFORM_ERROR: _FAULT,
    Outcome.MOUNT_MISSING: Rule(
        Turn.RETRY,
        "Check the sources under [kernel] and that this account may use them; then `kgo run --retry`.",
        budget=Budget.MOUNTS,
        tries=3,
    ),
    Outcome.NO_GPU: _GPU,
    Outcome.WRONG_GPU: _GPU,
    Outcome.QUOTA: Rule(Turn.PARK),
    Outcome.USER_ERROR: Rule(
        Turn.PERSON,
        "Fix the code and run again (in mid-chain with --accept-changes), or `kgo run --retry` if it wasn't the code.",
    ),
    Outcome.OOM: Rule(
        Turn.PERSON, "Use a smaller batch or model, fewer workers, or gradient accumulation; then run again."
    ),
    Outcome.NO_DATA: Rule(
        Turn.PERSON,
        "Check the sources under [kernel]: their names, and that they hold the files (locally: those that "
        "`[local] sources` names); then run again.",
    ),
    Outcome.DISK_FULL: Rule(
        Turn.PERSON, "Lower checkpoint.keep, write fewer files to the working folder; then run again."
    ),
    Outcome.GPU_IDLE: Rule(
        Turn.PERSON, 'Check that training uses the GPU, or ask for kernel.accelerator = "none"; then run again.'
    ),
    Outcome.WRONG_SOURCE: Rule(
        Turn.PERSON,
        "Somebody else pushed to one of the two kernels, or a version was deleted. `kgo run --retry` tries the mount "
        "again; `kgo run --new` starts over.",
    ),
    Outcome.RESUME_MISMATCH: Rule(
        Turn.PERSON, 'Something isn\'t restored: see the log. checkpoint.on_mismatch = "warn" goes on regardless.'
    ),
    Outcome.NO_PROGRESS: Rule(
        Turn.RETRY,
        "Save more often (checkpoint.save_every), or give a leg more time (chain.session_limit); "
        "then `kgo run --retry`.",
        budget=Budget.IDLING,
        tries=1,
        wait_s=60.0,
    ),
    Outcome.STOPPED: Rule(Turn.STOP, "`kgo run --retry` goes on."),
}

SHORT = 0.02
"""Waits are at most this part of the session limit, so that a chain of short sessions isn't slow."""


def backoff_s(rule: Rule, tried: int, session_limit_s: float) -> float:
    """Seconds between the end of the ``tried``-th failed attempt of a budget and the next one."""
    return float(min(rule.wait_s * 4 ** (tried - 1), SHORT * session_limit_s)) if rule.wait_s else 0.0
