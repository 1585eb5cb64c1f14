"""Runs the official ``kaggle`` command, unchanged but for its address: ``python official.py URL COMMAND…``."""

import sys

import kagglesdk.kaggle_env as env


def main() -> None:
    """Point the SDK's production endpoint elsewhere, then be the command."""
    url = sys.argv.pop(1)
    for name in (env.KaggleEnv.PROD, env.KaggleEnv.LOCAL):
        env._env_to_endpoint[name] = url.rstrip("/")
    from kaggle.cli import main as command

    sys.exit(command())


if __name__ == "__main__":
    main()
