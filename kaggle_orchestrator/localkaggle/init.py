"""The first process of a session: starts the script, reaps what it leaves, and takes everything down with it.

It ends as soon as its keeper lets go of the control pipe, whether on purpose or by dying, so no session is ever left
without a keeper. In a PID namespace its own end is everyone's end.
"""

import contextlib
import os
import resource
import select
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kaggle_orchestrator.localkaggle import box, tree
from kaggle_orchestrator.localkaggle.spec import SessionFolder, Spec
from kaggle_orchestrator.protocol import Variable

READY = b"ready"


@dataclass(frozen=True, slots=True)
class Ends:
    """This side's ends of the pipes to the keeper: three to write, ``control`` to read."""

    out: int
    err: int
    control: int
    ready: int


def run(spec: Spec, folder: SessionFolder, started: float, ends: Ends) -> NoReturn:
    """Build the box if there is to be one, run the script, exit with its code (128 + N after signal N)."""
    code = 127
    try:
        for number in (signal.SIGTERM, signal.SIGINT):  # PID 1 gets only what it has a handler for
            signal.signal(number, signal.SIG_DFL)
        environment = dict(spec.environment)
        environment[Variable.SESSION_START] = repr(started)
        if spec.boxed:
            box.build(spec, folder)
            script = Path("/kaggle/src") / spec.script
            working = Path("/kaggle/working")
            environment |= {"HOME": box.HOME, "TMPDIR": "/tmp"}
        else:
            tree.adopt_orphans()
            script, working = folder.source / spec.script, folder.working
            environment |= _open_layout(spec, folder)
        child_end, script_end = os.pipe()  # tells that a child died; made before the child, so none is missed
        os.set_blocking(script_end, False)
        signal.set_wakeup_fd(script_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        pid = os.fork()
        if pid == 0:
            _become_script(spec, script, working, environment, ends)
        os.close(ends.out)
        os.close(ends.err)
        os.write(ends.ready, READY)
        code = _wait(pid, ends.control, child_end)
        if not spec.boxed:
            tree.kill_descendants()
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(ends.ready, f"{type(error).__name__}: {error}".encode()[:4000])
    finally:
        os._exit(code)


def _wait(script: int, control: int, child_end: int) -> int:
    """Reap everyone's orphans until the script has ended or the keeper has let go."""
    while True:
        readable, _, _ = select.select([control, child_end], [], [])
        if control in readable:
            return 128 + signal.SIGKILL
        os.read(child_end, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == script:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid == 0:
                break


def _become_script(spec: Spec, script: Path, working: Path, environment: dict[str, str], ends: Ends) -> NoReturn:
    try:
        os.setsid()
        stdin = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((stdin, 0), (ends.out, 1), (ends.err, 2)):
            os.dup2(fd, target)
        os.closerange(3, 1 << 20)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(working)
        if spec.boxed:
            box.drop_privileges()
        os.execve(spec.python, [spec.python, "-u", str(script)], environment)
    except BaseException as error:
        os.write(2, f"kgo: the local Kaggle can't run {spec.python}: {error}\n".encode())
    finally:
        os._exit(127)


def _open_layout(spec: Spec, folder: SessionFolder) -> dict[str, str]:
    """Without namespaces: the same folders elsewhere, sources linked, and a variable that says where."""
    for mount in spec.mounts:
        place = folder.root / "input" / mount.target
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            place.symlink_to(mount.source, target_is_directory=True)
    (folder.root / "input").mkdir(parents=True, exist_ok=True)
    private = {"HOME": folder.path / "home", "TMPDIR": folder.path / "tmp"}
    for path in private.values():
        path.mkdir(exist_ok=True)
    return {Variable.KAGGLE_ROOT: str(folder.root)} | {name: str(path) for name, path in private.items()}
