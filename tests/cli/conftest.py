"""`kgo` in-process and as a subprocess, against one real local Kaggle in a home of its own."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kaggle_orchestrator.chain import Pair
from kaggle_orchestrator.cli import main
from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.admin import LocalSession
from tests.chain.conftest import python, server
from tests.chain.local import TOY, new_slug

__all__ = ["python", "server"]


@dataclass(frozen=True)
class Kgo:
    """The command, always with ``KGO_LOCAL=1``."""

    folder: Path
    home: Path
    url: str
    python: Path

    @property
    def environ(self) -> dict[str, str]:
        """What the command sees; no credentials but the local Kaggle's."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KAGGLE_", "KGO_"))}
        return kept | {"KGO_HOME": str(self.home), "KGO_LOCAL": "1", "HOME": str(self.folder / "nobody")}

    def __call__(self, *arguments: str | Path, **environ: str) -> Result:
        """Call it in this process."""
        gone = {k: None for k in os.environ if k.startswith(("KAGGLE_", "KGO_"))}
        return CliRunner().invoke(main, [str(a) for a in arguments], env={**gone, **self.environ, **environ})

    def process(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start it as a process of its own."""
        return subprocess.Popen(
            [Path(sys.executable).with_name("kgo"), *map(str, arguments)],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def experiment(
        self,
        name: str = "exp",
        *,
        slug: str | None = None,
        params: str = "steps = 30, step_s = 0.0",
        chain: str | None = 'session_limit = "20s"\nstop_before = "10s"',
    ) -> Path:
        """A folder with the toy and a ``kgo.toml``."""
        root = self.folder / name
        root.mkdir(exist_ok=True)
        shutil.copy(TOY, root / "train.py")
        tables = [
            f'[kernel]\nslug = "{slug or new_slug()}"',
            f'[train]\nentry = "train.py"\ninclude = ["*.py"]\nparams = {{ {params} }}',
            f'[local]\npython = "{self.python}"',
        ]
        if chain is not None:
            tables.append(f"[chain]\n{chain}")
        (root / "kgo.toml").write_text("\n".join(tables) + "\n")
        return root

    def sessions(self, root: Path) -> list[LocalSession]:
        """The server's record of an experiment's sessions, oldest first."""
        slug = (root / "kgo.toml").read_text().split('"')[1]
        return [s for s in admin.sessions(self.url) if Pair("me", slug).half(s.kernel) is not None]


@pytest.fixture
def kgo(tmp_path: Path, server: LocalServer, python: Path) -> Kgo:
    home = server.root.parent
    return Kgo(tmp_path, home, background.ensure(home).url, python)


def document(result: Result) -> dict[str, Any]:
    """What ``--json`` printed; nothing else may be on stdout."""
    loaded = json.loads(result.stdout)
    assert isinstance(loaded, dict)
    return loaded
