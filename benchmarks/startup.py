"""The time that ``kgo --help`` takes beside ``python -c pass``: medians of interleaved runs, and their ratio."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 20


def seconds(command: list[str]) -> float:
    """Wall time of one run."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure() -> tuple[float, float]:
    """Median seconds of ``kgo --help`` and of ``python -c pass``."""
    kgo = [str(Path(sys.executable).with_name("kgo")), "--help"]
    python = [sys.executable, "-c", "pass"]
    seconds(kgo), seconds(python)  # the first run writes bytecode
    pairs = [(seconds(kgo), seconds(python)) for _ in range(RUNS)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def main() -> bool:
    """Print one line."""
    kgo, python = measure()
    print(f"startup: kgo --help {kgo:.3f} s, python -c pass {python:.3f} s, {kgo / python:.1f} times")
    return True
