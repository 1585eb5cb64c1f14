"""``python -m tests.mutants [NAME…]``: apply each mutant in a copy of the tree and run its tests; they must fail.

A mutant is a text that occurs exactly once in a file and what stands in its place. The same tests are run on the
unchanged copy first, so that a red one means the mutant and nothing else.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKERS = 2
LIMIT_S = 300
TESTS_FAILED = 1  # pytest's exit code; 2 and more mean that it couldn't run them


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change, the invariant it breaks and the tests that must notice."""

    name: str
    invariant: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, tree: Path) -> str | None:
        """Change the file below ``tree``; returns why that isn't possible, or None."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            return f"its text occurs {text.count(self.old)} times in {self.file}: mend the mutant"
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        return None


def load() -> list[Mutant]:
    """All mutants of ``mutants.toml``."""
    entries = tomllib.loads((Path(__file__).with_name("mutants.toml")).read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def copy_tree(target: Path) -> None:
    """Copy what git tracks, or would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def pytest(tree: Path, tests: Sequence[str], *, workers: int = 0, limit_s: float = LIMIT_S) -> tuple[int, str]:
    """Run tests in a tree; returns pytest's exit code and the end of its output."""
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not soak", "-p", "no:cacheprovider"]
    command += [f"-n{workers}", *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, f"no end within {limit_s} s"
    return done.returncode, "\n".join(done.stdout.splitlines()[-15:])


def judge(mutant: Mutant) -> str | None:
    """Apply one mutant; returns what is wrong, or None when its tests turned red."""
    with tempfile.TemporaryDirectory(prefix="kgo-mutant-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        if why := mutant.apply(tree):
            return why
        code, output = pytest(tree, mutant.tests)
    if code == TESTS_FAILED:
        return None
    return "its tests stay green" if code == 0 else f"pytest could not run its tests (exit {code}):\n{output}"


def main(names: Sequence[str]) -> int:
    """Run the named mutants, or all; returns the exit code."""
    mutants = [m for m in load() if not names or m.name in names]
    tests = sorted({t for m in mutants for t in m.tests})
    with tempfile.TemporaryDirectory(prefix="kgo-mutant-") as folder:
        copy_tree(Path(folder))
        code, output = pytest(Path(folder), tests, workers=WORKERS, limit_s=LIMIT_S * 4)
    if code:
        print(f"The tests fail without any mutant:\n{output}")
        return 1
    with ThreadPoolExecutor(WORKERS) as pool:
        faults = list(pool.map(judge, mutants))
    for mutant, fault in zip(mutants, faults, strict=True):
        print(f"{'caught' if fault is None else 'MISSED'}  {mutant.name}: {mutant.invariant}")
        if fault:
            print(f"        {fault}")
    survivors = sum(f is not None for f in faults)
    print(f"{len(mutants) - survivors} passed, {survivors} failed")
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
