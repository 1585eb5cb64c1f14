"""A copy of the project with junk planted in it, and the distributions that are built from it."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ["kaggle_orchestrator", "kernel_templates", "examples", "tests", "docs"]
FILES = [".gitignore", "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"]

JUNK = [
    "kaggle_orchestrator/render/__pycache__/junk.cpython-311.pyc",
    "kaggle_orchestrator/junk.pyc",
    "kernel_templates/script/__pycache__/junk.pyc",
    "kernel_templates/script/.kgo/junk",
    "examples/digits/outputs/junk",
    "examples/digits/.kgo/journal.sqlite",
]
"""Planted; git ignores each of them."""


@dataclass(frozen=True)
class Built:
    """The copy, the files built from it, and a Python whose environment has the build backend."""

    checkout: Path
    wheel: Path
    sdist: Path
    backend: Path


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """Run something that has to work; returns its stdout."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KGO_", "KAGGLE_"))}
    ran = subprocess.run(
        [str(c) for c in command], cwd=cwd, env={**inherited, **environ}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build a wheel and a source distribution, as ``pip wheel`` would, but with one backend for all tests."""
    folder = tmp_path_factory.mktemp("packaging")
    checkout = folder / "checkout"
    checkout.mkdir()
    for part in PARTS:
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("__pycache__", ".kgo", "outputs"))
    for name in FILES:
        shutil.copy(ROOT / name, checkout / name)
    for path in JUNK:
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_bytes(b"junk")
    backend = _backend(folder)
    run(backend, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder / "dist", cwd=checkout)
    (wheel,), (sdist,) = folder.glob("dist/*.whl"), folder.glob("dist/*.tar.gz")
    return Built(checkout, wheel, sdist, backend)


def _backend(folder: Path) -> Path:
    """A Python with hatchling and what it needs for editable installs: ours, or one that is made for it."""
    found = subprocess.run([sys.executable, "-c", "import hatchling, editables"], capture_output=True, check=False)
    if found.returncode == 0:
        return Path(sys.executable)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "backend", cwd=folder)
    python = folder / "backend" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    run(*pip, "hatchling>=1.27", "editables", cwd=folder)
    return python


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A new virtual environment without kgo, which sees the dependencies of this one; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    # A folder that a .pth file names is searched, but the .pth files in it (the editable install) are not read.
    (site / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return tmp_path / "venv" / "bin" / "python"
