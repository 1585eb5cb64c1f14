"""The SDK's request objects, filled in."""

from collections.abc import Callable
from typing import Any

from kaggle_orchestrator.models import KernelRef, PushRequest


def version_request(kind: Callable[[], Any], ref: KernelRef, version: int | None) -> Any:
    """A request for one version. Without the label Kaggle may answer for the one before, for minutes after a push."""
    request = kind()
    request.user_name = ref.owner
    request.kernel_slug = ref.slug
    if version is not None:
        request.version_label = f"v{version}"
    return request


def save_request(push: PushRequest) -> Any:
    """A request for a push; what Kaggle's defaults and the client's differ in is always said."""
    from kagglesdk.kernels.types.kernels_api_service import ApiSaveKernelRequest
    from kagglesdk.kernels.types.kernels_enums import KernelExecutionType

    request = ApiSaveKernelRequest()
    request.slug = str(push.ref)
    request.new_title = push.title
    request.text = push.source
    request.language = push.language
    request.kernel_type = push.kernel_type.value
    request.is_private = push.private
    request.enable_internet = push.internet  # always sent: Kaggle's default and the client's differ
    request.enable_gpu = push.machine_shape is not None
    request.enable_tpu = False
    request.machine_shape = push.machine_shape  # always sent: enable_gpu alone gets some default card
    request.dataset_data_sources = list(push.datasets)
    request.competition_data_sources = list(push.competitions)
    request.kernel_data_sources = list(push.kernels)
    request.model_data_sources = list(push.models)
    request.docker_image = push.docker_image
    request.session_timeout_seconds = push.session_timeout_s
    if not push.run:
        request.kernel_execution_type = KernelExecutionType.QUICK_SAVE
    return request
