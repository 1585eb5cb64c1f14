"""What must be so before training begins: the GPUs work and are the ones asked for, sources are mounted, disk is free.

Takes seconds; what it refuses would have cost hours.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kaggle_orchestrator.protocol import Outcome, Plan, Variable
from kaggle_orchestrator.runtime.supervisor.log import Log, secrets_in
from kaggle_orchestrator.runtime.supervisor.verdict import Unfit
from kaggle_orchestrator.runtime.supervisor.words import size

SHAPES = {
    "NvidiaTeslaT4": "T4",
    "NvidiaTeslaP100": "P100",
    "NvidiaTeslaA100": "A100",
    "NvidiaL4": "L4",
    "NvidiaL4X1": "L4",
    "NvidiaH100": "H100",
    "NvidiaRtxPro6000": "RTX PRO 6000",
}
"""Kaggle's name for a machine, and what CUDA's name of its GPU contains."""
SEARCH_DEPTH = 6
"""``input/models/<owner>/<model>/<framework>/<variation>/<version>`` is the deepest mount."""
SEARCH_S = 30.0

_GPU_CHECK = """
import json, sys
try:
    import torch
except ImportError as error:
    print(json.dumps({"no_torch": str(error)})); sys.exit()
found = []
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        gpu = {"name": torch.cuda.get_device_name(i), "capability": list(torch.cuda.get_device_capability(i))}
        try:
            x = torch.ones(256, 256, device=f"cuda:{i}")
            assert float((x @ x).sum()) == 256.0**3
            torch.cuda.synchronize(i)
            gpu["memory"] = torch.cuda.get_device_properties(i).total_memory
        except Exception as error:
            gpu["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        found.append(gpu)
print(json.dumps({"gpus": found, "torch": torch.__version__, "cuda": torch.version.cuda}))
"""


def folders(root: Path, depth: int | None = SEARCH_DEPTH, within_s: float = SEARCH_S) -> Iterator[Path]:
    """Folders below ``root``, the shallow ones first, as far as time allows.

    Links are followed, but what is below a folder is seen once, under whatever name it is found first.
    """
    give_up, level, seen, down = time.monotonic() + within_s, [root], set(), 0
    while level and down != depth:
        down += 1
        below: list[Path] = []
        for folder in level:
            if time.monotonic() > give_up:
                return
            try:
                with os.scandir(folder) as entries:
                    inside = sorted(Path(e.path) for e in entries if e.is_dir())
            except OSError:
                continue
            for path in inside:
                real = path.resolve()
                if real not in seen or path.parent == root:
                    seen.add(real)
                    below.append(path)
                    yield path
        level = below


def mounts_of(slugs: Sequence[str], root: Path) -> dict[str, list[Path]]:
    """The folders below the input folder that carry the name of a source, in whatever layout it is mounted.

    The search for a source ends with the first of them that isn't empty, which is the last one listed.
    """
    found: dict[str, list[Path]] = {slug: [] for slug in slugs}
    wanted = set(slugs)
    for path in folders(root) if wanted else ():
        if path.name in wanted:
            found[path.name].append(path)
            if holds_something(path):
                wanted.discard(path.name)
                if not wanted:
                    break
    return found


def holds_something(folder: Path) -> bool:
    """Whether there is any file below a folder; one that can't be read isn't empty."""
    try:
        next(folder.iterdir(), None)  # os.walk says nothing about what it can't read
    except OSError:
        return True
    return any(files for _, _, files in os.walk(folder, followlinks=True))


def what_is_mounted(root: Path) -> str:
    """The top of the input folder in words, for messages."""
    try:
        names = [str(p.relative_to(root)) for p in folders(root, depth=3, within_s=5.0)]
    except OSError as error:
        return f"{root}: {error.strerror}"
    if not names:
        return "nothing is mounted" if root.is_dir() else f"{root} doesn't exist"
    leaves = [n for n in names if not any(o.startswith(f"{n}/") for o in names)]
    more = f" and {len(leaves) - 12} more" if len(leaves) > 12 else ""
    return f"mounted are {', '.join(sorted(leaves)[:12])}{more}"


def check_sources(slugs: Sequence[str], root: Path) -> None:
    """See that each source is mounted and holds something.

    Raises:
        Unfit: ``mount_missing`` or, for a source that can't be read, ``no_data``.
    """
    missing, empty = [], []
    for slug, places in mounts_of(slugs, root).items():
        if not places:
            missing.append(slug)
            continue
        try:
            next(places[-1].iterdir(), None)
        except OSError as error:
            raise Unfit(Outcome.NO_DATA, "unreadable", f"The source {slug} can't be read: {error}.") from error
        if not holds_something(places[-1]):
            empty.append(slug)
    if missing or empty:
        parts = [f"not mounted: {', '.join(missing)}"] if missing else []
        parts += [f"mounted but empty: {', '.join(empty)}"] if empty else []
        raise Unfit(
            Outcome.MOUNT_MISSING,
            "sources",
            f"Sources are {'; '.join(parts)}. Below {root} {what_is_mounted(root)}.",
            hint="Kaggle sometimes leaves a new source out of its first run; the next one has it.",
        )


def check_accelerator(plan: Plan, environ: Mapping[str, str], log: Log) -> dict[str, Any]:
    """See that the GPUs are there, are the ones asked for, and can run an operation.

    Returns:
        Facts for the result's environment.

    Raises:
        Unfit: ``no_gpu`` or ``wrong_gpu``.
    """
    if plan.accelerator is None:
        return {"accelerator": "none"}
    simulated = environ.get(Variable.SIMULATED_ACCELERATOR)
    if simulated:
        if simulated != plan.accelerator:
            raise Unfit(Outcome.WRONG_GPU, simulated, f"Asked for {plan.accelerator}, simulated is {simulated}.")
        log.say(f"accelerator {plan.accelerator} ({_count(plan.gpu_count)}) is simulated")
        return {"accelerator": plan.accelerator, "simulated": True}
    report = _ask_gpus(environ)
    gpus: list[dict[str, Any]] = report.get("gpus", [])
    if not gpus:
        why = report.get("error", "torch sees no CUDA device")
        raise Unfit(
            Outcome.NO_GPU,
            "no CUDA device",
            f"Asked for {plan.accelerator}, but {why}.",
            hint="An account without a verified phone number gets no GPU, and isn't told so.",
        )
    judge_gpus(gpus, plan)
    names = ", ".join(f"{g['name']} (capability {'.'.join(map(str, g['capability']))})" for g in gpus)
    log.say(f"accelerator {plan.accelerator}: {names}")
    return {"accelerator": plan.accelerator, "gpus": gpus, "torch": report.get("torch"), "cuda": report.get("cuda")}


def judge_gpus(gpus: Sequence[Mapping[str, Any]], plan: Plan) -> None:
    """Compare what was found with what was asked for.

    Raises:
        Unfit: ``no_gpu`` or ``wrong_gpu``.
    """
    names = ", ".join(str(g["name"]) for g in gpus)
    expected = SHAPES.get(plan.accelerator or "")
    if expected and not all(expected.lower() in str(g["name"]).lower() for g in gpus):
        raise Unfit(Outcome.WRONG_GPU, names, f"Asked for {plan.accelerator} ({expected}), got {names}.")
    if len(gpus) < plan.gpu_count:
        raise Unfit(Outcome.WRONG_GPU, names, f"Asked for {_count(plan.gpu_count)}, got {len(gpus)}: {names}.")
    for number, gpu in enumerate(gpus):
        if "error" in gpu:
            raise Unfit(Outcome.NO_GPU, "GPU fails", f"GPU {number} ({gpu['name']}) fails: {gpu['error']}.")


def _ask_gpus(environ: Mapping[str, str]) -> dict[str, Any]:
    """Run the check in a process of its own: CUDA, once started here, couldn't be left again."""
    quiet = {k: v for k, v in environ.items() if v not in secrets_in(environ)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _GPU_CHECK],
            env=quiet,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )
        report = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"error": f"the check of the GPU failed: {error}"}
    if "no_torch" in report:
        return _ask_nvidia_smi()
    if not report:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        return {"error": f"the check of the GPU failed: {last[0]}"}
    return dict(report)


def _ask_nvidia_smi() -> dict[str, Any]:
    """Without torch there is no operation to try; names and count are known all the same."""
    query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        rows = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"torch isn't installed, and nvidia-smi says: {error}"}
    pairs = [row.partition(",") for row in rows if row.strip()]
    return {"gpus": [{"name": n.strip(), "capability": c.strip().split(".")} for n, _, c in pairs]}


def _count(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"


def check_disk(working: Path, needed: int, log: Log) -> None:
    """See that there is room for one more checkpoint like the restored one (``needed`` bytes).

    Raises:
        Unfit: ``disk_full``.
    """
    free = shutil.disk_usage(working).free
    if free < max(needed, 1 << 16):
        raise Unfit(
            Outcome.DISK_FULL,
            "no room",
            f"{size(free)} free below {working}, but a checkpoint takes {size(needed)}.",
        )
    if free < 2 * needed:
        log.say(f"little disk: {size(free)} free, a checkpoint takes {size(needed)}")
