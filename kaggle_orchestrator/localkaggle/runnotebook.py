"""Runs inside a session: executes ``notebook.ipynb`` beside this file, in the current folder, as Kaggle does.

What its cells print comes out as it is printed. A cell that raises ends it; a shell line that fails doesn't.
"""

import sys
from pathlib import Path
from typing import Any

try:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
except ImportError as missing:
    sys.exit(
        f"kgo: {missing.name} isn't there: for notebooks on the local Kaggle, install nbclient and ipykernel into the "
        "interpreter of its sessions."
    )


class Client(NotebookClient):  # type: ignore[misc]  # it has no types
    """Lets what the cells say through."""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        """Also keeps the output in the notebook, as the base class does."""
        if msg["msg_type"] == "stream":
            stream = sys.stderr if msg["content"]["name"] == "stderr" else sys.stdout
            stream.write(msg["content"]["text"])
            stream.flush()
        return super().process_message(msg, cell, cell_index)


notebook = nbformat.read(Path(__file__).with_name("notebook.ipynb"), as_version=4)
try:
    Client(notebook, timeout=None, kernel_name="python3").execute()
except CellExecutionError as error:
    sys.exit(str(error))
finally:
    nbformat.write(notebook, "__notebook__.ipynb")
