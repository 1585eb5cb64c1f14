"""``python -m benchmarks [NAME…]``: run the named measurements, or all; exit 1 if a promise isn't kept."""

import sys

from benchmarks import goodput, pull, startup

BENCHMARKS = {"startup": startup.main, "pull": pull.main, "goodput": goodput.main}

if __name__ == "__main__":
    kept = [BENCHMARKS[name]() for name in sys.argv[1:] or BENCHMARKS]
    sys.exit(not all(kept))
