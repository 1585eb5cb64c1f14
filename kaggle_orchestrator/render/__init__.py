"""An experiment and an attempt become a push: the kernel's source with everything in it, and its settings."""

from kaggle_orchestrator.render.bundle import Member
from kaggle_orchestrator.render.folder import METADATA, metadata, write_folder
from kaggle_orchestrator.render.kernel import MAX_SOURCE, AttemptSpec, bundle_of, first_attempt, render

__all__ = [
    "MAX_SOURCE",
    "METADATA",
    "AttemptSpec",
    "Member",
    "bundle_of",
    "first_attempt",
    "metadata",
    "render",
    "write_folder",
]
