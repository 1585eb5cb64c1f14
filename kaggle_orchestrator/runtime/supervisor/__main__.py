"""``python -m kaggle_orchestrator.runtime.supervisor BUNDLE``."""

import sys
from pathlib import Path

from kaggle_orchestrator.runtime.supervisor import main

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m kaggle_orchestrator.runtime.supervisor BUNDLE")
    sys.exit(main(Path(sys.argv[1])))
