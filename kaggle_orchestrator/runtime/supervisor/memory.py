"""The kernel's own count of processes killed for memory: the only sure sign of it."""

from pathlib import Path


def oom_kills(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Processes of our control group killed for memory so far, or None where it isn't told."""
    for file in _files(proc, cgroup):
        try:
            for line in file.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
        except (OSError, ValueError):
            continue
    return None


def _files(proc: Path, cgroup: Path) -> list[Path]:
    """Candidates, our own group before the container's root, version 2 before version 1."""
    found = []
    try:
        rows = [line.split(":", 2) for line in (proc / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        rows = []
    for row in rows:
        if len(row) == 3 and row[1] == "":
            found.append(cgroup / row[2].lstrip("/") / "memory.events")
        elif len(row) == 3 and "memory" in row[1].split(","):
            found.append(cgroup / "memory" / row[2].lstrip("/") / "memory.oom_control")
    return [*found, cgroup / "memory.events", cgroup / "memory" / "memory.oom_control"]
