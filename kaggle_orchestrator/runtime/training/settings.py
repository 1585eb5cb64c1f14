"""What the session says to training, read once; a value that can't be meant is refused by its variable's name.

Outside a session the variables are missing, and ``kgo.toml`` beside the script stands in for two of them.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaggle_orchestrator.protocol import KgoError, Variable

KAGGLE_ROOT = Path("/kaggle")
MIN_KEEP = 2
"""The newest checkpoint may be the one a dying disk damages, so there is always one before it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The session variables as values.

    Attributes:
        working: Absolute path of the folder that outputs go to.
        control: Folder shared with the supervisor, or None outside a session.
        resume: Checkpoint folder to go on from, or None.
        deadline: Seconds since the epoch at which training should have saved and left, or None.
        keep: Number of checkpoints kept.
        save_every_s: Seconds between saves, or None for automatic.
        deterministic: Whether GPU algorithms must be deterministic.
        replay_s: Seconds behind the last save that steps for the next leg's comparison may take; None: no steps.
        stop_on_mismatch: Whether training stops where it doesn't go on exactly.
        token: Token of the attempt; empty outside a chain.
        params: ``train.params``.
        kaggle_root: Folder that holds ``input``, or None where there is none.
        local_sources: Folders that stand in for sources on a laptop, by source name.
        rank: Of this process among ``world``.
    """

    working: Path
    control: Path | None = None
    resume: Path | None = None
    deadline: float | None = None
    keep: int = MIN_KEEP
    save_every_s: float | None = None
    deterministic: bool = False
    replay_s: float | None = None
    stop_on_mismatch: bool = False
    token: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    kaggle_root: Path | None = None
    local_sources: Mapping[str, Path] = field(default_factory=dict)
    rank: int = 0
    world: int = 1

    @classmethod
    def read(cls, environ: Mapping[str, str], working: Path, script: Path | None = None) -> "Settings":
        """Read the variables; ``script`` is the running program, beside which ``kgo.toml`` is looked for.

        Raises:
            KgoError: A variable, or ``kgo.toml``, can't be understood; or a later leg has nothing to go on from.
        """
        working = working.absolute()
        control = environ.get(Variable.CONTROL)
        resume = environ.get(Variable.RESUME)
        leg = _number(environ, Variable.LEG)
        if leg is not None and leg > 1 and not resume:
            raise KgoError(
                f"this is leg {leg:.0f}, but {Variable.RESUME} names no checkpoint to go on from",
                hint="A later leg never starts from zero. Is the parent's output mounted?",
            )
        toml = _Toml.none() if control else _Toml.beside(working, script)
        root = environ.get(Variable.KAGGLE_ROOT)
        keep = _number(environ, Variable.KEEP)
        return cls(
            working=working,
            control=Path(control).absolute() if control else None,
            resume=Path(resume).absolute() if resume else None,
            deadline=_number(environ, Variable.DEADLINE),
            keep=MIN_KEEP if keep is None else max(MIN_KEEP, int(keep)),
            save_every_s=_number(environ, Variable.SAVE_EVERY),
            deterministic=environ.get(Variable.DETERMINISTIC) == "1",
            replay_s=_number(environ, Variable.REPLAY),
            stop_on_mismatch=environ.get(Variable.ON_MISMATCH) == "stop",
            token=environ.get(Variable.TOKEN, ""),
            params=_params(environ) if Variable.PARAMS in environ else toml.params,
            kaggle_root=Path(root) if root else KAGGLE_ROOT if KAGGLE_ROOT.is_dir() else None,
            local_sources=toml.sources,
            rank=int(_number(environ, "RANK") or 0),
            world=int(_number(environ, "WORLD_SIZE") or 1),
        )


@dataclass(frozen=True, slots=True)
class _Toml:
    """What of ``kgo.toml`` matters on a laptop."""

    params: Mapping[str, Any]
    sources: Mapping[str, Path]

    @classmethod
    def none(cls) -> "_Toml":
        return cls({}, {})

    @classmethod
    def beside(cls, working: Path, script: Path | None) -> "_Toml":
        folders = [working] if script is None else [working, script.absolute().parent]
        file = next((f / "kgo.toml" for f in folders if (f / "kgo.toml").is_file()), None)
        if file is None:
            return cls.none()
        try:
            data = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise KgoError(f"{file}: {error}") from error
        train, local = data.get("train"), data.get("local")
        params = train.get("params") if isinstance(train, dict) else None
        sources = local.get("sources") if isinstance(local, dict) else None
        return cls(
            params if isinstance(params, dict) else {},
            {k: file.parent / Path(str(v)).expanduser() for k, v in sources.items()}
            if isinstance(sources, dict)
            else {},
        )


def _number(environ: Mapping[str, str], name: str) -> float | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise KgoError(f"{name}={text!r} is not a number") from None


def _params(environ: Mapping[str, str]) -> Mapping[str, Any]:
    text = environ[Variable.PARAMS]
    try:
        params = json.loads(text)
    except ValueError as error:
        raise KgoError(f"{Variable.PARAMS} is not JSON: {error}") from error
    if not isinstance(params, dict):
        raise KgoError(f"{Variable.PARAMS} is not a JSON object: {text}")
    return params
