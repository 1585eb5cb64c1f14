"""Datasets: made, added to, looked at and removed; what is made is never blindly made twice."""

import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from kaggle_orchestrator.client import answers
from kaggle_orchestrator.client.pages import all_pages
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

        def page(token: str) -> str:
            request = _named(ApiListDatasetFilesRequest(), ref)
            request.page_size, request.page_token = _PAGE, token

            def once() -> tuple[dict[str, int], str]:
                with translated(call):
                    answer = self._api.list_dataset_files(request)
                return answers.dataset_files(document(answer, call), call)

            found, following = self._retry(once)
            sizes.update(found)
            return following

        all_pages(call.what, self._retry.policy.pages, page)
        return sizes

    def version(self, ref: DatasetRef) -> int:
        """The current version's number; 0 for a new dataset that has none yet.

        Raises:
            NotAccessible: There is no such dataset, or it isn't this account's.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.datasets.types.dataset_api_service import ApiGetDatasetRequest

        request = _named(ApiGetDatasetRequest(), ref)
        call = self._call(f"the version of dataset {ref}")

        def once() -> int:
            with translated(call):
                answer = self._api.get_dataset(request)
            return answers.dataset_version(document(answer, call), call)

        return self._retry(once)

    def create(self, ref: DatasetRef, title: str, files: Mapping[str, Path], *, private: bool = True) -> None:
        """Make a dataset of files, and wait until they are its current version.

        Args:
            ref: Its name: a slug of 6 to 50 characters.
            title: 6 to 50 characters.
            files: By the name that they get; no archives, since Kaggle unpacks those.
            private: Seen by this account only.

        Raises:
            UsageError: A name can't be kept as it is, or its file isn't there.
            ArtifactError: A file can't be read, or was changed meanwhile.
            Refused: Kaggle refused it.
            Unavailable: It can't be had, or isn't current after a quarter of an hour.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.datasets.types.dataset_api_service import ApiCreateDatasetRequest

        sizes, before = _sizes(files), self._version_or_none(ref)
        request = ApiCreateDatasetRequest()
        request.owner_slug, request.slug, request.title = ref.owner, ref.slug, title
        request.license_name, request.is_private = "unknown", private
        request.files = self._upload(files, sizes)
        call = self._call(f"dataset {ref}", push=True)
        self._make(ref, sizes, before, call, lambda: self._api.create_dataset(request))

    def add_version(self, ref: DatasetRef, files: Mapping[str, Path], notes: str) -> None:
        """Make files the next version of a dataset, and wait until they are the current one.

        Raises:
            UsageError, ArtifactError, Refused, Unavailable, KaggleError: As :meth:`create`.
        """
        from kagglesdk.datasets.types.dataset_api_service import (
            ApiCreateDatasetVersionRequest,
            ApiCreateDatasetVersionRequestBody,
        )

        sizes, before = _sizes(files), self._version_or_none(ref)
        request, body = _named(ApiCreateDatasetVersionRequest(), ref), ApiCreateDatasetVersionRequestBody()
        body.version_notes, body.files = notes, self._upload(files, sizes)
        request.body = body
        call = self._call(f"the next version of dataset {ref}", push=True)
        self._make(ref, sizes, before, call, lambda: self._api.create_dataset_version(request))

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

    def _version_or_none(self, ref: DatasetRef) -> int:
        try:
            return self.version(ref)
        except NotAccessible:
            return 0

    def _upload(self, files: Mapping[str, Path], sizes: Mapping[str, int]) -> Sequence[Any]:
        from kagglesdk.blobs.types.blob_api_service import ApiBlobType, ApiStartBlobUploadRequest
        from kagglesdk.datasets.types.dataset_api_service import ApiDatasetNewFile

        entries = []
        for name, path in files.items():
            call = self._call(f"the upload of {name}")

            def start(name: str = name, path: Path = path, call: Call = call) -> tuple[str, str]:
                request = ApiStartBlobUploadRequest()
                request.type, request.name = ApiBlobType.DATASET, name
                request.content_length = sizes[name]
                request.last_modified_epoch_seconds = int(path.stat().st_mtime)

                def once() -> tuple[str, str]:
                    with translated(call):
                        answer = self._blobs.start_blob_upload(request)
                    return answers.upload_place(document(answer, call), call)

                return self._retry(once)

            entry = ApiDatasetNewFile()
            entry.token = upload(self._session, path, sizes[name], start, call, self._retry)
            entries.append(entry)
        return entries

    def _make(
        self, ref: DatasetRef, sizes: Mapping[str, int], before: int, call: Call, send: Callable[[], Any]
    ) -> None:
        """Send it once; a version after ``before``, with these files, is what tells that it was made and is current.

        The files' sizes alone don't tell: a checkpoint is as large as the one before it.
        """
        unclear: KaggleError | None = None
        try:
            with translated(call):
                answer = send()
            answers.dataset_made(document(answer, call), call)
        except UnclearPush as error:
            unclear = error
        until = self._retry.now() + PATIENCE_S
        while not self._is_current(ref, sizes, before):
            if self._retry.now() > until:
                why = "whether it was made isn't known" if unclear else "it was made"
                raise Unavailable(
                    f"Dataset {ref} hasn't got its new files after {PATIENCE_S / 60:.0f} min; {why}.",
                    hint="Look at it on kaggle.com, then try again.",
                ) from unclear
            self._retry.sleep(_LOOK_S)

    def _is_current(self, ref: DatasetRef, sizes: Mapping[str, int], before: int) -> bool:
        try:
            return self.version(ref) > before and self.files(ref) == sizes
        except KaggleError as error:
            # A new one isn't known everywhere; and that Kaggle fails for a while says nothing about what was made.
            if isinstance(error, NotAccessible) or self._retry.may_pass(error):
                return False
            raise


def _named(request: Any, ref: DatasetRef) -> Any:
    request.owner_slug, request.dataset_slug = ref.owner, ref.slug
    return request


def _sizes(files: Mapping[str, Path]) -> dict[str, int]:
    """Bytes by name, of files that can be a dataset's.

    Raises:
        UsageError: They can't.
    """
    if not files:
        raise UsageError("A dataset needs at least one file.")
    sizes = {}
    for name, path in files.items():
        if not name or "/" in name or name in (".", ".."):
            raise UsageError(f"{name!r} can't be a dataset's file: Kaggle leaves folders out.")
        if name.lower().endswith(UNPACKED):
            raise UsageError(
                f"{name} can't be a dataset's file as it is: Kaggle unpacks archives.", hint="Give it another suffix."
            )
        try:
            found = path.stat()
        except OSError as error:
            raise UsageError(f"{path} can't be a dataset's file: {error.strerror or error}.") from error
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{path} can't be a dataset's file: it isn't a file.")
        sizes[name] = found.st_size
    return sizes
