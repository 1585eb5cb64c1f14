"""Kaggle as the layers above see it: version-exact reads that are repeated, and a push that never is."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kaggle_orchestrator.client import answers
from kaggle_orchestrator.client.download import Downloader
from kaggle_orchestrator.client.endpoint import Endpoint
from kaggle_orchestrator.client.forms import save_request, version_request
from kaggle_orchestrator.client.logtext import log_lines
from kaggle_orchestrator.client.pages import all_pages
from kaggle_orchestrator.client.policy import Retry
from kaggle_orchestrator.client.signed import Resign
from kaggle_orchestrator.client.translate import Call, document, translated
from kaggle_orchestrator.errors import NotAccessible
from kaggle_orchestrator.models import (
    Artifact,
    KernelRef,
    KernelVersion,
    LogRecord,
    OutputFile,
    OutputListing,
    PushAnswer,
    PushRequest,
    Quota,
    StatusReport,
)
from kaggle_orchestrator.profile import Profile
from kaggle_orchestrator.protocol import FileDigest

if TYPE_CHECKING:
    import requests

    from kaggle_orchestrator.client.identity import Identity
    from kaggle_orchestrator.client.transport import Transport

T = TypeVar("T")
Json = Mapping[str, Any]

OUTPUT_PAGE = 200
"""Files a page; Kaggle gives no more."""
KERNELS_PAGE = 100
"""Kernels a page; Kaggle gives no more."""
_LARGEST_READ = 64 << 20


class Kaggle:
    """A connection; made by :func:`kaggle_orchestrator.client.connect`, usable from several threads.

    Attributes:
        profile: What was measured of this Kaggle.
        datasets: The account's datasets.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        transport: "Transport",
        identity: "Identity",
        files: "requests.Session",
        retry: Retry,
        profile: Profile = Profile(),  # noqa: B008  # frozen
    ) -> None:
        from kagglesdk.kernels.services.kernels_api_service import KernelsApiClient

        from kaggle_orchestrator.client.datasets import Datasets

        self._endpoint = endpoint
        self._transport = transport
        self._identity = identity
        self._files = files
        self._retry = retry
        self.profile = profile
        self._downloader = Downloader(files, retry)
        self._api = KernelsApiClient(transport)
        self.datasets = Datasets(transport, identity, files, retry)
        self._owner: str | None = None

    @property
    def endpoint(self) -> str:
        """The address, without a slash at its end."""
        return self._endpoint.url

    def __repr__(self) -> str:
        return f"Kaggle({self._endpoint.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; they open again when they are needed."""
        self._transport.close()
        self._files.close()

    def web_url(self, ref: KernelRef, version: int | None = None) -> str:
        """The kernel's page for a person. The API doesn't tell the id that a version's own page has in its address."""
        return self._endpoint.page(ref)

    def owner(self) -> str:
        """The user that the credentials belong to; asked once.

        Raises:
            CredentialsError: They aren't good.
            Unavailable, Throttled, BadAnswer: See :mod:`kaggle_orchestrator.errors`.
        """
        if self._owner is None:
            self._owner = self._retry(lambda: self._identity.username(self._transport))
        return self._owner

    def push(self, request: PushRequest) -> PushAnswer:
        """Make a new version and start its session. Sent once, whatever happens.

        Raises:
            SessionCap, QuotaExhausted, Refused: Kaggle refused it; nothing was made.
            SourcesDropped: A version was made and runs, but without its data.
            UnclearPush: It may have landed.
            Unavailable, Throttled, CredentialsError: It didn't land.
        """
        from kagglesdk.kernels.services.kernels_api_service import KernelsApiClient

        call = Call(f"the push of {request.ref}", push=True, secrets=self._identity.secrets)
        with self._transport.alone() as transport, translated(call):
            answer = KernelsApiClient(transport).save_kernel(save_request(request))
        return answers.push_answer(document(answer, call), request, call)

    def status(self, ref: KernelRef, version: int) -> StatusReport:
        """The state of one version's session.

        Raises:
            NotAccessible: There is no such version, or it isn't this account's. A new one may take a moment.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.kernels.types.kernels_api_service import ApiGetKernelSessionStatusRequest

        request = version_request(ApiGetKernelSessionStatusRequest, ref, version)
        return self._read(
            f"the status of {ref} v{version}",
            lambda: self._api.get_kernel_session_status(request),
            lambda data, call: answers.status_report(data, call, queued=self.profile.queued_status),
        )

    def version(self, ref: KernelRef, version: int | None = None) -> KernelVersion | None:
        """A version's source, and the latest version's number.

        Args:
            ref: The kernel.
            version: None for the latest.

        Returns:
            None if there is no such kernel or version, or it isn't this account's.

        Raises:
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.kernels.types.kernels_api_service import ApiGetKernelRequest

        request = version_request(ApiGetKernelRequest, ref, version)
        what = f"the source of {ref}" + (f" v{version}" if version is not None else "")
        try:
            return self._read(
                what,
                lambda: self._api.get_kernel(request),
                lambda data, call: answers.kernel_version(data, ref, call),
            )
        except NotAccessible:
            return None

    def outputs(self, ref: KernelRef, version: int) -> OutputListing:
        """The whole listing of a version's output (all pages), and its log.

        Raises:
            NotAccessible: There is no such version, or it isn't this account's.
            BadAnswer: The listing has no end.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        files, log = self._list(ref, version)
        return OutputListing(tuple(files.values()), log_lines(log))

    def read(self, ref: KernelRef, version: int, name: str) -> bytes | None:
        """One small output file (64 MiB at most), or None if the version has none of that name.

        Raises:
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """

        def sign() -> dict[str, str]:
            files, _ = self._list(ref, version, until=name)
            return {f.name: f.url for f in files.values()}

        urls = sign()
        if name not in urls:
            return None
        return self.read_file(OutputFile(name, urls[name]), sign)

    def read_file(self, file: OutputFile, resign: Resign) -> bytes:
        """The same for a file of a listing that is at hand; ``resign`` lists again when its URL has expired.

        Raises:
            Damaged: It's in the listing, but isn't there.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        sink = io.BytesIO()
        self._downloader.fetch(file, sink, resign=resign, largest=_LARGEST_READ)
        return sink.getvalue()

    def kernels(self) -> tuple[KernelRef, ...]:
        """All kernels of the account, the newest pages first as Kaggle gives them.

        Raises:
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.kernels.types.kernels_api_service import ApiListKernelsRequest
        from kagglesdk.kernels.types.kernels_enums import KernelsListViewType

        found: dict[KernelRef, None] = {}

        def page(token: str) -> str:
            request = ApiListKernelsRequest()
            request.group = KernelsListViewType.PROFILE
            request.language = request.kernel_type = request.output_type = "all"
            request.page_size = KERNELS_PAGE
            if token:
                request.page_token = token
            else:
                request.page = 1
            refs, following = self._read(
                "the account's kernels", lambda: self._api.list_kernels(request), answers.kernels_page
            )
            found.update(dict.fromkeys(refs))
            return following

        all_pages("the account's kernels", self._retry.policy.pages, page)
        return tuple(found)

    def quota(self) -> Quota:
        """The week's GPU quota.

        Raises:
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        return self._read("the GPU quota", self._api.get_accelerator_quota_statistics, answers.quota)

    def cancel(self, session_id: int) -> None:
        """End a session, whose number only the session itself knows (``KAGGLE_CONTAINER_NAME``).

        Raises:
            NotAccessible: There is no such session, or it isn't this account's.
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.kernels.types.kernels_api_service import ApiCancelKernelSessionRequest

        request = ApiCancelKernelSessionRequest()
        request.kernel_session_id = session_id
        self._read(
            f"the cancel of session {session_id}", lambda: self._api.cancel_kernel_session(request), answers.done
        )

    def delete(self, ref: KernelRef) -> None:
        """Delete a kernel with its versions and outputs; sessions of it are ended. One that isn't there is no error.

        Raises:
            KaggleError: See :mod:`kaggle_orchestrator.errors`.
        """
        from kagglesdk.kernels.types.kernels_api_service import ApiDeleteKernelRequest

        request = ApiDeleteKernelRequest()
        request.user_name = ref.owner
        request.kernel_slug = ref.slug
        with suppress(NotAccessible):
            self._read(f"the removal of {ref}", lambda: self._api.delete_kernel(request), answers.done)

    def follow(self, ref: KernelRef, version: int) -> Iterator[LogRecord]:
        """A version's log, each record once: live while its session runs, however often the connection drops.

        Raises:
            NotAccessible: There is no such version, or it isn't this account's.
            KaggleError: The log can't be had.
        """
        from kaggle_orchestrator.client.logs import follow

        path, query = f"/v1/kernels/logs/stream/{ref.owner}/{ref.slug}", {"versionLabel": f"v{version}"}
        call = Call(f"the log of {ref} v{version}", secrets=self._identity.secrets)
        return follow(lambda: self._transport.open(path, query), call, self._retry)

    def download(
        self,
        files: Sequence[OutputFile],
        folder: Path,
        expected: Mapping[str, FileDigest],
        *,
        resign: Resign | None = None,
    ) -> tuple[Artifact, ...]:
        """Fetch files to their names below ``folder``, many at a time.

        A file appears under its name only when it is whole and, where ``expected`` names it, right. One that is
        there already with the expected sha256 isn't fetched again.

        Args:
            files: From :meth:`outputs`.
            folder: Made if it isn't there.
            expected: Digests by name; files without one are checked only against the length that their server gives.
            resign: Gives new signed URLs by name when one has expired.

        Returns:
            In the order of ``files``.

        Raises:
            UnsafeName: A name would leave the folder, or two can't both be files. Nothing was written.
            Damaged: Some files differ from ``expected``, or aren't there any more; the others are in place.
            ArtifactError: The disk is full, the folder can't be written, or another pull has stopped in mid-file.
            Unavailable, Throttled: Some files couldn't be fetched; the others are in place.
        """
        return self._downloader.download(files, folder, expected, resign)

    def _list(self, ref: KernelRef, version: int, until: str | None = None) -> tuple[dict[str, OutputFile], str]:
        """Files by name and the log; with ``until``, only the pages up to the one that has that file."""
        from kagglesdk.kernels.types.kernels_api_service import ApiListKernelSessionOutputRequest

        what = f"the output of {ref} v{version}"
        files: dict[str, OutputFile] = {}
        logs: list[str] = []

        def page(token: str) -> str:
            request = version_request(ApiListKernelSessionOutputRequest, ref, version)
            request.page_size = OUTPUT_PAGE
            request.page_token = token
            found, log, following = self._read(
                what, lambda: self._api.list_kernel_session_output(request), answers.output_page
            )
            files.update((f.name, f) for f in found)
            logs.append(log)
            return "" if until is not None and until in files else following

        all_pages(what, self._retry.policy.pages, page)
        return files, logs[0]  # every page may repeat it

    def _read(self, what: str, send: Callable[[], Any], decode: Callable[[Json, Call], T]) -> T:
        """One read, repeated where that may help."""
        call = Call(what, secrets=self._identity.secrets)

        def once() -> T:
            with translated(call):
                answer = send()
            return decode(document(answer, call), call)

        return self._retry(once)
