"""A session on disk: bundle, input, working folder; run by the real supervisor in a process of its own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import kaggle_orchestrator
from kaggle_orchestrator.protocol import (
    LEG_RESULT,
    Checkpoint,
    FileDigest,
    Header,
    LegRecord,
    LegResult,
    Manifest,
    Outcome,
    Parent,
    Plan,
    attempt_token,
    digest_tree,
    open_checkpoint,
    result_from_log,
)
from kaggle_orchestrator.protocol.checkpoint import checkpoint_name
from kaggle_orchestrator.runtime.supervisor.process import process_table

TOY = Path(__file__).with_name("toy.py")
CHAIN = "c0ffee"


@dataclass(frozen=True)
class Ended:
    """A session that has ended."""

    code: int
    out: str
    err: str
    working: Path
    token: str
    wall_s: float

    @property
    def result(self) -> LegResult:
        """``kgo/leg.json``."""
        return LegResult.loads((self.working / LEG_RESULT).read_bytes())

    @property
    def log_result(self) -> LegResult:
        """The last log line; fails if that isn't a result."""
        last = self.out.rstrip("\n").splitlines()[-1]
        found = result_from_log([last], self.token)
        assert found is not None, last
        return found

    @property
    def files(self) -> set[str]:
        """Paths of all files in the output."""
        return {p.relative_to(self.working).as_posix() for p in self.working.rglob("*") if p.is_file()}


@dataclass
class Session:
    """Builds one session and runs it."""

    folder: Path
    lib: Path
    environ: dict[str, str] = field(default_factory=dict)
    header: Header = field(
        default_factory=lambda: Header(CHAIN, 1, 1, attempt_token(CHAIN, 1, 1), None, "code", "config", "0")
    )
    plan: Plan = field(init=False)
    prefix: tuple[str, ...] = ()
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for place in (self.input, self.working, self.src):
            place.mkdir(parents=True)
        (self.bundle / "lib").symlink_to(self.lib)
        shutil.copy(TOY, self.src / "train.py")
        self.plan = Plan(self.header, "train.py", (), "python", 60.0, 50.0, 2, None, None, 0, params={"steps": 30})

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    @property
    def src(self) -> Path:
        return self.bundle / "src"

    @property
    def input(self) -> Path:
        return self.folder / "kaggle" / "input"

    @property
    def working(self) -> Path:
        return self.folder / "kaggle" / "working"

    def script(self, text: str) -> "Session":
        """A plain script instead of the toy."""
        (self.src / "train.py").write_text(text, encoding="utf-8")
        return self

    def set(self, **changes: Any) -> "Session":
        """Change the plan."""
        self.plan = replace(self.plan, **changes)
        return self

    def params(self, **params: Any) -> "Session":
        """Tell the toy how to behave."""
        return self.set(params={**self.plan.params, **params})

    def one_off(self) -> "Session":
        """No chain."""
        return self.set(leave_after_s=None)

    def after(self, *steps: int, expect: int, layout: str = "me/x-b", leg: int = 2) -> list[Checkpoint]:
        """Mount the output of the leg before, holding checkpoints of ``steps``; ``expect`` is the parent's."""
        before = attempt_token(CHAIN, leg - 1, leg - 1)
        output = self.mount(layout)
        found = [write_checkpoint(output, step, before) for step in steps]
        parent = next(c for c in found if c.step == expect)
        record = LegRecord(leg - 1, leg - 1, before, Outcome.CONTINUE, 0, expect, 1.0, 2.0)
        (output / "kgo").mkdir()
        (output / LEG_RESULT).write_text(
            json.dumps({**json.loads(_running(before)), "state": "final", "outcome": "continue", "step_end": expect})
        )
        self.header = Header(
            CHAIN,
            leg,
            leg,
            attempt_token(CHAIN, leg, leg),
            Parent("me/x-b", 3, before, expect, parent.sha256),
            "code",
            "config",
            "0",
        )
        self.set(header=self.header, lineage=(record,), sources=("x-b",))
        return found

    def mount(self, layout: str) -> Path:
        """A mounted kernel output: ``x-b`` flat, ``me/x-b`` below ``notebooks/``."""
        output = self.input / ("notebooks" if "/" in layout else "") / layout
        output.mkdir(parents=True)
        (output / "__script__.py").write_text("# as Kaggle mounts it\n")
        return output

    def start(self, **environ: str) -> subprocess.Popen[str]:
        """Start the session."""
        (self.bundle / "plan.json").write_text(self.plan.dumps(), encoding="utf-8")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("KGO_", "KAGGLE_", "PYTHON"))}
        env |= {"KGO_KAGGLE_ROOT": str(self.folder / "kaggle"), "KGO_SESSION_START": repr(time.time())}
        env |= {"PYTHONPATH": str(self.lib)} | self.environ | environ
        command = [sys.executable, "-m", "kaggle_orchestrator.runtime.supervisor", str(self.bundle)]
        process = subprocess.Popen(
            [*self.prefix, *command],
            cwd=self.folder,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> Ended:
        """Wait for its end."""
        began = time.monotonic()
        out, err = process.communicate("typed by nobody\n", timeout=60)
        header = self.plan.header
        return Ended(process.returncode, out, err, self.working, header.token, time.monotonic() - began)

    def run(self, **environ: str) -> Ended:
        """Run the session to its end."""
        return self.finish(self.start(**environ))

    def processes(self) -> list[int]:
        """Live processes on whose command line the session's folder is named."""
        found = []
        for pid, process in process_table().items():
            with contextlib.suppress(OSError):
                named = str(self.folder).encode() in Path("/proc", str(pid), "cmdline").read_bytes()
                if named and process.state not in "ZX":
                    found.append(pid)
        return found


def _running(token: str) -> str:
    return json.dumps(
        {
            "chain": CHAIN,
            "leg": 1,
            "attempt": 1,
            "token": token,
            "state": "running",
            "step_start": 0,
            "step_end": 0,
            "started_at": 1.0,
        }
    )


def write_checkpoint(output: Path, step: int, token: str, text: str = "state") -> Checkpoint:
    """A checkpoint below ``output/checkpoints``."""
    folder = output / "checkpoints" / checkpoint_name(step)
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(f"{text} {step}")
    files: dict[str, FileDigest] = digest_tree(folder)
    (folder / "manifest.json").write_text(Manifest(token, step, files, epoch=step // 10).dumps())
    return open_checkpoint(folder)


@pytest.fixture(scope="session")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``lib/`` of a bundle, without the training library: no test here starts torch by accident."""
    root = tmp_path_factory.mktemp("lib")
    package = Path(kaggle_orchestrator.__file__).parent
    target = root / "kaggle_orchestrator"
    skip = shutil.ignore_patterns("__pycache__", "training", "integrations")
    for part in ("protocol", "runtime"):
        shutil.copytree(package / part, target / part, ignore=skip)
    for name in ("__init__.py", "py.typed"):
        shutil.copy(package / name, target)
    return root


@pytest.fixture
def session(tmp_path: Path, lib: Path) -> Iterator[Session]:
    """A session that is ended, with all it started, when the test is over."""
    built = Session(tmp_path / "session", lib)
    yield built
    for process in built.started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    for pid in built.processes():  # only where a test failed
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
