"""Pulling an attempt's output to where its experiment wants it, and showing what came."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kaggle_orchestrator.cli.options import echo, shown
from kaggle_orchestrator.models import KernelRef

if TYPE_CHECKING:
    from kaggle_orchestrator.chain import Attempt
    from kaggle_orchestrator.client import Kaggle
    from kaggle_orchestrator.experiment import Experiment
    from kaggle_orchestrator.pull import Pulled


def pull_attempt(
    kaggle: "Kaggle",
    experiment: "Experiment",
    ref: KernelRef,
    attempt: "Attempt",
    folder: Path | None = None,
    patterns: tuple[str, ...] = (),
) -> "Pulled":
    """Pull an attempt's output.

    Args:
        kaggle: Where it is.
        experiment: Says where to and which files, unless ``folder`` and ``patterns`` do.
        ref: The attempt's kernel.
        attempt: One that has a version.
        folder: Where to.
        patterns: Which files.

    Raises:
        ArtifactError: Files are missing or differ, or can't be written.
        KaggleError: Kaggle couldn't be asked.
    """
    from kaggle_orchestrator.pull import pull

    assert attempt.version is not None
    # A result that came by the log names no outputs, and its file may never come.
    token = attempt.token if attempt.result is not None and attempt.result.outputs else None
    where = folder or experiment.root / experiment.pull.dir
    return pull(kaggle, ref, attempt.version, where, patterns or experiment.pull.patterns, token)


def artifact_documents(pulled: "Pulled | None") -> list[dict[str, Any]]:
    """Entries of ``artifacts``."""
    if pulled is None:
        return []
    unverified = set(pulled.unverified)
    return [
        {"name": a.name, "path": a.path, "sha256": a.sha256, "size": a.size, "verified": a.name not in unverified}
        for a in pulled.artifacts
    ]


def print_artifacts(pulled: "Pulled") -> None:
    """One line a file on stdout, as ``sha256sum`` writes them."""
    for artifact in pulled.artifacts:
        echo(f"{artifact.sha256}  {shown(artifact.path)}")
