"""Imports run down only; the in-session code is self-contained; what is heavy is imported by one module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kaggle_orchestrator

PACKAGE = Path(kaggle_orchestrator.__file__).parent

# From the top down; a layer may import those below it. `|` parts are peers and don't import each other.
ORDER = [
    "cli",
    "rehearse | probe | report",
    "fleet",
    "chain",
    "pull | stores | check",
    "render | client",
    "experiment",
    "models | profile",
    "errors | clock",
    "protocol",
]
LAYERS = {part.strip(): height for height, row in enumerate(reversed(ORDER)) for part in row.split("|")}
ONLY_PROTOCOL = {"runtime"}
LOCAL_KAGGLE_MAY = {"models", "errors", "clock", "profile", "protocol"}
MAY_IMPORT_LOCAL_KAGGLE = {"cli", "rehearse"}
HEAVY = {
    "kaggle": "client",
    "kagglesdk": "client",
    "tenacity": "client",
    "torch": "runtime",
    "starlette": "localkaggle",
    "uvicorn": "localkaggle",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module
            yield node.lineno, node.module
            if node.module == "kaggle_orchestrator":
                for name in node.names:
                    yield node.lineno, f"kaggle_orchestrator.{name.name}"


def fault(part: str, target: str) -> str | None:
    """Why ``part`` may not import ``target``, or None."""
    if part == target or part == "__init__":
        return None
    if part in ONLY_PROTOCOL:
        return None if target in ("protocol", "__version__") else "in-session code imports protocol only"
    if part == "localkaggle":
        return None if target in LOCAL_KAGGLE_MAY else "the local Kaggle imports ground and protocol only"
    if target == "localkaggle":
        return None if part in MAY_IMPORT_LOCAL_KAGGLE else "only cli and rehearse import the local Kaggle"
    if target == "runtime":
        return "nobody imports the in-session code"
    if target == "__version__":
        return None
    if part not in LAYERS or target not in LAYERS:
        return f"not in the table of layers: {part if part not in LAYERS else target}"
    return None if LAYERS[target] < LAYERS[part] else "imports run down only"


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_run_down_only(path: Path) -> None:
    part = part_of(path)
    for line, module in imports(path):
        names = module.split(".")
        if names[0] == "kaggle_orchestrator" and len(names) > 1:
            why = fault(part, names[1])
            assert why is None, f"{path}:{line} imports {module}: {why}"
        elif names[0] in HEAVY:
            assert part == HEAVY[names[0]], f"{path}:{line} imports {names[0]}: only {HEAVY[names[0]]} does"


@pytest.mark.parametrize(
    "path",
    [p for p in modules() if part_of(p) == "protocol" or "supervisor" in p.parts],
    ids=lambda p: p.relative_to(PACKAGE).as_posix(),
)
def test_what_runs_first_in_a_session_is_standard_library_only(path: Path) -> None:
    import sys

    for line, module in imports(path):
        top = module.split(".")[0]
        assert top in sys.stdlib_module_names or top == "kaggle_orchestrator", f"{path}:{line} imports {module}"


def test_the_table_catches_an_import_that_goes_up() -> None:
    assert fault("client", "chain")
    assert fault("chain", "localkaggle")
    assert fault("runtime", "models")
    assert fault("localkaggle", "client")
    assert not fault("chain", "client")
    assert not fault("cli", "localkaggle")
