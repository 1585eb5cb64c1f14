"""Answers' JSON to models. What isn't there isn't made up: the SDK reads a missing status as QUEUED, this doesn't."""

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kaggle_orchestrator.client.refusal import refusal
from kaggle_orchestrator.client.translate import Call, bad_answer, words
from kaggle_orchestrator.errors import KaggleError, Refused, SourcesDropped, UsageError
from kaggle_orchestrator.models import (
    KernelRef,
    KernelVersion,
    OutputFile,
    PushAnswer,
    PushRequest,
    Quota,
    SessionStatus,
    StatusReport,
)
from kaggle_orchestrator.profile import QueuedStatus

Json = Mapping[str, Any]

log = logging.getLogger(__name__)

_STATUSES = {s.replace("_", ""): s for s in SessionStatus}
_INVALID = ("invalidDatasetSources", "invalidKernelSources", "invalidCompetitionSources", "invalidModelSources")
_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)s")


def status_report(data: Json, call: Call, *, queued: QueuedStatus | None = None) -> StatusReport:
    """Of GetKernelSessionStatus: ``COMPLETE``, ``complete`` and ``cancelAcknowledged`` are all in use.

    A missing status is read as QUEUED only where ``queued`` says that this Kaggle leaves it out.
    """
    word = data.get("status")
    if word is None and queued is QueuedStatus.OMITTED:
        word = SessionStatus.QUEUED.value
    if not isinstance(word, str) or not word:
        raise bad_answer(call, "it has no status")
    plain = re.sub(r"[^A-Z]", "", word.upper()).removeprefix("KERNELWORKERSTATUS")
    if plain not in _STATUSES:
        raise bad_answer(call, f"the status {words(word, call)[:40]!r} is unknown")
    return StatusReport(_STATUSES[plain], words(_text(data, "failureMessage", call), call))


def kernel_version(data: Json, ref: KernelRef, call: Call) -> KernelVersion:
    """Of GetKernel."""
    metadata, blob = data.get("metadata"), data.get("blob")
    if not isinstance(metadata, dict) or not isinstance(blob, dict):
        raise bad_answer(call, "it has no metadata or no source")
    current = _number(metadata, "currentVersionNumber", call)
    if current < 1:
        raise bad_answer(call, "it has no version number")
    return KernelVersion(ref, _text(blob, "source", call), current)


def push_answer(data: Json, request: PushRequest, call: Call) -> PushAnswer:
    """Of SaveKernel.

    Raises:
        Refused: ``error`` is set: Kaggle refuses with status 200.
        SourcesDropped: Sources are named as invalid: the session runs without its data.
        UnclearPush: There is neither a refusal nor a version number.
    """
    if error := _text(data, "error", call):
        raise refusal(words(error, call), 200, call.what)
    version = _number(data, "versionNumber", call)
    if version < 1:
        raise bad_answer(call, "it has no version number")
    url = _text(data, "url", call)
    ref = _pushed_ref(_text(data, "ref", call)) or _pushed_ref(url) or request.ref
    if ref != request.ref:
        log.warning("The push of %s landed as %s: its title doesn't give its slug.", request.ref, ref)
    dropped = [words(name, call) for key in _INVALID for name in _names(data, key, call)]
    if dropped:
        raise SourcesDropped(
            f"Kaggle accepted {call.what} as version {version}, but without its sources {', '.join(dropped)}.",
            sources=dropped,
            version=version,
            hint="Check that they exist, are spelled owner/slug, and are this account's or public.",
        )
    return PushAnswer(ref, version, words(url, call))


def output_page(data: Json, call: Call) -> tuple[list[OutputFile], str, str]:
    """Of ListKernelSessionOutput: the files, the log, and the next page's token (empty on the last)."""
    files = []
    for item in _objects(data, "files", call):
        name, url = _text(item, "fileName", call), _text(item, "url", call)
        if not name or not url:
            raise bad_answer(call, "a file has no name or no address")
        files.append(OutputFile(name, url))
    return files, _text(data, "log", call), _text(data, "nextPageToken", call)


def kernels_page(data: Json, call: Call) -> tuple[list[KernelRef], str]:
    """Of ListKernels: the kernels, and the next page's token (empty on the last)."""
    refs = []
    for item in _objects(data, "kernels", call):
        ref = _pushed_ref(_text(item, "ref", call))
        if ref:
            refs.append(ref)
        else:
            log.warning("A kernel without owner/slug in the list is passed over.")
    return refs, _text(data, "nextPageToken", call)


