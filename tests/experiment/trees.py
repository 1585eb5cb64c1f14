"""Small experiments on disk, for tests."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kaggle_orchestrator.experiment import Experiment, load

MINIMAL = """
[kernel]
slug = "digits-cnn"
[train]
entry = "train.py"
"""
CHAIN = MINIMAL + "[chain]\n"


def tree(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by their POSIX paths."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def experiment(
    folder: Path, toml: str = MINIMAL, files: Mapping[str, str | bytes] | None = None, *, entry: bool = True
) -> Experiment:
    """Write a kgo.toml, a ``train.py`` (if there is to be an entry) and more, and load them."""
    tree(folder, {"kgo.toml": toml, **({"train.py": "print('training')\n"} if entry else {}), **(files or {})})
    return load(folder)


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder, without the machine's configuration."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    for name in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{name}_NAME": "someone", f"GIT_{name}_EMAIL": "someone@example.org"}
    subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True)
