"""Where things lie in a session; nothing of ours but ``kgo/`` and ``checkpoints/`` is ever below the working folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kaggle_orchestrator.protocol import CHECKPOINTS, Variable


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one session.

    Attributes:
        bundle: The unpacked bundle, outside the working folder.
        root: Holds ``input`` and ``working``; ``/kaggle`` on Kaggle.
    """

    bundle: Path
    root: Path

    @classmethod
    def of(cls, bundle: Path, environ: Mapping[str, str]) -> "Places":
        """The places of the session whose environment this is."""
        return cls(bundle.resolve(), Path(environ.get(Variable.KAGGLE_ROOT) or "/kaggle").absolute())

    @property
    def working(self) -> Path:
        """What becomes the version's output."""
        return self.root / "working"

    @property
    def input(self) -> Path:
        """Where Kaggle mounts sources, read-only."""
        return self.root / "input"

    @property
    def checkpoints(self) -> Path:
        """The checkpoints of this attempt."""
        return self.working / CHECKPOINTS

    @property
    def control(self) -> Path:
        """Files between training and supervisor."""
        return self.bundle / "control"

    @property
    def src(self) -> Path:
        """The user's files."""
        return self.bundle / "src"

    @property
    def lib(self) -> Path:
        """The part of kgo that travels in the bundle."""
        return self.bundle / "lib"