def quota(data: Json, call: Call) -> Quota:
    """Of GetAcceleratorQuotaStatistics. Durations come as ``"108000s"``, with up to nine decimals."""
    gpu = data.get("gpuQuota")
    if not isinstance(gpu, dict) or "totalTimeAllowed" not in gpu:
        raise bad_answer(call, "it has no GPU quota")
    used, reserved, total = (_duration(gpu, k, call) for k in ("timeUsed", "timeReserved", "totalTimeAllowed"))
    return Quota(used, reserved, total, _moment(data, "quotaRefreshTime", call))


def done(data: Json, call: Call) -> None:
    """Of a call that only does something. A refusal comes as 200 with words in it.

    Raises:
        KaggleError: It was refused.
    """
    if message := _text(data, "errorMessage", call):
        raise KaggleError(f"Kaggle refused {call.what}: {words(message, call)}")


def dataset_files(data: Json, call: Call) -> tuple[dict[str, int], str]:
    """Of ListDatasetFiles: sizes by name, and the next page's token (empty on the last).

    Raises:
        BadAnswer: It isn't one, or says an error in spite of its status.
    """
    if error := _text(data, "errorMessage", call):
        raise bad_answer(call, f"it says {words(error, call)[:200]!r}")
    sizes = {
        _text(item, "name", call): _number(item, "totalBytes", call) for item in _objects(data, "datasetFiles", call)
    }
    return sizes, _text(data, "nextPageToken", call)


def dataset_status(data: Json, call: Call) -> str:
    """Of GetDatasetStatus: ``READY`` when its files are there."""
    return _text(data, "status", call).upper()


def dataset_version(data: Json, call: Call) -> int:
    """Of GetDataset: the current version's number; 0 if there is none yet."""
    return _number(data, "currentVersionNumber", call)


def dataset_made(data: Json, call: Call) -> None:
    """Of CreateDataset and CreateDatasetVersion.

    Raises:
        Refused: Kaggle refused it; nothing was made.
        UnclearPush: The answer doesn't say.
    """
    if error := _text(data, "error", call):
        raise Refused(f"Kaggle refused {call.what}: {words(error, call)}")
    if _text(data, "status", call).lower() != "ok":
        raise bad_answer(call, "it doesn't say that it was made")


def upload_place(data: Json, call: Call) -> tuple[str, str]:
    """Of StartBlobUpload: the token that names the upload, and where its bytes go."""
    token, url = _text(data, "token", call), _text(data, "createUrl", call)
    if not token or not url:
        raise bad_answer(call, "it has no token or no address")
    return token, url


def introspection(data: Json, call: Call) -> str:
    """Of IntrospectToken: the user's name; empty if the token isn't good."""
    return _text(data, "username", call) if data.get("active") is True else ""


def access_token(data: Json, call: Call) -> tuple[str, float]:
    """Of GenerateAccessToken: a token and the seconds it lasts."""
    token = _text(data, "token", call)
    if not token:
        raise bad_answer(call, "it has no token")
    return token, float(_number(data, "expiresIn", call))


def _pushed_ref(text: str) -> KernelRef | None:
    """``me/x``, ``/me/x``, ``/code/me/x`` or a whole URL."""
    try:
        return KernelRef.parse("/".join(text.strip("/").split("/")[-2:]))
    except UsageError:
        return None


def _text(data: Json, key: str, call: Call) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise bad_answer(call, f"{key} is not a text")
    return value


def _number(data: Json, key: str, call: Call) -> int:
    """A whole number; 64-bit ones come as text."""
    value = data.get(key)
    if value is None:
        return 0
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_answer(call, f"{key} is not a number")
    return value


def _list(data: Json, key: str, call: Call) -> list[Any]:
    value = data.get(key)
    if value is None:  # absent or null: the SDK fails on null, which only means "none"
        return []
    if not isinstance(value, list):
        raise bad_answer(call, f"{key} is not a list")
    return value


def _objects(data: Json, key: str, call: Call) -> list[Json]:
    items = _list(data, key, call)
    if not all(isinstance(item, dict) for item in items):
        raise bad_answer(call, f"{key} is not a list of objects")
    return items


def _names(data: Json, key: str, call: Call) -> list[str]:
    return [str(item) for item in _list(data, key, call)]


def _duration(data: Json, key: str, call: Call) -> float:
    value = data.get(key)
    if value is None:
        return 0.0
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise bad_answer(call, f"{key} is not a duration")
    return float(match[1])


def _moment(data: Json, key: str, call: Call) -> float | None:
    """Seconds since the epoch; without a zone it's UTC. None if it isn't given, or is a clock's zero."""
    text = _text(data, key, call)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise bad_answer(call, f"{key} is not a time") from error
    if moment.year < 2000:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
