"""Datasets: made, added to, looked at and removed; what is made is never blindly made twice."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from kaggle_orchestrator.client import answers
from kaggle_orchestrator.client.policy import Retry
from kaggle_orchestrator.client.translate import Call, document, translated
from kaggle_orchestrator.client.upload import upload
from kaggle_orchestrator.errors import KaggleError, NotAccessible, Unavailable, UnclearPush, UsageError
from kaggle_orchestrator.models import DatasetRef

if TYPE_CHECKING:
    from kaggle_orchestrator.client.identity import Identity
    from kaggle_orchestrator.client.transport import Transport

UNPACKED = (".zip", ".tar", ".tar.gz", ".tgz", ".gz", ".7z", ".rar", ".bz2", ".xz")
"""Kaggle unpacks such uploads, so that their sha256 is lost."""
PATIENCE_S = 900.0
_LOOK_S = 5.0
_PAGE = 200


class Datasets:
    """The datasets of an account; at :attr:`kaggle_orchestrator.client.Kaggle.datasets`."""

    def __init__(self, transport: "Transport", identity: "Identity", files: requests.Session, retry: Retry) -> None:
        from kagglesdk.blobs.services.blob_api_service import BlobApiClient
        from kagglesdk.datasets.services.dataset_api_service import DatasetApiClient

        self._identity = identity
        self._session = files
        self._retry = retry
        self._api = DatasetApiClient(transport)
        self._blobs = BlobApiClient(transport)

    def exists(self, ref: DatasetRef) -> bool:
        """Whether this account can see it.

        Raises:
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        try:
            return bool(self.status(ref))
        except NotAccessible:
            return False

    def status(self, ref: DatasetRef) -> str:
        """Kaggle's word, ``READY`` when its files are there; that they are the *current* ones it doesn't say.

        Raises:
            NotAccessible: There is no such dataset, or it isn't this account's.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.datasets.types.dataset_api_service import ApiGetDatasetStatusRequest

        request = _named(ApiGetDatasetStatusRequest(), ref)
        call = self._call(f"the status of dataset {ref}")

        def once() -> str:
            with translated(call):
                answer = self._api.get_dataset_status(request)
            return answers.dataset_status(document(answer, call), call)

        return self._retry(once)

    def files(self, ref: DatasetRef) -> Mapping[str, int]:
        """Sizes in bytes by name, of the current version.

        Raises:
            NotAccessible: There is no such dataset, or it isn't this account's.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.datasets.types.dataset_api_service import ApiListDatasetFilesRequest

        call = self._call(f"the files of dataset {ref}")
        sizes: dict[str, int] = {}
        token = ""
        for _ in range(self._retry.policy.pages):
            request = _named(ApiListDatasetFilesRequest(), ref)
            request.page_size, request.page_token = _PAGE, token

            def once(request: Any = request) -> tuple[dict[str, int], str]:
                with translated(call):
                    answer = self._api.list_dataset_files(request)
                return answers.dataset_files(document(answer, call), call)

            page, token = self._retry(once)
            sizes |= page
            if not token:
                break
        return sizes

    def create(self, ref: DatasetRef, title: str, files: Mapping[str, Path], *, private: bool = True) -> None:
        """Make a dataset of files, and wait until they are its current version.

        Args:
            ref: Its name: a slug of 6 to 50 characters.
            title: 6 to 50 characters.
            files: By the name that they get; no archives, since Kaggle unpacks those.
            private: Seen by this account only.

        Raises:
            UsageError: A name can't be kept as it is.
            Refused: Kaggle refused it.
            Unavailable: It can't be had, or isn't current after a quarter of an hour.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.datasets.types.dataset_api_service import ApiCreateDatasetRequest

        _check(files)
        request = ApiCreateDatasetRequest()
        request.owner_slug, request.slug, request.title = ref.owner, ref.slug, title
        request.license_name, request.is_private = "unknown", private
        request.files = self._upload(files)
        self._make(ref, files, self._call(f"dataset {ref}", push=True), lambda: self._api.create_dataset(request))

    def add_version(self, ref: DatasetRef, files: Mapping[str, Path], notes: str) -> None:
        """Make files the next version of a dataset, and wait until they are the current one.

        Raises:
            UsageError, Refused, Unavailable, KaggleError: As :meth:`create`.
        """
        from kagglesdk.datasets.types.dataset_api_service import (
            ApiCreateDatasetVersionRequest,
            ApiCreateDatasetVersionRequestBody,
        )

        _check(files)
        request, body = _named(ApiCreateDatasetVersionRequest(), ref), ApiCreateDatasetVersionRequestBody()
        body.version_notes, body.files = notes, self._upload(files)
        request.body = body
        call = self._call(f"the next version of dataset {ref}", push=True)
        self._make(ref, files, call, lambda: self._api.create_dataset_version(request))

    def delete(self, ref: DatasetRef) -> None:
        """Delete a dataset with all its versions; one that isn't there is no error.

        Raises:
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.datasets.types.dataset_api_service import ApiDeleteDatasetRequest

        request = _named(ApiDeleteDatasetRequest(), ref)
        call = self._call(f"the removal of dataset {ref}")

        def once() -> None:
            with translated(call):
                answer = self._api.delete_dataset(request)
            answers.done(document(answer, call), call)

        with suppress(NotAccessible):
            self._retry(once)

    def _call(self, what: str, *, push: bool = False) -> Call:
        return Call(what, push=push, secrets=self._identity.secrets)

    def _upload(self, files: Mapping[str, Path]) -> Sequence[Any]:
        from kagglesdk.blobs.types.blob_api_service import ApiBlobType, ApiStartBlobUploadRequest
        from kagglesdk.datasets.types.dataset_api_service import ApiDatasetNewFile

        entries = []
        for name, path in files.items():
            call = self._call(f"the upload of {name}")

            def start(name: str = name, path: Path = path, call: Call = call) -> tuple[str, str]:
                request = ApiStartBlobUploadRequest()
                request.type, request.name = ApiBlobType.DATASET, name
                request.content_length = path.stat().st_size
                request.last_modified_epoch_seconds = int(path.stat().st_mtime)

                def once() -> tuple[str, str]:
                    with translated(call):
                        answer = self._blobs.start_blob_upload(request)
                    return answers.upload_place(document(answer, call), call)

                return self._retry(once)

            entry = ApiDatasetNewFile()
            entry.token = upload(self._session, path, start, call, self._retry)
            entries.append(entry)
        return entries

    def _make(self, ref: DatasetRef, files: Mapping[str, Path], call: Call, send: Any) -> None:
        """Send it once; where its fate isn't clear, what the dataset holds is what tells."""
        unclear: KaggleError | None = None
        try:
            with translated(call):
                answer = send()
            answers.dataset_made(document(answer, call), call)
        except UnclearPush as error:
            unclear = error
        sizes, until = {name: path.stat().st_size for name, path in files.items()}, self._retry.now() + PATIENCE_S
        while True:
            try:
                if self.files(ref) == sizes:
                    return
            except NotAccessible:
                pass  # it's new, and not known everywhere
            if self._retry.now() > until:
                why = "whether it was made isn't known" if unclear else "it was made"
                raise Unavailable(
                    f"Dataset {ref} hasn't got its new files after {PATIENCE_S / 60:.0f} min; {why}.",
                    hint="Look at it on kaggle.com, then try again.",
                ) from unclear
            self._retry.sleep(_LOOK_S)


def _named(request: Any, ref: DatasetRef) -> Any:
    request.owner_slug, request.dataset_slug = ref.owner, ref.slug
    return request


def _check(files: Mapping[str, Path]) -> None:
    for name in files:
        if not name or "/" in name or name in (".", ".."):
            raise UsageError(f"{name!r} can't be a dataset's file: Kaggle leaves folders out.")
        if name.lower().endswith(UNPACKED):
            raise UsageError(
                f"{name} can't be a dataset's file as it is: Kaggle unpacks archives.", hint="Give it another suffix."
            )
    if not files:
        raise UsageError("A dataset needs at least one file.")
