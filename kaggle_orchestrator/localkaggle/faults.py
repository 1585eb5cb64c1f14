"""The faults of a world: counted, and taken when they are due; the same script fails the same way again.

A fault counts its occasions from the moment it was added; the count is part of the world, so a restarted server goes
on counting. Chance is drawn from the knob ``seed``.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.localkaggle.faultkinds import (
    DownloadFault,
    FalseStatus,
    Fault,
    KillSession,
    LoseOutput,
    NoGpu,
    NoMount,
    RpcFault,
    SessionFault,
)
from kaggle_orchestrator.localkaggle.faultscript import parse_fault
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.models import KernelRef

F = TypeVar("F", RpcFault, DownloadFault, KillSession, FalseStatus, NoGpu, NoMount, LoseOutput)


class Faults:
    """The faults of a world."""

    def __init__(self, world: World, now: Callable[[], float], seed: Callable[[], int]) -> None:
        self._world = world
        self._now = now
        self._seed = seed
        self._parsed: dict[int, Fault | None] = {}

    def add(self, documents: list[Mapping[str, Any]]) -> None:
        """All, or none.

        Raises:
            UsageError: One isn't a fault.
        """
        for document in documents:
            parse_fault(document)
        self._world.add_faults(documents, self._now())

    def take(self, kind: type[F], matches: Callable[[F], bool]) -> F | None:
        """Count an occasion for each fault of a kind that matches; the first one that is due by that, if any."""
        due: F | None = None
        candidates: list[tuple[int, F]] = []
        for number, document, added in self._world.faults():
            if number not in self._parsed:
                self._parsed[number] = _parsed(document)
            fault = self._parsed[number]
            if fault is None:
                continue
            over = fault.when.for_s is not None and self._now() >= added + fault.when.for_s
            if isinstance(fault, kind) and not over and matches(fault):
                candidates.append((number, fault))
        if not candidates:
            return None
        with self._world.change():
            for number, fault in candidates:
                occasion = self._world.count_fault(number)
                rng = random.Random(f"{self._seed()} {number} {occasion}")
                if due is None and fault.when.takes(occasion, rng):
                    due = fault
        return due

    def befalls(self, kind: type[F], kernel: KernelRef) -> F | None:
        """The same for a session that starts."""

        def matches(fault: F) -> bool:
            return isinstance(fault, SessionFault) and fault.kernel in (None, kernel)

        return self.take(kind, matches)


def _parsed(document: object) -> Fault | None:
    """A fault as the world has noted it; one that another version of kgo noted, and this one doesn't know, is none."""
    try:
        return parse_fault(document)
    except UsageError:
        return None
