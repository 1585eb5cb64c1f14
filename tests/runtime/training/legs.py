"""Runs legs of a training as real processes, and compares what they did step by step."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaggle_orchestrator.protocol import Progress, Variable

ROOT = Path(__file__).parents[3]
TRACE = "trace.jsonl"
FINAL = "final.json"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a leg ended: ``code`` is its exit code, negative for a signal; ``log`` is what it printed."""

    code: int
    log: str


class Zygote:
    """The warm parent; see ``zygote``."""

    def __init__(self) -> None:
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        environ["OMP_NUM_THREADS"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.training.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environ,
            text=True,
        )
        assert self._answer() == {"ready": True}

    def run(
        self,
        training: str,
        folder: Path,
        *,
        environ: Mapping[Variable, str] | None = None,
        meanwhile: Callable[[int], None] | None = None,
        **options: Any,
    ) -> Ended:
        """Run ``module:function`` with ``options`` in ``folder``; ``meanwhile`` is called with its process id."""
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log.txt"
        start = log.stat().st_size if log.exists() else 0
        request = {
            "training": training,
            "folder": str(folder),
            "log": str(log),
            "environ": dict(environ or {}),
            "options": options,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        pid = self._answer()["pid"]
        try:
            if meanwhile is not None:
                meanwhile(pid)
        finally:
            status = self._answer()["status"]
            _kill_group(pid)  # loader workers outlive a killed training by seconds
        return Ended(os.waitstatus_to_exitcode(status), log.read_text(errors="replace")[start:])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the zygote ended with {self._process.wait()}"
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@dataclass
class Chain:
    """Legs as sessions: a working folder and a control folder for each, going on from the one before."""

    zygote: Zygote
    training: str
    root: Path
    options: dict[str, Any] = field(default_factory=dict)
    environ: Mapping[Variable, str] = field(default_factory=dict)
    legs: list[Path] = field(default_factory=list)

    def leg(self, *, environ: Mapping[Variable, str] | None = None, **options: Any) -> Ended:
        """Run the next leg, from the newest checkpoint of the last leg that made one."""
        number = len(self.legs) + 1
        folder = self.root / f"leg{number}"
        control = folder / "control"
        control.mkdir(parents=True)
        variables = {
            Variable.CONTROL: str(control),
            Variable.LEG: str(number),
            Variable.TOKEN: f"token{number}",
            **self.environ,
            **(environ or {}),
        }
        made = [found for leg in self.legs if (found := newest(leg)) is not None]
        if made:
            variables[Variable.RESUME] = str(made[-1])
        else:
            variables[Variable.LEG] = "1"
        self.legs.append(folder)
        return self.zygote.run(self.training, folder, environ=variables, **{**self.options, **options})

    @property
    def progress(self) -> Progress:
        """The last report of the last leg."""
        found = Progress.read(self.legs[-1] / "control")
        assert found is not None
        return found


def newest(folder: Path) -> Path | None:
    """The newest checkpoint below a working folder."""
    return max(folder.glob("checkpoints/step-*"), default=None)


def trace(*folders: Path) -> dict[int, list[dict[str, Any]]]:
    """What was recorded for each step, over all legs; more than once where a step was trained again."""
    found: dict[int, list[dict[str, Any]]] = {}
    for folder in folders:
        for record in _records(folder / TRACE):
            found.setdefault(record["step"], []).append(record)
    return found


def assert_same(straight: Path, *legs: Path) -> None:
    """Every step of every leg, and the end, are bit for bit those of the uninterrupted training."""
    expected, found = trace(straight), trace(*legs)
    assert expected, "the straight training recorded nothing"
    assert found.keys() == expected.keys()
    for step, records in found.items():
        for record in records:
            assert record == expected[step][0], f"step {step}"
    assert (legs[-1] / FINAL).read_text() == (straight / FINAL).read_text()


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)
