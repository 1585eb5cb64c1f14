"""Fetching output files: many at a time, hashed as they come; what can't be had is named when all others are there."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

import requests

from kaggle_orchestrator.client.body import Body, Expired, Stopped
from kaggle_orchestrator.client.landing import Taken, folds_case, landed, landing
from kaggle_orchestrator.client.names import folded_twins, place
from kaggle_orchestrator.client.parallel import parallel
from kaggle_orchestrator.client.policy import Retry
from kaggle_orchestrator.client.signed import Resign, SignedUrls
from kaggle_orchestrator.errors import ArtifactError, Damaged, KaggleError, Unavailable, UnsafeName
from kaggle_orchestrator.models import Artifact, OutputFile
from kaggle_orchestrator.protocol import FileDigest, KgoError
from kaggle_orchestrator.protocol.files import sync_folder

_GAIN = 1 << 20
"""Bytes that a file must have grown by for the count of its tries to begin again; a tenth of it is as good."""
_DAMAGE_TRIES = 2
"""A body that differs from its digest is fetched once more: the second time it isn't the network."""
_GIVE_UP = 8
"""Files in a row that can't be reached; then the others aren't waited for."""
_LOOK_S = 0.2
"""Between two looks at a file that another pull is writing."""
_NAMED = 5
"""Files that a message names."""


