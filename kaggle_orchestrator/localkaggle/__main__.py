"""The background server's entry point: ``python -m kaggle_orchestrator.localkaggle ROOT IDLE_SECONDS``."""

import logging
import sys
from pathlib import Path

from kaggle_orchestrator.localkaggle.server import Options, serve
from kaggle_orchestrator.protocol import KgoError

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        serve(
            Options(root=Path(sys.argv[1]), idle_s=float(sys.argv[2])),
            lambda serving: logging.getLogger(__name__).info("%s", serving),
        )
    except KgoError as error:  # whoever started it shows this
        sys.exit(f"{error.message}\n{error.hint or ''}".rstrip())
