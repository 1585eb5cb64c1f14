"""What a chain tells while it is driven; the commands turn it into words."""

from dataclasses import dataclass

from kaggle_orchestrator.chain.model import Attempt, Wait
from kaggle_orchestrator.models import KernelRef


@dataclass(frozen=True, slots=True)
class Pushed:
    """An attempt was pushed; its version is known."""

    attempt: Attempt
    ref: KernelRef
    url: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A push got no clear answer."""

    attempt: Attempt
    ref: KernelRef
    message: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """A version was found that carries an attempt this journal didn't know to have landed."""

    attempt: Attempt
    ref: KernelRef


@dataclass(frozen=True, slots=True)
class StatusSeen:
    """A session's status changed."""

    attempt: Attempt
    ref: KernelRef


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt has its verdict."""

    attempt: Attempt
    ref: KernelRef


@dataclass(frozen=True, slots=True)
class Waiting:
    """The chain waits for something else than before."""

    wait: Wait


@dataclass(frozen=True, slots=True)
class Stranger:
    """A version that isn't part of the chain; it's left alone."""

    ref: KernelRef
    version: int
    what: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The journal knew nothing of this chain; so many attempts were read back from Kaggle."""

    attempts: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """An edit in mid-chain was accepted; exactness isn't claimed across it."""

    changed: tuple[str, ...]


Event = Pushed | Unclear | Adopted | StatusSeen | Ended | Waiting | Stranger | Rebuilt | Accepted