class Downloader:
    """Fetches files from signed URLs."""

    def __init__(self, session: requests.Session, retry: Retry) -> None:
        self._session = session
        self._retry = retry

    def download(
        self,
        files: Sequence[OutputFile],
        folder: Path,
        expected: Mapping[str, FileDigest],
        resign: Resign | None,
    ) -> tuple[Artifact, ...]:
        """See :meth:`kaggle_orchestrator.client.Kaggle.download`."""
        wanted = list({f.name: f for f in files}.values())
        targets = place([f.name for f in wanted], folder)
        if (twins := folded_twins(targets)) and folds_case(folder):
            raise UnsafeName(
                f"{twins[0]!r} and {twins[1]!r} are the same file on this disk.", hint="Pull to another one."
            )
        urls, stop = SignedUrls(wanted, resign), threading.Event()
        artifacts: dict[str, Artifact] = {}
        failures: dict[str, KgoError] = {}
        in_a_row = 0
        outcomes = parallel(
            list(targets),
            lambda name: self._land(name, targets[name], expected.get(name), urls, stop),
            self._retry.policy.connections,
            stop,
        )
        with closing(outcomes):
            for name, outcome in outcomes:
                match outcome:
                    case Artifact():
                        artifacts[name] = outcome
                        in_a_row = 0
                    case Stopped():
                        failures[name] = Unavailable(f"{name} wasn't waited for.")
                    case KgoError():
                        failures[name] = outcome
                        in_a_row += isinstance(outcome, KaggleError)
                        if _is_local(outcome) or in_a_row >= _GIVE_UP:
                            stop.set()
                    case _:
                        raise outcome
        for parent in {p.parent for name, p in targets.items() if name in artifacts}:
            with suppress(OSError):  # not every file system can
                sync_folder(parent)
        if failures:
            _report(failures, len(wanted))
        return tuple(artifacts[f.name] for f in wanted)

    def fetch(
        self,
        file: OutputFile,
        sink: BinaryIO,
        *,
        expected: FileDigest | None = None,
        resign: Resign | None = None,
        largest: int | None = None,
    ) -> FileDigest:
        """Fetch one file into ``sink``, which must be able to seek.

        Raises:
            Damaged: It differs from ``expected``, or isn't there any more.
            Unavailable, Throttled, BadAnswer: It can't be had.
        """
        body = Body(file.name, sink, largest)
        return self._fetch(body, expected, SignedUrls([file], resign), threading.Event())

    def _land(
        self, name: str, target: Path, expected: FileDigest | None, urls: SignedUrls, stop: threading.Event
    ) -> Artifact:
        size, until = -1, 0.0
        while not stop.is_set():
            try:
                return self._land_alone(name, target, expected, urls, stop)
            except Taken as taken:  # who waits holds nothing that another waits for
                now = self._retry.now()
                if taken.size != size:
                    size, until = taken.size, now + self._retry.policy.read_s
                if now >= until:
                    hint = "Wait for it, or pull elsewhere."
                    raise ArtifactError(f"Another pull is writing {target}.", hint=hint) from taken
            self._retry.sleep(_LOOK_S)
        raise Stopped

    def _land_alone(
        self, name: str, target: Path, expected: FileDigest | None, urls: SignedUrls, stop: threading.Event
    ) -> Artifact:
        if expected is not None and landed(target, expected):
            return Artifact(name, str(target), expected.sha256, expected.size)
        with landing(target, checked=expected is not None, expected=expected) as part:
            body = Body(name, part.file, began=part.remember)
            if part.note is not None:
                body.go_on(part.note.etag, part.note.total)
            try:
                digest = self._fetch(body, expected, urls, stop)
            except ArtifactError:  # it's damaged, or fills the disk
                part.forget()
                raise
        return Artifact(name, str(target), digest.sha256, digest.size)

    def _fetch(self, body: Body, expected: FileDigest | None, urls: SignedUrls, stop: threading.Event) -> FileDigest:
        """Try until the body is whole and right; a try that brought the file further isn't counted."""
        tries = damaged = furthest = 0
        while True:
            url, generation = urls.get(body.name)
            renewed = False
            try:
                body.fetch(self._session, url, stop, self._retry.now())
                return body.check(expected)
            except Expired as expired:
                error: KgoError = _gone(body.name, expired.status)
                renewed = urls.renew(generation)
                if not renewed:
                    raise error from expired
            except Damaged as found:
                error, damaged = found, damaged + 1
                if damaged >= _DAMAGE_TRIES:
                    raise
            except KaggleError as found:
                error = found
                if not self._retry.may_pass(error):
                    raise
            if body.size >= furthest + min(_GAIN, max(1, (body.total or _GAIN) // 10)):
                tries, furthest = 0, body.size
            tries += 1
            if tries >= self._retry.policy.attempts:
                raise error
            if not renewed or tries > 1:
                self._retry.pause(error, tries, stop)
            if stop.is_set():
                raise Stopped


def _is_local(error: KgoError) -> bool:
    """Whether it's the disk's fault: then no other file can be had either."""
    return isinstance(error, ArtifactError) and not isinstance(error, Damaged)


def _gone(name: str, status: int) -> KgoError:
    if status in (404, 410):
        return Damaged(f"{name} is in the listing, but isn't there ({status}).", files=[name])
    return Unavailable(f"{name} couldn't be fetched: its signed address isn't taken ({status}), nor is a new one.")


def _report(failures: Mapping[str, KgoError], count: int) -> NoReturn:
    """Raise one error for all: the disk's first, then damage, then the network."""
    errors = list(failures.values())
    for error in errors:
        if _is_local(error):
            raise error
    damaged = {n: e for n, e in failures.items() if isinstance(e, Damaged)}
    if len(failures) == 1:
        raise errors[0]
    if damaged:
        raise damage(damaged, count) from next(iter(damaged.values()))
    raise Unavailable(
        f"{len(failures)} of {count} files couldn't be fetched: {_shown([e.message for e in errors])}",
        hint="The files that came are in place; pull again for the others.",
    ) from errors[0]


def damage(damaged: Mapping[str, KgoError], count: int) -> Damaged:
    """One error for all damaged or missing files of ``count``."""
    return Damaged(
        f"{len(damaged)} of {count} files are damaged or missing: {_shown([e.message for e in damaged.values()])}",
        files=sorted(damaged),
        hint="The others are in place.",
    )


def _shown(messages: Sequence[str]) -> str:
    more = len(messages) - _NAMED
    return " ".join(messages[:_NAMED]) + (f" And {more} more." if more > 0 else "")
