"""Leaves a file and ends well."""

from pathlib import Path

Path("marker.txt").write_text("kgo-probe\n")
