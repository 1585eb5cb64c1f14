"""The environment that training runs in: what Kaggle set, and the session variables.

Kaggle's live tokens stay: ``kaggle_secrets`` and ``kagglehub`` need them. The log takes care that they aren't printed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from kaggle_orchestrator.protocol import Plan, Variable
from kaggle_orchestrator.runtime.supervisor.places import Places

_FROM_OUTSIDE = {Variable.SESSION_START, Variable.SIMULATED_ACCELERATOR, Variable.SESSION_LIMIT}


def session_environment(
    plan: Plan,
    places: Places,
    environ: Mapping[str, str],
    *,
    now: float,
    deadline: float | None,
    replay_s: float | None,
    resume: Path | None,
) -> dict[str, str]:
    """All variables of the training process.

    Args:
        plan: The attempt's plan.
        places: Where things lie.
        environ: Our own environment.
        now: Start of training, seconds since the epoch.
        deadline: When it should have saved and left; None in a one-off.
        replay_s: How long it may replay steps behind that.
        resume: What to go on from.
    """
    ours = {v.value for v in Variable if v not in _FROM_OUTSIDE}
    inherited = {k: v for k, v in environ.items() if k not in ours}
    header = plan.header
    variables: dict[Variable, str] = {
        Variable.KAGGLE_ROOT: str(places.root),
        Variable.CHAIN: header.chain,
        Variable.LEG: str(header.leg),
        Variable.ATTEMPT: str(header.attempt),
        Variable.TOKEN: header.token,
        Variable.PARAMS: json.dumps(dict(plan.params), sort_keys=True),
        Variable.CONTROL: str(places.control),
        Variable.KEEP: str(plan.keep),
    }
    if resume is not None:
        variables[Variable.RESUME] = str(resume)
    if deadline is not None:
        variables[Variable.DEADLINE] = f"{deadline:.3f}"
        variables[Variable.BUDGET] = f"{max(0.0, deadline - now):.3f}"
    if plan.save_every_s is not None:
        variables[Variable.SAVE_EVERY] = f"{plan.save_every_s:g}"
    if replay_s is not None:
        variables[Variable.REPLAY] = f"{replay_s:g}"
    if plan.stop_on_mismatch:
        variables[Variable.ON_MISMATCH] = "stop"
    if plan.deterministic:
        variables[Variable.DETERMINISTIC] = "1"
    path = [str(places.lib), str(places.src), *filter(None, [inherited.get("PYTHONPATH")])]
    return {
        "PYTHONFAULTHANDLER": "1",  # a crash or a hang shows where
        **inherited,
        **{k.value: v for k, v in variables.items()},
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
    }
