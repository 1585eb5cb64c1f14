"""Leaves a file and fails."""

import sys
from pathlib import Path

Path("marker.txt").write_text("kgo-probe\n")
sys.exit(1)
