"""The library that training code uses: ``with kgo.start(seed=0) as run: …``.

It makes a training that is cut anywhere, any number of times, end bit for bit where an uninterrupted one ends.
"""

from kaggle_orchestrator.protocol import KgoError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise KgoError(
        f"kgo's training library needs torch, which can't be imported here: {error}",
        hint="Install it: pip install 'torch>=2.6'",
    ) from error

from kaggle_orchestrator.runtime.training.run import Run, start

__all__ = ["Run", "start"]
