"""A push as a folder: what the official ``kaggle kernels push -p`` takes as it is."""

import json
from pathlib import Path

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment.selection import RENDERED, RENDERED_NOTEBOOK
from kaggle_orchestrator.models import KernelType, PushRequest
from kaggle_orchestrator.protocol import parse_header, write_atomic

METADATA = "kernel-metadata.json"


def metadata(request: PushRequest) -> dict[str, object]:
    """``kernel-metadata.json``. Every setting is said: the defaults of the client and of the documentation differ."""
    document: dict[str, object] = {
        "id": str(request.ref),
        "title": request.title,
        "code_file": code_file(request),
        "language": request.language,
        "kernel_type": request.kernel_type,
        "is_private": request.private,
        "enable_gpu": request.machine_shape is not None,
        "enable_tpu": False,
        "enable_internet": request.internet,
        "machine_shape": request.machine_shape or "",  # the official client's own way to say CPU
        "dataset_sources": list(request.datasets),
        "competition_sources": list(request.competitions),
        "kernel_sources": list(request.kernels),
        "model_sources": list(request.models),
    }
    if request.docker_image:
        document["docker_image"] = request.docker_image
    return document


def code_file(request: PushRequest) -> str:
    """Name of the code file; Kaggle wants a notebook's to end in ``.ipynb``."""
    return RENDERED_NOTEBOOK if request.kernel_type is KernelType.NOTEBOOK else RENDERED


def write_folder(request: PushRequest, folder: Path) -> tuple[Path, Path]:
    """Write the metadata and the code file; returns their paths.

    Raises:
        RenderError: The folder can't be written, or holds files of those names that aren't a rendered kernel.
    """
    meta, code = folder / METADATA, folder / code_file(request)
    try:
        if _is_foreign(meta, code):
            raise RenderError(
                f"{folder} holds a kernel that kgo didn't render.", hint="Name another folder: it would be overwritten."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(code, request.source.encode())
        write_atomic(meta, (json.dumps(metadata(request), indent=2) + "\n").encode())
    except OSError as error:
        raise RenderError(f"{folder} can't be written: {error.strerror or error}.") from error
    return meta, code


def _is_foreign(meta: Path, code: Path) -> bool:
    if code.exists():
        return parse_header(code.read_bytes().decode("utf-8", "replace")) is None
    return meta.exists()
