"""Leaves a file, says which session it is, and runs until it's killed; says whether it was warned."""

import os
import signal
import time
from pathlib import Path

Path("marker.txt").write_text("kgo-probe\n")
signal.signal(signal.SIGTERM, lambda *_: print("PROBE sigterm", flush=True))
print("PROBE container", os.environ.get("KAGGLE_CONTAINER_NAME", ""), flush=True)
while True:
    print("PROBE alive", flush=True)
    time.sleep(0.25)
