"""Turns an experiment and an attempt into the request that pushes it. The same input gives the same bytes, anywhere.

The user's files and words reach the kernel as data in the bundle, never as template text.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from slugify import slugify

from kaggle_orchestrator import __version__
from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment import (
    MAX_SESSION_S,
    Experiment,
    OnMismatch,
    chain_id,
    code_sha256,
    collect,
    config_sha256,
)
from kaggle_orchestrator.experiment.params import UnknownParameter, substitute
from kaggle_orchestrator.models import KernelRef, PushRequest
from kaggle_orchestrator.protocol import Header, LegRecord, Plan, attempt_token, parse_header
from kaggle_orchestrator.render.bundle import Member, pack, unpack, user_files
from kaggle_orchestrator.render.templates import expand

MAX_SOURCE = 1_000_000
"""Bytes. Kaggle refuses a source that isn't ``less than 1 megabytes``."""
_HOPELESS = 100_000_000
"""Bytes of files that no compression brings below that."""
_LINE = 100
_BUNDLE = re.compile(r'^BUNDLE_SHA256 = "([0-9a-f]{64})"\nBUNDLE = """\n([A-Za-z0-9+/=\n]*)"""$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    """What the chain decided about an attempt; the experiment says the rest.

    Attributes:
        kernel: Where it is pushed to.
        title: Slugifies to the kernel's slug.
        header: Its header.
        leave_after_s: Seconds after the session's start at which training should have left; None for a one-off.
        session_limit_s: Seconds after which Kaggle shall kill the session.
        mounts: Kernel sources (``owner/slug``) for the parent, added to the experiment's own.
        lineage: The legs before this one, oldest first.
    """

    kernel: KernelRef
    title: str
    header: Header
    leave_after_s: float | None
    session_limit_s: float
    mounts: tuple[str, ...] = ()
    lineage: tuple[LegRecord, ...] = ()


def first_attempt(experiment: Experiment, owner: str) -> AttemptSpec:
    """The first attempt of a first chain (or of a one-off), as ``kgo push`` would make it.

    Raises:
        ConfigError: The files can't be collected.
        RenderError: A file can't be read.
    """
    files = collect(experiment)
    _refuse_data(files)
    chain = chain_id(owner, experiment.kernel.slug, 1)
    header = Header(
        chain=chain,
        leg=1,
        attempt=1,
        token=attempt_token(chain, 1, 1),
        parent=None,
        code_sha256=code_sha256(files),
        config_sha256=config_sha256(experiment),
        kgo_version=__version__,
    )
    limits = experiment.chain
    limit_s = MAX_SESSION_S if limits is None else limits.session_limit_s
    return AttemptSpec(
        kernel=KernelRef(owner, experiment.kernel.slug),
        title=experiment.kernel.title,
        header=header,
        leave_after_s=None if limits is None else max(limit_s - limits.stop_before_s, limit_s / 2),
        session_limit_s=limit_s,
    )


def render(experiment: Experiment, attempt: AttemptSpec) -> PushRequest:
    """Make the request that pushes one attempt.

    Raises:
        ConfigError: The files can't be collected.
        RenderError: Kaggle wouldn't take the kernel, a file can't be read, or the template is broken.
    """
    kernel, own = experiment.kernel, str(attempt.kernel)
    if slugify(attempt.title) != attempt.kernel.slug:
        raise RenderError(f"The title {attempt.title!r} doesn't give the slug of {own}.")
    kernels = tuple(dict.fromkeys((*kernel.kernels, *attempt.mounts)))
    if own in kernels:
        raise RenderError(f"{own} names itself as a source, which Kaggle drops.", hint="Take it out of kernel.kernels.")
    files = collect(experiment)
    _refuse_data(files)
    members = user_files(files)
    if code_sha256({path: member.data for path, member in members.items()}) != attempt.header.code_sha256:
        raise RenderError("The files changed while the kernel was made from them.", hint="Try again.")
    # Kaggle takes whole seconds, and none that reach its own maximum: the plan has to know the same number.
    timeout = None if attempt.session_limit_s >= MAX_SESSION_S else max(1, int(attempt.session_limit_s))
    limit = float(MAX_SESSION_S if timeout is None else timeout)
    archive = pack(_plan(experiment, attempt, kernels, limit), members)
    source, kernel_type = expand(
        experiment,
        {
            "header": attempt.header,
            "header_line": attempt.header.line(),
            "kernel": own,
            "entry": ascii(experiment.train.entry),
            "file_count": len(files),
            "bundle_sha256": hashlib.sha256(archive).hexdigest(),
            "bundle": _wrapped(base64.b64encode(archive).decode()),
        },
    )
    _check(source, files)
    return PushRequest(
        ref=attempt.kernel,
        title=attempt.title,
        source=source,
        kernel_type=kernel_type,
        private=kernel.private,
        internet=kernel.internet,
        machine_shape=kernel.accelerator.machine_shape,
        datasets=kernel.datasets,
        competitions=kernel.competitions,
        kernels=kernels,
        models=kernel.models,
        docker_image=kernel.docker_image,
        session_timeout_s=timeout,
    )


def bundle_of(source: str) -> dict[str, Member]:
    """The files in a rendered kernel's source, by their path in the bundle.

    Raises:
        RenderError: The source isn't a rendered kernel, or is damaged.
    """
    match = _BUNDLE.search(_code(source))
    if not match:
        raise RenderError("The source holds no bundle.")
    archive = base64.b64decode(match[2])
    if hashlib.sha256(archive).hexdigest() != match[1]:
        raise RenderError("The bundle in the source is damaged: its sha256 differs.")
    return unpack(archive)


def _plan(experiment: Experiment, attempt: AttemptSpec, kernels: tuple[str, ...], limit_s: float) -> Plan:
    kernel, train, checkpoint = experiment.kernel, experiment.train, experiment.checkpoint
    try:
        args = tuple(substitute(arg, train.params) for arg in train.args)
    except UnknownParameter as unknown:
        raise RenderError(f"train.args name params.{unknown.name}, which there isn't.") from unknown
    owned = [source.split("/")[1] for source in (*kernel.datasets, *kernels, *kernel.models)]
    return Plan(
        header=attempt.header,
        entry=train.entry,
        args=args,
        launch=train.launch,
        session_limit_s=limit_s,
        leave_after_s=None if experiment.chain is None else attempt.leave_after_s,
        keep=checkpoint.keep,
        save_every_s=checkpoint.save_every_s,
        accelerator=kernel.accelerator.machine_shape,
        gpu_count=kernel.accelerator.gpus,
        sources=tuple(dict.fromkeys([*owned, *kernel.competitions])),
        params=train.params,
        paths=checkpoint.paths,
        done=checkpoint.done,
        lineage=attempt.lineage,
        deterministic=checkpoint.deterministic,
        stop_on_mismatch=checkpoint.on_mismatch is OnMismatch.STOP,
        hung_s=experiment.guards.hung_s,
    )


def _wrapped(text: str) -> str:
    return "\n".join(text[n : n + _LINE] for n in range(0, len(text), _LINE))


def _refuse_data(files: dict[str, Path]) -> None:
    """Don't read, let alone compress, what can't possibly fit."""
    total = sum(f.stat().st_size for f in files.values())
    if total > _HOPELESS:
        raise _too_large(f"The {len(files)} files that travel have {total:,} bytes", files)


def _check(source: str, files: dict[str, Path]) -> None:
    """Refuse what Kaggle would refuse, or what would fail there before its first line ran."""
    size = len(source.encode())
    if size >= MAX_SOURCE:
        raise _too_large(f"The kernel would have {size:,} bytes", files)
    if parse_header(source) is None:
        raise RenderError("The template leaves out the header.", hint="Its first line is {{ header_line }}.")
    bundle_of(source)
    try:
        compile(_code(source), "<kernel>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise RenderError(f"The template doesn't make valid Python: {error}.") from error


def _code(source: str) -> str:
    """The Python in a kernel's source: all of a script, the code cells of a notebook one below the other.

    Raises:
        RenderError: It's a notebook that Kaggle wouldn't take.
    """
    if not source.lstrip().startswith("{"):
        return source
    try:
        notebook = json.loads(source)
        cells = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        if not notebook["metadata"]["kernelspec"]["name"] or not all(isinstance(cell, str) for cell in cells):
            raise TypeError("a cell's source isn't one string, or there is no kernelspec")
    except (ValueError, KeyError, TypeError) as error:
        raise RenderError(f"The template doesn't make a notebook that Kaggle takes: {error}.") from error
    return "\n".join(cells)


def _too_large(what: str, files: dict[str, Path]) -> RenderError:
    largest = sorted(((f.stat().st_size, path) for path, f in files.items()), reverse=True)[:5]
    listing = "".join(f"\n  {size:>13,}  {path}" for size, path in largest)
    return RenderError(
        f"{what}; Kaggle takes a source of less than {MAX_SOURCE:,}. The largest of the files (bytes before "
        f"compression):{listing}",
        hint="Leave out what training doesn't need (train.exclude, or train.include to name what it does), "
        "and put data into a dataset (kernel.datasets).",
    )
