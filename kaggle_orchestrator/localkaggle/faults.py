"""Scripted faults: what is to go wrong, and when. A fault fires once; unknown keys are refused.

A fault counts from the moment it was added, and its count is part of the world: a restarted server goes on counting.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle.spec import Ending, Kill
from kaggle_orchestrator.localkaggle.world import World
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
        "GetAcceleratorQuotaStatistics",
        "GetDatasetStatus",
        "ListDatasetFiles",
        "IntrospectToken",
    }
)
"""The calls that the local Kaggle answers, and that an ``rpc`` fault can name."""


@dataclass(frozen=True, slots=True)
class KillSession:
    """Kill a session with SIGKILL, whole tree.

    Attributes:
        number: The Nth session (of ``kernel``, or of all).
        kernel: ``owner/slug``, or None for any.
        kill: When, and what Kaggle says of it.
    """

    number: int
    kernel: KernelRef | None
    kill: Kill


@dataclass(frozen=True, slots=True)
class RpcFault:
    """Answer a call with an HTTP error.

    Attributes:
        rpc: Name of the call.
        number: The Nth such call.
        status: HTTP status of the answer.
        after_landing: The call takes effect first, only its answer is lost.
    """

    rpc: str
    number: int
    status: int
    after_landing: bool


Fault = KillSession | RpcFault


def parse_fault(data: object) -> Fault:
    """Read one fault.

    Raises:
        UsageError: Not a fault; the message names what is wrong and what there is.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"a fault is an object, not {data!r}")
    kinds = [kind for kind in _KINDS if kind in data]
    if len(kinds) != 1:
        raise UsageError(f"fault {dict(data)!r}: expected exactly one of the keys {', '.join(sorted(_KINDS))}")
    return _KINDS[kinds[0]](data)


def take(world: World, matches: Callable[[Fault], bool]) -> Fault | None:
    """Count an occasion for each fault that matches; the first one that is due by that, if any."""
    due = None
    with world.change():
        for number, document in world.faults():
            fault = parse_fault(document)
            if matches(fault) and world.count_fault(number) == fault.number and due is None:
                due = fault
    return due


def _kill_session(data: Mapping[str, Any]) -> KillSession:
    _only(data, {"kill_session"}, "fault")
    inner = data["kill_session"]
    if not isinstance(inner, Mapping):
        raise UsageError(f"kill_session: expected an object, got {inner!r}")
    _only(inner, {"kernel", "number", "when_output", "after_s", "as"}, "kill_session")
    kernel = inner.get("kernel")
    when, after = inner.get("when_output"), inner.get("after_s", 0)
    if kernel is not None and not isinstance(kernel, str):
        raise UsageError(f"kill_session.kernel: expected owner/slug, got {kernel!r}")
    if when is not None and (not isinstance(when, str) or not when or when.startswith("/") or ".." in when.split("/")):
        raise UsageError(f"kill_session.when_output: expected a glob below /kaggle/working, got {when!r}")
    if isinstance(after, bool) or not isinstance(after, int | float) or not 0 <= after < 1e9:
        raise UsageError(f"kill_session.after_s: expected seconds, got {after!r}")
    endings = {"limit": Ending.LIMIT, "memory": Ending.MEMORY, "error": Ending.KILLED}
    ending = inner.get("as", "limit")
    if ending not in endings:
        raise UsageError(f"kill_session.as: {ending!r} is not one of {', '.join(endings)}")
    return KillSession(
        number=_number(inner, "kill_session"),
        kernel=None if kernel is None else KernelRef.parse(kernel),
        kill=Kill(ending=endings[ending], after_s=float(after), when_output=when),
    )


def _rpc(data: Mapping[str, Any]) -> RpcFault:
    _only(data, {"rpc", "number", "status", "after_landing"}, "fault")
    name, status, after = data["rpc"], data.get("status", 500), data.get("after_landing", False)
    if name not in RPCS:
        raise UsageError(f"rpc: {name!r} is not one of {', '.join(sorted(RPCS))}")
    if isinstance(status, bool) or not isinstance(status, int) or not 400 <= status <= 599:
        raise UsageError(f"rpc.status: expected an HTTP error status (400 to 599), got {status!r}")
    if not isinstance(after, bool):
        raise UsageError(f"rpc.after_landing: expected true or false, got {after!r}")
    return RpcFault(rpc=name, number=_number(data, "rpc"), status=status, after_landing=after)


_KINDS: dict[str, Callable[[Mapping[str, Any]], Fault]] = {"kill_session": _kill_session, "rpc": _rpc}


def _only(data: Mapping[str, Any], known: set[str], what: str) -> None:
    unknown = sorted(str(k) for k in data if k not in known)
    if unknown:
        raise UsageError(f"{what}: unknown key {unknown[0]!r}; there are: {', '.join(sorted(known))}")


def _number(data: Mapping[str, Any], what: str) -> int:
    number = data.get("number", 1)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number < 1 << 31:
        raise UsageError(f"{what}.number: expected a whole number from 1, got {number!r}")
    return number
