"""Walking a kernel's versions: which of them belong to the chain, by the header in each one's source.

One mechanism finds an unclear push, another controller's attempts, and the whole chain after its journal was lost.
A version is never taken for ours by its number or its time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.errors import Unavailable
from kaggle_orchestrator.experiment import chain_id
from kaggle_orchestrator.models import KernelRef
from kaggle_orchestrator.protocol import Header, parse_header

MAX_GENERATIONS = 100


@dataclass(frozen=True, slots=True)
class Sighting:
    """A version and its header; None if it has none."""

    ref: KernelRef
    version: int
    header: Header | None


@dataclass(frozen=True, slots=True)
class Survey:
    """The versions above those that were looked at before, ascending.

    Attributes:
        current: The kernel's latest version; None if there is no such kernel, or it's denied for now.
    """

    ref: KernelRef
    current: int | None
    sightings: tuple[Sighting, ...]


def survey(kaggle: Kaggle, ref: KernelRef, seen: int, *, every: bool = False) -> Survey:
    """Read the source of each version above ``seen``.

    Args:
        kaggle: Where.
        ref: The kernel.
        seen: The highest version that was looked at before.
        every: Don't pass over a version that can't be read.

    Raises:
        Unavailable: A version can't be read, and ``every`` is wanted.
        KaggleError: Kaggle couldn't be asked.
    """
    latest = kaggle.version(ref, None)
    if latest is None:
        return Survey(ref, None, ())
    sightings = []
    for number in range(seen + 1, latest.current_version + 1):
        found = latest if number == latest.current_version else kaggle.version(ref, number)
        if found is None and every:
            raise Unavailable(f"{ref} has a version {number}, but Kaggle denies it just now.")
        if found is not None:  # versions can be deleted
            sightings.append(Sighting(ref, number, parse_header(found.source)))
    return Survey(ref, latest.current_version, tuple(sightings))


def generation_of(headers: Iterable[Header], owner: str, slug: str) -> int | None:
    """The newest generation of the chain ``owner/slug`` among headers, or None if none is of that chain."""
    found = {header.chain for header in headers}
    generations: Mapping[str, int] = {chain_id(owner, slug, g): g for g in range(1, MAX_GENERATIONS + 1)}
    return max((generations[chain] for chain in found if chain in generations), default=None)
