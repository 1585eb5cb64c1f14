"""Leaves a file, and says where below the input folder there is another one of that name."""

import os
from pathlib import Path

root = Path(os.environ.get("KGO_KAGGLE_ROOT", "/kaggle"), "input")
for folder, _, names in os.walk(root, followlinks=True):
    if "marker.txt" in names:
        print("PROBE found", Path(folder).relative_to(root).as_posix(), flush=True)
Path("marker.txt").write_text("kgo-probe\n")
