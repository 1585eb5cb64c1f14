"""``python -m kaggle_orchestrator.runtime.training.verify FOLDER``: can a new process load this checkpoint?

Exits 0 only if every file has its recorded sha256, loads with ``weights_only=True``, and holds the state that was
saved. Prints one line either way.
"""

import sys
from pathlib import Path

from kaggle_orchestrator.protocol import KgoError, open_checkpoint
from kaggle_orchestrator.runtime.training.checkpoints import check_loadable, load_document
from kaggle_orchestrator.runtime.training.say import say


def main(arguments: list[str]) -> int:
    """Check the checkpoint folder named by the only argument; returns the exit code."""
    if len(arguments) != 1:
        say("usage: python -m kaggle_orchestrator.runtime.training.verify FOLDER")
        return 1
    folder = Path(arguments[0])
    try:
        checkpoint = open_checkpoint(folder)
        checkpoint.verify()
        load_document(checkpoint)
        states = check_loadable(checkpoint)
    except KgoError as error:
        say(f"checkpoint not usable: {error.message}", error.hint)
        return 1
    say(f"checkpoint {folder.name} verified: {states} states load and are what was saved")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
