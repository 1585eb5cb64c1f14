"""kgo trains past Kaggle's session limit.

``import kaggle_orchestrator as kgo`` is what training code writes, on a laptop and inside a session alike.
Importing it loads nothing but the standard library; each name below is resolved when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "start": "kaggle_orchestrator.runtime.training",
    "Run": "kaggle_orchestrator.runtime.training",
    "KgoError": "kaggle_orchestrator.protocol",
}

__all__ = ["KgoError", "Run", "__version__", "start"]

if TYPE_CHECKING:
    from kaggle_orchestrator.protocol import KgoError
    from kaggle_orchestrator.runtime.training import Run, start


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
