"""The kernels API's other calls, each a function from a call to what Kaggle answers."""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, RedirectResponse

from kaggle_orchestrator.localkaggle.context import Call, Context
from kaggle_orchestrator.localkaggle.outputs import Output, pack, read_listing, remove_tree
from kaggle_orchestrator.localkaggle.quota import gpu_time, quota_refresh
from kaggle_orchestrator.localkaggle.records import Kernel, Session
from kaggle_orchestrator.localkaggle.sessionlog import whole_log
from kaggle_orchestrator.localkaggle.spec import LieFrom
from kaggle_orchestrator.localkaggle.wire import Refusal, denied, duration, timestamp
from kaggle_orchestrator.models import KernelRef, SessionStatus
from kaggle_orchestrator.profile import ContainerCancel, QueuedStatus

_DELETE_PATIENCE_S = 10.0


def readable(context: Context, user: str, ref: KernelRef) -> Kernel:
    """A kernel that the user may read.

    Raises:
        Refusal: 403, whether it isn't there or isn't theirs.
    """
    kernel = context.world.kernel(ref)
    if kernel is None or (kernel.private and kernel.ref.owner != user):
        raise denied()
    if context.clock.now() < kernel.created + context.knobs.denied_s:
        raise denied()  # brand-new kernels aren't known everywhere yet
    return kernel


def session_of(context: Context, kernel: Kernel, number: int | None) -> Session | None:
    """The session of a version, or the last one; None for a version that was saved without running.

    Raises:
        Refusal: 404, no such version.
    """
    if number is not None and context.world.version(kernel, number) is None:
        raise Refusal(404, f"Version v{number} of {kernel.ref} not found")
    return context.world.session_of(kernel, number)


def get_session_status(context: Context, call: Call) -> dict[str, object]:
    """Status of one version's session; without a version, that of the latest that has got about."""
    kernel = readable(context, call.user, call.fields.kernel())
    session = session_of(context, kernel, call.fields.version() or _told_version(context, kernel))
    if session is None:
        return {"status": SessionStatus.NEW_SCRIPT.value}
    status = told_status(context, session)
    answer: dict[str, object] = {"status": status.value}
    if status is SessionStatus.QUEUED and context.knobs.queued_status is QueuedStatus.OMITTED:
        answer = {}
    if session.message and status is session.status:
        answer["failureMessage"] = session.message
    return answer


def _told_version(context: Context, kernel: Kernel) -> int:
    """The version that a status without one is about: for a while after a push still the one before."""
    version = context.world.version(kernel, kernel.current)
    new = version is not None and context.clock.now() < version.created + context.knobs.stale_status_s
    earlier = context.world.session_before(kernel, kernel.current) if new else None
    return earlier.version if earlier else kernel.current


def told_status(context: Context, session: Session) -> SessionStatus:
    """What Kaggle says of a session, which may be late, or wrong."""
    now, knobs = context.clock.now(), context.knobs
    lie = context.sessions.lie(session)
    if lie is not None:
        since = session.created if lie.since is LieFrom.START else session.ended
        if since is not None and since <= now < since + lie.for_s:
            return lie.status
    if session.ended is not None and now < session.ended + knobs.status_lag_s:
        return SessionStatus.RUNNING
    return session.status


def _shown(context: Context, session: Session | None) -> bool:
    """Whether a session's output and log are there to be read."""
    if session is None or session.ended is None:
        return False
    knobs = context.knobs
    return context.clock.now() >= session.ended + knobs.status_lag_s + knobs.output_lag_s


def list_session_output(context: Context, call: Call) -> dict[str, object]:
    """Files with signed URLs, and the log; nothing of a session that lives."""
    offset, size = call.fields.page()
    kernel = readable(context, call.user, call.fields.kernel())
    session = session_of(context, kernel, call.fields.version())
    answer: dict[str, object] = {"files": []}
    if session is None or not _shown(context, session):
        return answer
    folder = context.sessions.folder(session)
    outputs = list(read_listing(folder))
    answer["files"] = [
        {"fileName": name, "url": context.signed_url(call.base, session.id, name)}
        for name in outputs[offset : offset + size]
    ]
    if offset == 0:
        answer["log"] = whole_log(folder.log)
    if offset + size < len(outputs):
        answer["nextPageToken"] = str(offset + size)
    return answer


