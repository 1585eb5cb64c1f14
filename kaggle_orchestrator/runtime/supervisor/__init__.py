"""Inside a session: preflight, restore, run the training, watch it, verify what it left, report.

Standard library only, so that it runs before anything is installed. Whatever happens to the training, the session's
last log line says how the attempt ended, and its exit code is 0 only for a gain or the target.
"""

from kaggle_orchestrator.runtime.supervisor.leg import main

__all__ = ["main"]
