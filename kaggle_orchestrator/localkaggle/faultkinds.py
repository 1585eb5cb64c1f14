"""The kinds of scripted faults: what can go wrong, and which occasions it takes."""

import random
from dataclasses import dataclass
from enum import StrEnum

from kaggle_orchestrator.localkaggle.spec import Kill, Lie
from kaggle_orchestrator.models import KernelRef

RPCS = frozenset(
    {
        "SaveKernel",
        "GetKernelSessionStatus",
        "ListKernelSessionOutput",
        "ListKernelFiles",
        "GetKernel",
        "ListKernels",
        "DeleteKernel",
        "CancelKernelSession",
        "DownloadKernelOutput",
        "DownloadKernelOutputZip",
        "GetAcceleratorQuotaStatistics",
        "CreateDataset",
        "CreateDatasetVersion",
        "CreateDatasetVersionById",
        "DeleteDataset",
        "DownloadDataset",
        "GetDataset",
        "GetDatasetMetadata",
        "GetDatasetStatus",
        "ListDatasets",
        "ListDatasetFiles",
        "StartBlobUpload",
        "IntrospectToken",
    }
)
"""The calls that the local Kaggle answers, and that an ``rpc`` fault can name."""
ANY = "*"


class Body(StrEnum):
    """Forms of an answer that isn't one."""

    FLAT = "flat"
    NESTED = "nested"
    HTML = "html"
    TEXT = "text"
    EMPTY = "empty"
    CUT = "cut"
    """JSON that breaks off."""
    LIST = "list"


@dataclass(frozen=True, slots=True)
class When:
    """Which occasions a fault takes; exactly one of the first four is set.

    Attributes:
        number: That one.
        every: Each so-many-th.
        first: So many from the beginning.
        chance: Each with this probability.
        for_s: World seconds after which the fault is over; None: never.
    """

    number: int | None = None
    every: int | None = None
    first: int | None = None
    chance: float | None = None
    for_s: float | None = None

    def takes(self, occasion: int, rng: random.Random) -> bool:
        """Whether the fault fires at its so-many-th occasion, from 1."""
        if self.number is not None:
            return occasion == self.number
        if self.every is not None:
            return occasion % self.every == 0
        if self.first is not None:
            return occasion <= self.first
        return rng.random() < (self.chance or 0.0)


@dataclass(frozen=True, slots=True)
class RpcFault:
    """A call is answered wrongly.

    Attributes:
        rpc: Name of the call, or ``*``.
        status: HTTP status of the answer.
        body: Its form; None: an error as the knob ``error_body`` has it.
        retry_after: Seconds in its ``Retry-After``.
        refuse: Words of a push's refusal, with status 200.
        silence: No answer at all.
        reset: The connection is cut.
        delay_s: The right answer, so many (real) seconds late.
        after_landing: The call takes effect first, only its answer is lost.
    """

    when: When
    rpc: str
    status: int = 500
    body: Body | None = None
    retry_after: float | None = None
    refuse: str | None = None
    silence: bool = False
    reset: bool = False
    delay_s: float | None = None
    after_landing: bool = False


@dataclass(frozen=True, slots=True)
class DownloadFault:
    """A file's download goes wrong.

    Attributes:
        names: Glob of the output's names; ``**`` is any.
        break_at: Part of what was asked for after which the connection is cut.
        status: It is answered with an HTTP error.
        silence: It isn't answered.
        swap: It breaks half way, and the file is another one from then on.
        expire: Its address has expired.
        flip: One byte differs.
    """

    when: When
    names: str
    break_at: float | None = None
    status: int | None = None
    silence: bool = False
    swap: bool = False
    expire: bool = False
    flip: bool = False


@dataclass(frozen=True, slots=True)
class SessionFault:
    """What befalls a session; occasions are sessions, of ``kernel`` or of all."""

    when: When
    kernel: KernelRef | None


@dataclass(frozen=True, slots=True)
class KillSession(SessionFault):
    """It is killed with SIGKILL, whole tree; ``kill``: when, and what Kaggle says of it."""

    kill: Kill


@dataclass(frozen=True, slots=True)
class FalseStatus(SessionFault):
    """Its status is told wrongly for a while."""

    lie: Lie


@dataclass(frozen=True, slots=True)
class NoGpu(SessionFault):
    """It comes without the GPU that it asked for."""


@dataclass(frozen=True, slots=True)
class NoMount(SessionFault):
    """Its sources aren't mounted."""


@dataclass(frozen=True, slots=True)
class LoseOutput(SessionFault):
    """Files that match ``names`` are missing from its output."""

    names: str


Fault = RpcFault | DownloadFault | SessionFault
