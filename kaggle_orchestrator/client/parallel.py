"""Many blocking calls at once; an interrupt leaves them behind, so a silent server holds nobody up."""

import threading
from collections.abc import Callable, Generator, Sequence
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

_GRACE_S = 1.0
"""For the threads to tidy up after ``stop``. Who doesn't make it is a daemon and ends with the process."""


def parallel(
    names: Sequence[str], work: Callable[[str], T], threads: int, stop: threading.Event
) -> Generator[tuple[str, T | Exception], None, None]:
    """Call ``work`` with each name; yields what came of each, as they end.

    ``stop`` is set when the iteration ends, in whatever way; ``work`` is expected to look at it.
    """
    todo: SimpleQueue[str | None] = SimpleQueue()
    done: SimpleQueue[tuple[str, T | Exception]] = SimpleQueue()

    def loop() -> None:
        while (name := todo.get()) is not None:
            try:
                done.put((name, work(name)))
            except Exception as error:
                done.put((name, error))

    crew = [threading.Thread(target=loop, name=f"kgo-{n}", daemon=True) for n in range(min(threads, len(names)))]
    for name in [*names, *([None] * len(crew))]:
        todo.put(name)
    for thread in crew:
        thread.start()
    try:
        for _ in names:
            yield done.get()
    finally:
        stop.set()
        for thread in crew:
            thread.join(_GRACE_S / len(crew))
