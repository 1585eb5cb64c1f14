"""Attempts to render, and rendered kernels to run as Kaggle would: a file, executed as ``__main__``."""

import os
import runpy
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.models import PushRequest
from kaggle_orchestrator.protocol import Plan
from kaggle_orchestrator.render import bundle_of, first_attempt, render


def rendered(experiment: Experiment, **changes: Any) -> PushRequest:
    """The first attempt of ``me``, with some of it changed."""
    return render(experiment, replace(first_attempt(experiment, "me"), **changes))


def plan_of(request: PushRequest, folder: Path) -> Plan:
    """The plan in a request's bundle."""
    path = folder / "plan-of-a-test.json"
    path.write_bytes(bundle_of(request.source)["plan.json"].data)
    return Plan.load(path)


def unpacked(request: PushRequest, folder: Path) -> Path:
    """What the kernel's own ``unpack()`` makes of its bundle, without the rest of the kernel."""
    script = folder / "kernel-of-a-test.py"
    script.write_bytes(request.source.encode())
    bundle = runpy.run_path(str(script))["unpack"]()
    assert isinstance(bundle, Path)
    return bundle


def session(request: PushRequest, kaggle: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a kernel as a session does, with ``kaggle`` as its /kaggle, and without this package being installed."""
    working = kaggle / "working"
    working.mkdir(parents=True, exist_ok=True)
    (kaggle / "input").mkdir(exist_ok=True)
    script = kaggle / "script.py"
    script.write_bytes(request.source.encode())
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(kaggle),
        "KGO_KAGGLE_ROOT": str(kaggle),
        "KGO_SESSION_START": str(time.time()),  # else it would be the machine's
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-u", str(script)],
        cwd=working,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
