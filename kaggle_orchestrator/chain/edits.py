"""What makes an experiment differ from the one a chain was started with, named so that a person recognises it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from kaggle_orchestrator.chain.model import Fingerprint
from kaggle_orchestrator.experiment import (
    Experiment,
    code_sha256,
    collect,
    config_sha256,
    file_digests,
    training_settings,
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An experiment as it is now: its fingerprint, the sha256 of each file, and each setting as JSON text."""

    fingerprint: Fingerprint
    files: Mapping[str, str]
    settings: Mapping[str, str]


def snapshot(experiment: Experiment) -> Snapshot:
    """Read the experiment's files.

    Raises:
        RenderError: One can't be read.
    """
    files = collect(experiment)
    return Snapshot(
        Fingerprint(code_sha256(files), config_sha256(experiment)),
        {path: digest.sha256 for path, digest in file_digests(files).items()},
        settings(experiment),
    )


def settings(experiment: Experiment) -> dict[str, str]:
    """The settings that training depends on (those behind ``config_sha256``), by their key in ``kgo.toml``."""
    return {key: json.dumps(value) for key, value in training_settings(experiment).items()}


def changes(pinned: Fingerprint, files: Mapping[str, str], old: Mapping[str, str], now: Snapshot) -> tuple[str, ...]:
    """What differs, one phrase each; empty if the fingerprints are the same.

    Args:
        pinned: Fingerprint of the chain.
        files: Digests of its files; empty if only the fingerprint is known (a rebuilt journal).
        old: Its settings; empty likewise.
        now: The experiment now.
    """
    named: list[str] = []
    if pinned.code != now.fingerprint.code:
        named += _differences(files, now.files, "file") if files else ["the code (which files isn't known)"]
    if pinned.config != now.fingerprint.config:
        named += (_differences(old, now.settings, "key") if old else []) or ["kgo.toml"]
    return tuple(named)


def _differences(old: Mapping[str, str], new: Mapping[str, str], kind: str) -> list[str]:
    names = sorted(old.keys() | new.keys())
    notes = []
    for name in names:
        if name not in old:
            notes.append(f"{name} (new)")
        elif name not in new:
            notes.append(f"{name} (gone)")
        elif old[name] != new[name]:
            notes.append(name if kind == "file" else f"{name} ({old[name]} → {new[name]})")
    return notes
