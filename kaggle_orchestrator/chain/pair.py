"""The two kernels of a chain, which mount each other: ``<slug>`` and ``<slug>-b``.

A kernel can't mount its own output on Kaggle, so an attempt always goes to the kernel that does *not* hold the
checkpoint it starts from. Whatever happens to the attempt, its source survives.
"""

from dataclasses import dataclass
from enum import StrEnum

from slugify import slugify

from kaggle_orchestrator.models import KernelRef

MAX_TITLE = 50
"""Kaggle answers longer titles with an error."""


class Half(StrEnum):
    """One of the two kernels."""

    A = "a"
    B = "b"

    @property
    def other(self) -> "Half":
        """The kernel that can mount this one."""
        return Half.B if self is Half.A else Half.A


@dataclass(frozen=True, slots=True)
class Pair:
    """The kernels of the chain whose first one is ``owner/slug``."""

    owner: str
    slug: str

    def ref(self, half: Half) -> KernelRef:
        """The kernel."""
        return KernelRef(self.owner, self.slug if half is Half.A else f"{self.slug}-b")

    def half(self, ref: str) -> Half | None:
        """Which half ``owner/slug`` is, or None."""
        return next((half for half in Half if str(self.ref(half)) == ref), None)

    def title(self, half: Half, title: str) -> str:
        """A title for it; Kaggle derives the slug from the title, so it has to slugify to it."""
        if half is Half.A:
            return title
        slug, longer = self.ref(half).slug, f"{title} b"
        return longer if len(longer) <= MAX_TITLE and slugify(longer) == slug else slug
