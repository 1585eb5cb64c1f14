"""Signed URLs and their renewal: however many files find theirs expired at once, the listing is asked once."""

import threading
from collections.abc import Callable, Iterable, Mapping

from kaggle_orchestrator.errors import Damaged
from kaggle_orchestrator.models import OutputFile

Resign = Callable[[], Mapping[str, str]]
"""Lists again; gives the new URL of each file by name."""


class SignedUrls:
    """The current URL of each file. A *generation* is one listing."""

    def __init__(self, files: Iterable[OutputFile], resign: Resign | None) -> None:
        self._urls = {f.name: f.url for f in files}
        self._resign = resign
        self._lock = threading.Lock()
        self._generation = 0

    def get(self, name: str) -> tuple[str, int]:
        """A file's URL, and the generation it is of.

        Raises:
            Damaged: The last listing hasn't got it.
        """
        with self._lock:
            if name not in self._urls:
                raise Damaged(f"{name} isn't in the output any more.", files=[name])
            return self._urls[name], self._generation

    def renew(self, generation: int) -> bool:
        """List again, unless that happened since ``generation``; False where that can't be done.

        Raises:
            KaggleError: The listing can't be had.
        """
        with self._lock:
            if self._resign is not None and generation == self._generation:
                self._urls = dict(self._resign())
                self._generation += 1
            return self._resign is not None
