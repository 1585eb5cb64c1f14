"""Reading a fault script: what isn't a fault is refused, with what is wrong and what there is."""

from collections.abc import Callable, Mapping
from typing import Any

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle.faultkinds import (
    ANY,
    RPCS,
    Body,
    DownloadFault,
    FalseStatus,
    Fault,
    KillSession,
    LoseOutput,
    NoGpu,
    NoMount,
    RpcFault,
    When,
)
from kaggle_orchestrator.localkaggle.spec import Ending, Kill, Lie, LieFrom
from kaggle_orchestrator.models import KernelRef, SessionStatus


def parse_fault(data: object) -> Fault:
    """Read one fault.

    Raises:
        UsageError: Not a fault; the message names what is wrong and what there is.
    """
    if not isinstance(data, Mapping):
        raise UsageError(f"a fault is an object, not {data!r}")
    kinds = [kind for kind in KINDS if kind in data]
    if len(kinds) != 1:
        raise UsageError(f"fault {dict(data)!r}: expected exactly one of the keys {', '.join(sorted(KINDS))}")
    return KINDS[kinds[0]](data)


_WHEN = {"number", "every", "first", "chance", "for_s"}


def _when(data: Mapping[str, Any], where: str, *, for_s: bool = True) -> When:
    chosen = [key for key in ("number", "every", "first", "chance") if data.get(key) is not None]
    if len(chosen) > 1:
        raise UsageError(f"{where}: {' and '.join(chosen)} exclude each other")
    lasting = _seconds(data, where, "for_s") if for_s else None
    if chosen == ["chance"]:
        chance = data["chance"]
        if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance <= 1:
            raise UsageError(f"{where}.chance: expected a probability, got {chance!r}")
        return When(chance=float(chance), for_s=lasting)
    key = chosen[0] if chosen else "number"
    count = data.get(key, 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 1 << 31:
        raise UsageError(f"{where}.{key}: expected a whole number from 1, got {count!r}")
    return When(**{key: count}, for_s=lasting)


def _rpc(data: Mapping[str, Any]) -> RpcFault:
    forms = {"status", "body", "retry_after", "refuse", "silence", "reset", "delay_s", "after_landing"}
    _only(data, {"rpc", *forms, *_WHEN}, "fault")
    name, status, body, refuse = data["rpc"], data.get("status", 500), data.get("body"), data.get("refuse")
    if name not in (ANY, *RPCS):
        raise UsageError(f"rpc: {name!r} is not one of {', '.join((ANY, *sorted(RPCS)))}")
    if isinstance(status, bool) or not isinstance(status, int) or not (status == 200 or 400 <= status <= 599):
        raise UsageError(f"rpc.status: expected an HTTP error status (400 to 599), or 200, got {status!r}")
    if body is not None and body not in list(Body):
        raise UsageError(f"rpc.body: {body!r} is not one of {', '.join(Body)}")
    if status == 200 and body in (None, Body.FLAT, Body.NESTED) and "status" in data:
        raise UsageError("rpc.status: 200 is for a body that is no error: html, text, empty, cut, list")
    if refuse is not None and (not isinstance(refuse, str) or name != "SaveKernel"):
        raise UsageError("rpc.refuse: expected the words of a refusal, of SaveKernel")
    return RpcFault(
        when=_when(data, "rpc"),
        rpc=name,
        status=status,
        body=None if body is None else Body(body),
        retry_after=_seconds(data, "rpc", "retry_after"),
        refuse=refuse,
        silence=_flag(data, "rpc", "silence"),
        reset=_flag(data, "rpc", "reset"),
        delay_s=_seconds(data, "rpc", "delay_s"),
        after_landing=_flag(data, "rpc", "after_landing"),
    )


def _download(data: Mapping[str, Any]) -> DownloadFault:
    forms = {"break_at", "status", "silence", "swap", "expire", "flip"}
    _only(data, {"download", *forms, *_WHEN}, "fault")
    names, part, status = data["download"], data.get("break_at"), data.get("status")
    if len([form for form in forms if form in data]) != 1:
        raise UsageError(f"download: expected exactly one of {', '.join(sorted(forms))}")
    if part is not None and (isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part < 1):
        raise UsageError(f"download.break_at: expected a part of the file (0 to 1), got {part!r}")
    if status is not None and (isinstance(status, bool) or not isinstance(status, int) or not 400 <= status <= 599):
        raise UsageError(f"download.status: expected an HTTP error status (400 to 599), got {status!r}")
    return DownloadFault(
        when=_when(data, "download"),
        names=_glob(names, "download"),
        break_at=None if part is None else float(part),
        status=status,
        silence=_flag(data, "download", "silence"),
        swap=_flag(data, "download", "swap"),
        expire=_flag(data, "download", "expire"),
        flip=_flag(data, "download", "flip"),
    )


def _kill_session(data: Mapping[str, Any]) -> KillSession:
    inner = _inner(data, "kill_session", {"when_output", "after_s", "as"})
    when = inner.get("when_output")
    endings = {"limit": Ending.LIMIT, "memory": Ending.MEMORY, "error": Ending.KILLED}
    ending = inner.get("as", "limit")
    if not isinstance(ending, str) or ending not in endings:
        raise UsageError(f"kill_session.as: {ending!r} is not one of {', '.join(endings)}")
    kill = Kill(
        ending=endings[ending],
        after_s=_seconds(inner, "kill_session", "after_s") or 0.0,
        when_output=None if when is None else _glob(when, "kill_session.when_output"),
    )
    return KillSession(_when(inner, "kill_session"), _kernel(inner, "kill_session"), kill)


def _lie(data: Mapping[str, Any]) -> FalseStatus:
    _only(data, {"lie", "kernel", "from", *_WHEN}, "fault")
    status, start = data["lie"], data.get("from", LieFrom.START)
    if status not in list(SessionStatus):
        raise UsageError(f"lie: {status!r} is not one of {', '.join(SessionStatus)}")
    if start not in list(LieFrom):
        raise UsageError(f"lie.from: {start!r} is not one of {', '.join(LieFrom)}")
    seconds = _seconds(data, "lie", "for_s")
    if seconds is None:
        raise UsageError("lie.for_s: a lie needs an end")
    lie = Lie(SessionStatus(status), LieFrom(start), seconds)
    return FalseStatus(_when(data, "lie", for_s=False), _kernel(data, "lie"), lie)


def _no_gpu(data: Mapping[str, Any]) -> NoGpu:
    inner = _inner(data, "no_gpu", set())
    return NoGpu(_when(inner, "no_gpu"), _kernel(inner, "no_gpu"))


def _no_mount(data: Mapping[str, Any]) -> NoMount:
    inner = _inner(data, "no_mount", set())
    return NoMount(_when(inner, "no_mount"), _kernel(inner, "no_mount"))


def _lose_output(data: Mapping[str, Any]) -> LoseOutput:
    inner = _inner(data, "lose_output", {"names"})
    names = _glob(inner.get("names", "**"), "lose_output.names")
    return LoseOutput(_when(inner, "lose_output"), _kernel(inner, "lose_output"), names)


KINDS: dict[str, Callable[[Mapping[str, Any]], Fault]] = {
    "rpc": _rpc,
    "download": _download,
    "kill_session": _kill_session,
    "lie": _lie,
    "no_gpu": _no_gpu,
    "no_mount": _no_mount,
    "lose_output": _lose_output,
}


def _inner(data: Mapping[str, Any], kind: str, keys: set[str]) -> Mapping[str, Any]:
    _only(data, {kind}, "fault")
    inner = data[kind]
    if not isinstance(inner, Mapping):
        raise UsageError(f"{kind}: expected an object, got {inner!r}")
    _only(inner, {"kernel", *keys, *_WHEN}, kind)
    return inner


def _only(data: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(str(k) for k in data if k not in known)
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]!r}; there are: {', '.join(sorted(known))}")


def _kernel(data: Mapping[str, Any], where: str) -> KernelRef | None:
    kernel = data.get("kernel")
    if kernel is not None and not isinstance(kernel, str):
        raise UsageError(f"{where}.kernel: expected owner/slug, got {kernel!r}")
    return None if kernel is None else KernelRef.parse(kernel)


def _seconds(data: Mapping[str, Any], where: str, key: str) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise UsageError(f"{where}.{key}: expected seconds, got {value!r}")
    return float(value)


def _flag(data: Mapping[str, Any], where: str, key: str) -> bool:
    value = data.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{where}.{key}: expected true or false, got {value!r}")
    return value


def _glob(value: object, where: str) -> str:
    if not isinstance(value, str) or not value or value.startswith("/") or ".." in value.split("/"):
        raise UsageError(f"{where}: expected a glob below /kaggle/working, got {value!r}")
    return value
