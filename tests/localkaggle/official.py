"""Runs the official ``kaggle`` command, unchanged but for its address, in a process and a home of its own."""

import os
import subprocess
import sys
from pathlib import Path

_RUN = """
import os, sys
import kagglesdk.kaggle_env as env
for name in (env.KaggleEnv.PROD, env.KaggleEnv.LOCAL):
    env._env_to_endpoint[name] = os.environ["KGO_TEST_URL"]
sys.argv[0] = "kaggle"
from kaggle.cli import main
sys.exit(main())
"""
_RUN_EACH = _RUN.replace(
    "sys.exit(main())",
    """
for command in " ".join(sys.argv[1:]).split(" ; "):
    sys.argv[1:] = command.split()
    main()
""",
)


def kaggle(url: str, home: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """One command, or several parted by ``;`` in one process; ``variables`` are added to a bare environment."""
    home.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "NO_PROXY": "127.0.0.1",
        "KGO_TEST_URL": url,
        "KAGGLE_API_TOKEN": "kgo-local",
        "PYTHONIOENCODING": "utf-8",
    }
    return subprocess.run(
        [sys.executable, "-c", _RUN_EACH if ";" in arguments else _RUN, *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        stdin=subprocess.DEVNULL,
        cwd=home,
    )
