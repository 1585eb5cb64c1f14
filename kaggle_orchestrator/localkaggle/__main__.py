"""The background server's entry point: ``python -m kaggle_orchestrator.localkaggle ROOT IDLE_SECONDS``."""

import logging
import sys
from pathlib import Path

from kaggle_orchestrator.localkaggle.server import Options, serve

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    serve(
        Options(root=Path(sys.argv[1]), idle_s=float(sys.argv[2])),
        lambda serving: logging.getLogger(__name__).info("%s", serving),
    )
