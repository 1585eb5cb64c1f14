"""Loads the chain's first checkpoint once in a fresh process while training goes on.

What can't be loaded (torch ≥ 2.6 refuses what isn't plain data) would otherwise show only in the next leg, hours
later. An answer counts only if the checkpoint was still there: training prunes its own old ones.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from kaggle_orchestrator.runtime.supervisor.log import secrets_in
from kaggle_orchestrator.runtime.supervisor.places import Places

MODULE = "kaggle_orchestrator.runtime.training.verify"
LONGEST_S = 300.0


class LoadCheck:
    """At most one process at a time; ``verdict`` is None until there is an answer."""

    def __init__(self, places: Places, environ: Mapping[str, str], spare: Callable[[int], None]) -> None:
        """``spare`` is told the pid of each process, which isn't training's."""
        self._places = places
        self._spare = spare
        secrets = secrets_in(environ)
        self._environ = {k: v for k, v in environ.items() if v not in secrets}
        self._environ |= {"PYTHONPATH": str(places.lib), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = places.checkpoints
        self._said = places.control / "loadcheck.txt"
        self.loads: bool | None = None
        self.fault = ""
        self.exists = (places.lib / MODULE.replace(".", "/")).with_suffix(".py").is_file()
        self.possible = self.exists

    @property
    def wanted(self) -> bool:
        """Whether a checkpoint should be given to ``start``."""
        return self.possible and self.loads is None and self._process is None

    def start(self, folder: Path) -> None:
        """Begin to load a checkpoint."""
        try:
            with self._said.open("wb") as said:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE, str(folder)],
                    cwd=self._places.control,
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError:
            self.possible = False
            return
        self._folder = folder
        self._spare(self._process.pid)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def poll(self) -> bool:
        """Take the answer if it is there; True when ``loads`` was decided just now."""
        if self._process is None or self._process.poll() is None:
            return False
        return self._answer(self._process)

    def finish(self, within_s: float) -> bool:
        """Wait for the answer; True when there is one."""
        if self._process is None:
            return self.loads is not None
        try:
            self._process.wait(min(within_s, LONGEST_S))
        except subprocess.TimeoutExpired:
            self.close()
            return False
        return self._answer(self._process)

    def _answer(self, process: subprocess.Popen[bytes]) -> bool:
        self._process = None
        if process.returncode == 0:
            self.loads = True
        elif self._folder.is_dir():
            said = self._said.read_bytes()[-20_000:].decode("utf-8", "replace").strip()
            self.fault = "\n".join(said.splitlines()[-5:])
            if process.returncode == 1 and "Traceback (most recent call last)" not in said:
                self.loads = False
            else:  # the process itself fell over: that says nothing of the checkpoint, and would happen again
                self.possible = False
        return self.loads is not None

    def close(self) -> None:
        """End the process if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
