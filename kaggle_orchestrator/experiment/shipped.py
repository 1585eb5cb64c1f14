"""Where the files lie that ship with kgo but aren't code: ``kernel_templates/`` and ``examples/``.

In a wheel they are inside the package; in a checkout, also one installed as editable, beside it.
"""

from pathlib import Path

import kaggle_orchestrator


def shipped(name: str) -> Path:
    """The folder ``kernel_templates`` or ``examples``.

    Raises:
        FileNotFoundError: The installation is incomplete.
    """
    package = Path(kaggle_orchestrator.__file__).resolve().parent
    inside, beside = package / name, package.parent / name
    if inside.is_dir():
        return inside
    # Beside an installed package lies site-packages, where a folder of that name would be anybody's.
    if (package.parent / "pyproject.toml").is_file() and beside.is_dir():
        return beside
    raise FileNotFoundError(f"this installation of kgo lacks its folder {name!r}: install it again")
