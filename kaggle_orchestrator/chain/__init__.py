"""A chain of sessions: one at a time, each from the newest good checkpoint, until the target is reached.

:func:`decide` is pure; :class:`Chain` observes and acts; the journal remembers.
"""

from kaggle_orchestrator.chain.asking import Options
from kaggle_orchestrator.chain.book import Book, policy_of
from kaggle_orchestrator.chain.decide import decide
from kaggle_orchestrator.chain.journal import ChainKey, ChainRecord, Journal
from kaggle_orchestrator.chain.lock import steering
from kaggle_orchestrator.chain.model import (
    Action,
    Attempt,
    Fail,
    Finish,
    Observation,
    Phase,
    Push,
    Refuse,
    Stop,
    Wait,
    Why,
)
from kaggle_orchestrator.chain.pair import Half, Pair
from kaggle_orchestrator.chain.steer import Chain

__all__ = [
    "Action",
    "Attempt",
    "Book",
    "Chain",
    "ChainKey",
    "ChainRecord",
    "Fail",
    "Finish",
    "Half",
    "Journal",
    "Observation",
    "Options",
    "Pair",
    "Phase",
    "Push",
    "Refuse",
    "Stop",
    "Wait",
    "Why",
    "decide",
    "policy_of",
    "steering",
]
