"""SaveKernel: what Kaggle accepts, what it refuses and in which words, and the version and session that come of it."""

import ast
from dataclasses import dataclass

from slugify import slugify

from kaggle_orchestrator.localkaggle import notebook
from kaggle_orchestrator.localkaggle.context import Call, Context
from kaggle_orchestrator.localkaggle.knobs import Verified
from kaggle_orchestrator.localkaggle.quota import gpu_time
from kaggle_orchestrator.localkaggle.records import Kernel, Settings
from kaggle_orchestrator.localkaggle.sources import Sources, sort_sources
from kaggle_orchestrator.localkaggle.wire import Fields, Refusal, is_name
from kaggle_orchestrator.models import KernelRef

NOT_FOUND = "Notebook not found"
TITLE_TAKEN = "The requested title is already in use by a notebook. Please choose another title."
TOO_LARGE = "The kernel source must be less than 1 megabytes in size."
UNVERIFIED = "Permission 'kernels.create' was denied: the account is not verified."
_MAX_SOURCE = 1_000_000
_DEFAULT_GPU = "NvidiaTeslaT4"
_RETIRED = {"NvidiaTeslaP100": "NvidiaTeslaT4"}
_GPUS = {"NvidiaTeslaT4", "NvidiaL4", "NvidiaL4X1", "NvidiaTeslaA100", "NvidiaH100", "NvidiaRtxPro6000"}


class Declined(Exception):
    """A push is refused the way Kaggle does it: HTTP 200, with these words in ``error``."""


@dataclass(frozen=True, slots=True)
class _Push:
    ref: KernelRef
    kernel: Kernel | None
    title: str
    private: bool
    text: str
    limit_s: float
    gpu: bool
    run: bool
    settings: Settings
    sources: Sources
    invalid_models: tuple[str, ...]


def save_kernel(context: Context, call: Call) -> dict[str, object]:
    """Make a version, and run it unless asked not to."""
    try:
        push = _read(context, call)
        if push.run:
            _check_caps(context, call.user, gpu=push.gpu)
        if push.run and push.gpu:
            _check_quota(context, call.user)
    except Declined as refusal:
        return {"error": str(refusal)}
    now = context.clock.now()
    world = context.world
    with world.change():
        kernel = push.kernel or world.add_kernel(push.ref, push.title, push.private, now)
        world.update_kernel(kernel, push.title, push.private)
        number = world.add_version(kernel, push.text, push.settings, now)
        if push.run:
            world.add_session(kernel, number, push.gpu, push.limit_s, now)
    context.sessions.refresh()  # it starts at once, where there is no queue
    return {
        "ref": str(kernel.ref),
        "url": f"{call.base}/code/{kernel.ref}",
        "versionNumber": number,
        "kernelId": kernel.id,
        "invalidDatasetSources": list(push.sources.invalid_datasets),
        "invalidCompetitionSources": list(push.sources.invalid_competitions),
        "invalidKernelSources": list(push.sources.invalid_kernels),
        "invalidModelSources": list(push.invalid_models),
    }


def _read(context: Context, call: Call) -> _Push:
    fields, verified = call.fields, context.knobs.verified
    if verified is Verified.NOTHING:
        raise Refusal(403, UNVERIFIED)
    text, language, kind = fields.text("text"), fields.text("language"), fields.text("kernelType")
    if len(text.encode()) >= _MAX_SOURCE:
        raise Refusal(400, TOO_LARGE)
    if not text.strip():
        raise Refusal(400, "The kernel source must not be empty.")
    if kind not in ("script", "notebook"):
        raise Refusal(400, f"kernelType: {kind[:40]!r} is neither script nor notebook")
    if language != "python":
        raise Refusal(501, f"The local Kaggle runs Python, not a {language[:20]} {kind}.")
    if kind == "notebook":
        notebook.check(text)
    elif not context.boxed:
        _check_paths(text, context.box_reason)
    kernel, ref, title = _target(context, call)
    shape, gpu = _machine(fields)
    if verified is Verified.NO_PHONE:  # accepted, but without a word about what is missing
        shape, gpu = None, False
    sources = sort_sources(
        context.world,
        call.user,
        ref,
        datasets=fields.texts("datasetDataSources"),
        kernels=fields.texts("kernelDataSources"),
        competitions=fields.texts("competitionDataSources"),
        self_mount=context.knobs.self_mount,
    )
    settings = Settings(
        language=language,
        kernel_type=kind,
        gpu=gpu,
        internet=fields.flag("enableInternet") and verified is not Verified.NO_PHONE,
        machine_shape=shape,
        docker_image=_image(fields),
        datasets=sources.datasets,
        competitions=sources.competitions,
        kernels=sources.kernels,
    )
    return _Push(
        ref=ref,
        kernel=kernel,
        title=title,
        private=fields.flag("isPrivate", kernel.private if kernel else True),
        text=text,
        limit_s=_limit(fields, context.knobs.max_session_s),
        gpu=gpu,
        run=fields.text("kernelExecutionType") != "QUICK_SAVE",
        settings=settings,
        sources=sources,
        invalid_models=fields.texts("modelDataSources"),
    )


