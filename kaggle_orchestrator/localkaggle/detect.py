"""Whether this machine lets sessions have a box: found out by running one, since refusals come at any step."""

import os
import subprocess
import tempfile
from pathlib import Path

from kaggle_orchestrator.localkaggle import box, spawn
from kaggle_orchestrator.localkaggle.outputs import remove_tree
from kaggle_orchestrator.localkaggle.sessions import own_interpreter
from kaggle_orchestrator.localkaggle.spec import Ending, SessionFolder, Spec

PROBE = ".probe-"
"""How the folders of such sessions begin."""
_PATIENCE_S = 30.0


def detect(root: Path) -> tuple[bool, str]:
    """Run an empty session in a box, without network: whether that went well, and why (not)."""
    reason = box.supported()
    if reason:
        return False, reason
    folder = SessionFolder(Path(tempfile.mkdtemp(prefix=PROBE, dir=root)))
    try:
        return _try(folder)
    finally:
        remove_tree(folder.path)


def _try(folder: SessionFolder) -> tuple[bool, str]:
    interpreter = own_interpreter()
    for path in (folder.source, folder.working):
        path.mkdir(parents=True)
    (folder.source / "script.py").write_text("open('/kaggle/working/here', 'w').close()\n", encoding="utf-8")
    folder.write_spec(
        Spec(
            python=interpreter.python,
            prefixes=interpreter.prefixes,
            script="script.py",
            environment={},
            limit_s=_PATIENCE_S,
            mounts=(),
            internet=False,
            boxed=True,
            hidden=(str(Path.home()), os.environ.get("HOME", "/root")),
            log_bytes=1 << 16,
        )
    )
    try:
        keeper = spawn.start_keeper(folder)
    except OSError as error:
        return False, f"its keeper can't be started: {error}"
    try:
        keeper.wait(2 * _PATIENCE_S)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()
    end = folder.read_end()
    if end is None:
        return False, f"its keeper failed: {_tail(folder.keeper_log)}"
    if end.ending is not Ending.EXIT or end.code != 0:
        return False, end.message or f"the session in it ended with {end.code}: {_tail(folder.log)}"
    if not (folder.working / "here").exists():
        return False, "what a session wrote did not arrive"
    return True, "namespaces are allowed"


def _tail(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()[-300:]
