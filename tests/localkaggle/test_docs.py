"""docs/local-kaggle.md says nothing untrue: every test, knob and fault that it names is there, and none is left out."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.faultscript import KINDS
from kaggle_orchestrator.localkaggle.knobs import Knobs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "local-kaggle.md").read_text(encoding="utf-8")
COLUMNS = ["behaviour", "sure", "knob or fault", "test"]
KNOBS = {f.name for f in fields(Knobs)}


def section(title: str) -> str:
    """The text below a heading, up to the next of its kind."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows() -> list[list[str]]:
    """The cells of the tables of behaviours."""
    found: list[list[str]] = []
    header: list[str] | None = None
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if header is None:
            header = cells
        elif header == COLUMNS and not set(cells[0]) <= set("-: "):
            found.append(cells)
    return found


def test_there_are_behaviours() -> None:
    assert len(rows()) > 60
    assert all(len(row) == len(COLUMNS) for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:60])
def test_a_behaviour_has_its_confidence_and_its_test(row: list[str]) -> None:
    behaviour, sure, levers, tests = row
    assert behaviour
    assert set(sure.split("-")) <= {"H", "M", "L"}
    for lever in re.findall(r"`([a-z_]+)`", levers):
        assert lever in KNOBS | set(KINDS), f"neither a knob nor a fault: {lever}"
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", tests)
    assert named, "no test"
    for file, function in named:
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        names = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert function in names, f"tests/{file} has no {function}"


def test_every_knob_is_in_the_list_with_its_default() -> None:
    listed = {}
    for line in section("Knobs").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            for name, default in zip(re.findall(r"`(\w+)`", cells[0]), cells[1].split(","), strict=True):
                listed[name] = default.strip().strip("`")
    assert listed == {f.name: format_default(getattr(Knobs(), f.name)) for f in fields(Knobs)}


def test_the_lines_for_the_official_command_work(server: LocalServer, tmp_path: Path) -> None:
    lines = section("With the official command").split("```python\n")[1].split("```")[0]
    (tmp_path / "kaggle_local.py").write_text(lines, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, "kaggle_local.py", "kernels", "init"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KGO_ENDPOINT": server.url}
        | {"KAGGLE_API_TOKEN": "kgo-local-reader-of-docs", "NO_PROXY": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert '"id": "reader-of-docs/' in (tmp_path / "kernel-metadata.json").read_text(encoding="utf-8")


def format_default(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_fault_is_explained(kind: str) -> None:
    assert f'"{kind}"' in section("Faults")
