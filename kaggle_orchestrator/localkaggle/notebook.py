"""Notebooks: what Kaggle wants of one, and the script that runs it in a session."""

import json
from importlib import resources
from typing import Any

from kaggle_orchestrator.localkaggle.wire import Refusal

FILE = "notebook.ipynb"
"""Name of the pushed notebook beside the script that runs it."""
EXECUTED = "__notebook__.ipynb"
"""What a session leaves of it: mounted by others, but not listed."""


def check(text: str) -> None:
    """See that a pushed notebook is one.

    Raises:
        Refusal: It's no notebook, has no kernelspec, or a cell whose source isn't one string.
    """
    try:
        notebook: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The notebook is not JSON: {str(error)[:200]}") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise Refusal(400, "The notebook has no cells.")
    metadata = notebook.get("metadata")
    spec = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    if not isinstance(spec, dict) or not isinstance(spec.get("name"), str):
        raise Refusal(400, "The notebook has no kernelspec.")
    for number, cell in enumerate(notebook["cells"], 1):
        if not isinstance(cell, dict) or not isinstance(cell.get("source", ""), str):
            raise Refusal(400, f"The source of the notebook's cell {number} must be one string.")


def runner() -> str:
    """The script that runs the notebook beside it, by the session's interpreter."""
    return resources.files("kaggle_orchestrator.localkaggle").joinpath("runnotebook.py").read_text("utf-8")