def list_files(context: Context, call: Call) -> dict[str, object]:
    """Names, sizes and dates of the output's files."""
    offset, size = call.fields.page()
    kernel = readable(context, call.user, call.fields.kernel())
    session = session_of(context, kernel, call.fields.version())
    outputs: list[Output] = []
    if session is not None and _shown(context, session):
        outputs = list(read_listing(context.sessions.folder(session)).values())
    answer: dict[str, object] = {
        "files": [
            {"name": o.name, "size": o.size, "creationDate": timestamp(o.modified)}
            for o in outputs[offset : offset + size]
        ]
    }
    if offset + size < len(outputs):
        answer["nextPageToken"] = str(offset + size)
    return answer


def get_kernel(context: Context, call: Call) -> dict[str, object]:
    """Settings and source of one version."""
    kernel = readable(context, call.user, call.fields.kernel())
    number = call.fields.version() or kernel.current
    version = context.world.version(kernel, number)
    if version is None:
        raise Refusal(404, f"Version v{number} of {kernel.ref} not found")
    settings = version.settings
    return {
        "metadata": _summary(context, kernel)
        | {
            "language": settings.language,
            "kernelType": settings.kernel_type,
            "isPrivate": kernel.private,
            "enableGpu": settings.gpu,
            "enableTpu": False,
            "enableInternet": settings.internet,
            "machineShape": settings.machine_shape or "",
            "dockerImage": settings.docker_image or "",
            "datasetDataSources": list(settings.datasets),
            "kernelDataSources": list(settings.kernels),
            "competitionDataSources": list(settings.competitions),
            "modelDataSources": [],
            "categoryIds": [],
            "currentVersionNumber": kernel.current,
        },
        "blob": {
            "source": version.source,
            "language": settings.language,
            "kernelType": settings.kernel_type,
            "slug": kernel.ref.slug,
        },
    }


def _summary(context: Context, kernel: Kernel) -> dict[str, object]:
    version = context.world.version(kernel, kernel.current)
    return {
        "id": kernel.id,
        "ref": str(kernel.ref),
        "title": kernel.title,
        "author": kernel.ref.owner,
        "slug": kernel.ref.slug,
        "lastRunTime": timestamp(version.created if version else kernel.created),
        "totalVotes": 0,
    }


def list_kernels(context: Context, call: Call) -> dict[str, object]:
    """One's own kernels (``group`` PROFILE), or all that one may see; the one pushed to last comes first."""
    fields = call.fields
    owner = call.user if fields.text("group") == "PROFILE" else fields.text("user")
    search, page = fields.text("search").lower(), fields.integer("page") or 1
    offset, size = fields.page()
    offset = offset or max(0, page - 1) * size
    found = [
        kernel
        for kernel in context.world.kernels()
        if (not owner or kernel.ref.owner == owner)
        and (not kernel.private or kernel.ref.owner == call.user)
        and (search in kernel.title.lower() or search in kernel.ref.slug)
    ]
    answer: dict[str, object] = {"kernels": [_summary(context, k) for k in found[offset : offset + size]]}
    if offset + size < len(found):
        answer["nextPageToken"] = str(offset + size)
    return answer


def _own(context: Context, call: Call) -> Kernel:
    kernel = context.world.kernel(call.fields.kernel())
    if kernel is None or kernel.ref.owner != call.user:
        raise denied()
    return kernel


