"""What git says of the files in a folder. Only reads, and is asked about this folder whatever the environment says."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_ELSEWHERE = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CEILING_DIRECTORIES",
}
"""Set inside a hook or a rebase; they would make git answer for another repository."""


class GitTrouble(Exception):
    """Git knows the folder but can't be asked."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class GitFiles:
    """POSIX paths below the folder: those tracked, and those neither tracked nor ignored."""

    tracked: tuple[str, ...]
    others: tuple[str, ...]


def git_files(folder: Path) -> GitFiles | None:
    """The files of a folder, or None where git has no say: no repository, or one that ignores the whole folder.

    Raises:
        GitTrouble: There is a repository, but git is missing or refuses. To go on without it could send away what
            it ignores, which is often what should stay private.
    """
    if not any((place / ".git").exists() for place in (folder, *folder.parents)):
        return None
    tracked = _listed(folder, "--cached")
    if not tracked and _git(folder, "check-ignore", "--quiet", ".").returncode == 0:
        return None
    return GitFiles(tracked, _listed(folder, "--others", "--exclude-standard"))


def _listed(folder: Path, *options: str) -> tuple[str, ...]:
    answer = _git(folder, "ls-files", "-z", *options)
    if answer.returncode:
        said = answer.stderr.decode(errors="replace").strip().splitlines()
        raise GitTrouble(f"git can't list the files ({said[0] if said else answer.returncode}); name them here")
    return tuple(dict.fromkeys(p.decode("utf-8", "surrogateescape") for p in answer.stdout.split(b"\0") if p))


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {k: v for k, v in os.environ.items() if k not in _ELSEWHERE} | {"LC_ALL": "C"}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise GitTrouble(
            "this is a git repository, but git isn't installed; install it or name the files here"
        ) from error
