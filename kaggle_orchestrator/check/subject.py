"""What the rules look at: an experiment, the files that travel, its code as syntax trees, the rendered kernel."""

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kaggle_orchestrator.errors import RenderError
from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.models import PushRequest


@dataclass(frozen=True, slots=True)
class Script:
    """A Python file that travels; ``tree`` is empty and ``error`` says why when it can't be parsed."""

    path: str
    tree: ast.Module
    error: SyntaxError | None = None

    def where(self, node: ast.AST) -> str:
        """``train.py:12``."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


@dataclass(frozen=True)
class Subject:
    """One experiment under check.

    Attributes:
        files: The files that travel.
        held_back: Those that would, were they not on the list of what never does.
        request: The rendered kernel, or None if it can't be rendered.
        failure: Why it can't.
        environ: The environment, for secrets that must not travel.
    """

    experiment: Experiment
    files: Mapping[str, Path]
    held_back: tuple[str, ...] = ()
    request: PushRequest | None = None
    failure: RenderError | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def scripts(self) -> tuple[Script, ...]:
        """The entry and every travelling file that it imports, directly or not.

        The rest of a repository (tests, tools, notebooks' helpers) travels too, but doesn't run.
        """
        found: dict[str, Script] = {}
        waiting = [self.experiment.train.entry]
        while waiting:
            path = waiting.pop()
            if path in found or path not in self.files:
                continue
            script = found[path] = parse(path, self.files[path].read_bytes())
            for name in imported(script.tree, path, self.experiment.train.entry):
                waiting += [f"{name}.py", f"{name}/__init__.py"]
        return tuple(found.values())


def parse(path: str, data: bytes) -> Script:
    """Read a file as Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in the user's string is not ours to report
            return Script(path, ast.parse(data))
    except SyntaxError as error:
        return Script(path, ast.Module([], []), error)
    except (ValueError, RecursionError, MemoryError) as error:
        return Script(path, ast.Module([], []), SyntaxError(str(error)))


def imported(tree: ast.Module, path: str, entry: str) -> Iterator[str]:
    """The imports of a file as paths without a suffix, each package on the way included."""
    home = entry.rpartition("/")[0]  # where Python looks first when it runs the entry
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _steps(home, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = "/".join(path.split("/")[: -node.level]) if node.level else home
            module = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _steps(base, [*module, alias.name])


def _steps(base: str, parts: list[str]) -> Iterator[str]:
    prefix = f"{base}/" if base else ""
    if prefix:
        yield base  # a relative import runs the package's own __init__ too
    for n in range(1, len(parts) + 1):
        yield prefix + "/".join(parts[:n])
