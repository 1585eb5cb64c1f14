"""``python -m benchmarks [NAME…]``: run the named measurements, or all."""

import sys

from benchmarks import startup

BENCHMARKS = {"startup": startup.main}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        BENCHMARKS[name]()
