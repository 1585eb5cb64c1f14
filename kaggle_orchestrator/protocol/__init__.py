"""What the two sides of a push agree on: the controller on a laptop and the supervisor inside a session.

Standard library only, and imports nothing else of ours: this package travels inside every pushed kernel.
"""

from kaggle_orchestrator.protocol.checkpoint import (
    CHECKPOINTS,
    MANIFEST,
    Checkpoint,
    CheckpointError,
    Manifest,
    checkpoint_name,
    checkpoint_step,
    open_checkpoint,
)
from kaggle_orchestrator.protocol.errors import KgoError
from kaggle_orchestrator.protocol.files import FileDigest, digest_file, digest_tree, write_atomic
from kaggle_orchestrator.protocol.header import Header, Parent, attempt_token, parse_header
from kaggle_orchestrator.protocol.outcome import Outcome
from kaggle_orchestrator.protocol.plan import Plan
from kaggle_orchestrator.protocol.progress import Progress, ProgressState, ResumeCheck
from kaggle_orchestrator.protocol.result import (
    LEG_RESULT,
    METRICS,
    RESULT_PREFIX,
    LegRecord,
    LegResult,
    result_from_log,
)
from kaggle_orchestrator.protocol.session import Variable

__all__ = [
    "CHECKPOINTS",
    "LEG_RESULT",
    "MANIFEST",
    "METRICS",
    "RESULT_PREFIX",
    "Checkpoint",
    "CheckpointError",
    "FileDigest",
    "Header",
    "KgoError",
    "LegRecord",
    "LegResult",
    "Manifest",
    "Outcome",
    "Parent",
    "Plan",
    "Progress",
    "ProgressState",
    "ResumeCheck",
    "Variable",
    "attempt_token",
    "checkpoint_name",
    "checkpoint_step",
    "digest_file",
    "digest_tree",
    "open_checkpoint",
    "parse_header",
    "result_from_log",
    "write_atomic",
]