def _check_paths(text: str, reason: str) -> None:
    """Where ``/kaggle`` can't be mapped, a script that names it outright would fail anyway, but later."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return  # it says so itself when it's run
    remarks = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in remarks:
            continue
        if node.value.startswith("/kaggle/"):
            raise Declined(
                f"This local Kaggle has no /kaggle ({reason}), and line {node.lineno} names {node.value[:80]!r}: "
                "take the folder from KGO_KAGGLE_ROOT, or a source from run.mount."
            )


def _target(context: Context, call: Call) -> tuple[Kernel | None, KernelRef, str]:
    """The kernel that is pushed to, or the name and title of one to be made; the slug is made from the title."""
    fields, world = call.fields, context.world
    number, name, title = fields.integer("id"), fields.text("slug"), fields.text("newTitle").strip()
    if number is not None and not name:
        kernel = world.kernel_by_id(number)
        if kernel is None or kernel.ref.owner != call.user:
            raise Declined(NOT_FOUND)
    else:
        owner, _, slug = name.partition("/")
        if not is_name(owner) or not is_name(slug):
            raise Refusal(400, f"slug: {name[:100]!r} is not owner/slug")
        if owner != call.user:
            raise Declined(NOT_FOUND)
        kernel = world.kernel(KernelRef(owner, slug.lower()))
        title = title or (kernel.title if kernel else slug)
    title = title or (kernel.title if kernel else "")
    if not 5 <= len(title) <= 50:  # one that is too long isn't foreseen there
        raise Refusal(400 if len(title) < 5 else 500, "The title must be between 5 and 50 characters long.")
    slug = slugify(title)
    if not is_name(slug):
        raise Refusal(400, f"The title {title!r} makes no slug.")
    ref = kernel.ref if kernel else KernelRef(call.user, slug)
    other = world.kernel(KernelRef(call.user, slug))
    if other is not None and (kernel is None or other.id != kernel.id):
        raise Refusal(409, TITLE_TAKEN)
    if world.title_taken(call.user, title, besides=kernel.id if kernel else None):
        raise Refusal(409, TITLE_TAKEN)
    return kernel, ref, title


def _machine(fields: Fields) -> tuple[str | None, bool]:
    """The machine that Kaggle gives, and whether it has a GPU. An unknown shape is accepted and changes nothing."""
    shape = fields.text("machineShape") or None
    if fields.flag("enableTpu") or (shape or "").startswith("Tpu"):
        raise Refusal(501, "The local Kaggle has no TPU sessions.")
    shape = _RETIRED.get(shape or "", shape)
    if shape in _GPUS:
        return shape, True
    if fields.flag("enableGpu"):
        return _DEFAULT_GPU, True
    return shape, False


def _image(fields: Fields) -> str | None:
    image = fields.text("dockerImage")
    if image and not image.startswith("gcr.io/kaggle-"):
        raise Refusal(400, f"dockerImage: {image[:200]!r} is not a docker image that Kaggle provides.")
    return image or None


def _limit(fields: Fields, most: float) -> float:
    asked = fields.integer("sessionTimeoutSeconds")
    if asked is None:
        return most
    if not 0 < asked < most:
        raise Refusal(400, f"sessionTimeoutSeconds must be lower than {most:g}.")
    return float(asked)


def _check_caps(context: Context, user: str, *, gpu: bool) -> None:
    context.sessions.refresh()
    live = [s for s in context.world.sessions(live=True) if s.kernel.owner == user and s.gpu == gpu]
    most = context.knobs.gpu_sessions if gpu else context.knobs.cpu_sessions
    if len(live) >= most:
        raise Declined(f"Maximum batch {'GPU' if gpu else 'CPU'} session count of {most} reached.")


def _check_quota(context: Context, user: str) -> None:
    used, reserved = gpu_time(context.world, user, context.clock.now())
    total = context.knobs.gpu_quota_hours * 3600
    if used >= total:
        raise Declined(f"Maximum weekly GPU quota of {total / 3600:.2f} hours reached.")
    if used + reserved >= total:
        raise Declined(
            "Session cannot start because currently running sessions are projected to exceed maximum weekly GPU "
            f"quota of {total / 3600:g}. Please wait for them to end, or stop one."
        )