async def delete_kernel(context: Context, call: Call) -> dict[str, object]:
    """Ends its sessions and takes everything with it."""
    kernel = _own(context, call)
    until = time.monotonic() + _DELETE_PATIENCE_S
    while True:
        sessions = [s for s in context.world.sessions() if s.kernel == kernel.ref]
        live = [s for s in sessions if not s.status.terminal]
        if not live:
            break
        if time.monotonic() > until:
            raise Refusal(503, f"A session of {kernel.ref} does not end.")
        for session in live:
            context.sessions.cancel(session, save=False)
        await asyncio.sleep(0.02)  # others are answered meanwhile, and may even push
        context.sessions.refresh()
        if context.world.kernel_by_id(kernel.id) is None:  # removed meanwhile; what has its name now is another one
            return {}
    context.world.remove_kernel(kernel)
    for session in sessions:
        remove_tree(context.sessions.folder(session).path)
    return {}


def cancel_session(context: Context, call: Call) -> dict[str, object]:
    """Ends a session; its number is known only to the session itself (``KAGGLE_CONTAINER_NAME``)."""
    number = call.fields.integer("kernelSessionId")
    session = context.world.session(number) if number is not None else None
    if session is None or context.knobs.container_cancel is ContainerCancel.REFUSED:
        raise Refusal(404, f"Session {number} not found")
    if session.kernel.owner != call.user:
        raise denied()
    if not session.status.terminal:
        context.sessions.cancel(session)
    return {}


def download_output(context: Context, call: Call) -> RedirectResponse:
    """A redirect to one file of a version's output."""
    fields = call.fields
    kernel = readable(context, call.user, fields.kernel("ownerSlug"))
    session = session_of(context, kernel, fields.integer("versionNumber"))
    name = fields.text("filePath")
    if not name:
        raise Refusal(400, "filePath: expected the name of a file")
    if session is None or not _shown(context, session) or name not in read_listing(context.sessions.folder(session)):
        raise Refusal(404, f"{name[:200]!r} is not in the output")
    return RedirectResponse(context.signed_url(call.base, session.id, name), status_code=302)


async def download_zip(context: Context, call: Call) -> FileResponse:
    """All files of a version's output as one archive."""
    session = context.world.session(call.fields.integer("kernelSessionId") or 0)
    if session is None or not _shown(context, session):
        raise Refusal(404, "There is no such output")
    readable(context, call.user, session.kernel)
    folder = context.sessions.folder(session)
    handle, name = tempfile.mkstemp(suffix=".zip", dir=folder.path)
    os.close(handle)
    path = Path(name)
    try:
        await asyncio.to_thread(pack, path, folder.working, list(read_listing(folder)))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return FileResponse(
        path, media_type="application/zip", filename="output.zip", background=BackgroundTask(path.unlink)
    )


def quota(context: Context, call: Call) -> dict[str, object]:
    """The weekly GPU quota."""
    now = context.clock.now()
    used, reserved = gpu_time(context.world, call.user, now)
    return {
        "quotaRefreshTime": timestamp(quota_refresh(now)),
        "gpuQuota": {
            "timeUsed": duration(used),
            "timeReserved": duration(reserved),
            "totalTimeAllowed": duration(context.knobs.gpu_quota_hours * 3600),
            "hasEverRun": used > 0,
        },
        "tpuQuota": {"timeUsed": "0s", "timeReserved": "0s", "totalTimeAllowed": "72000s"},
    }


Handler = Callable[[Context, Call], object]
"""Answers a call with a JSON object or a response, perhaps through a coroutine."""

HANDLERS: dict[str, Handler] = {
    "GetKernelSessionStatus": get_session_status,
    "ListKernelSessionOutput": list_session_output,
    "ListKernelFiles": list_files,
    "GetKernel": get_kernel,
    "ListKernels": list_kernels,
    "DeleteKernel": delete_kernel,
    "CancelKernelSession": cancel_session,
    "DownloadKernelOutput": download_output,
    "DownloadKernelOutputZip": download_zip,
    "GetAcceleratorQuotaStatistics": quota,
}
