"""An experiment: ``kgo.toml``, the files that travel with it, and the fingerprints that tell two apart."""

from kaggle_orchestrator.experiment.fingerprint import (
    chain_id,
    code_sha256,
    config_sha256,
    file_digests,
    training_settings,
)
from kaggle_orchestrator.experiment.load import load
from kaggle_orchestrator.experiment.model import (
    MAX_SESSION_S,
    ChainConfig,
    CheckpointConfig,
    Experiment,
    GuardsConfig,
    KernelConfig,
    LocalConfig,
    OnMismatch,
    PullConfig,
    TrainConfig,
)
from kaggle_orchestrator.experiment.selection import collect, select

__all__ = [
    "MAX_SESSION_S",
    "ChainConfig",
    "CheckpointConfig",
    "Experiment",
    "GuardsConfig",
    "KernelConfig",
    "LocalConfig",
    "OnMismatch",
    "PullConfig",
    "TrainConfig",
    "chain_id",
    "code_sha256",
    "collect",
    "config_sha256",
    "file_digests",
    "load",
    "select",
    "training_settings",
]
