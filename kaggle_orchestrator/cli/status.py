"""``kgo status``: chains, legs, progress, what is waited for, and the quota."""

from pathlib import Path
from typing import Any

import click

from kaggle_orchestrator.chain.summary import SCHEMA, chain_document, quota_document
from kaggle_orchestrator.cli import words
from kaggle_orchestrator.cli.chains import known, offline
from kaggle_orchestrator.cli.context import local_option, profile_option, try_connect
from kaggle_orchestrator.cli.options import echo, json_option, print_json
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.experiment import load
from kaggle_orchestrator.protocol import KgoError, ResumeCheck


@click.command("status", short_help="Show chains, legs and progress.")
@click.argument("exps", nargs=-1, type=click.Path(path_type=Path), metavar="[EXP]...")
@local_option
@profile_option
@json_option
def command(exps: tuple[Path, ...], local: bool, as_json: bool) -> None:
    """Show how chains stand: from their journals, refreshed from Kaggle if it can be reached."""
    experiments = [load(path) for path in exps or (Path(),)]
    kaggle, why_not = try_connect(local)
    if kaggle is None:
        _say(f"{why_not} Showing what the journal knows.")
    now = SystemClock().now()
    chains: list[dict[str, Any]] = []
    quota = None
    for experiment in experiments:
        view = known(experiment, kaggle) if kaggle else offline(experiment, local)
        if view.note:
            _say(view.note)
        page = kaggle.web_url if kaggle else None
        chains.append(chain_document(experiment, view.observation, page, now))
    if kaggle is not None:
        try:
            quota = kaggle.quota()
        except KgoError:
            quota = None  # it's an extra: not every account has one, and not every Kaggle says
    if as_json:
        print_json({"schema": SCHEMA, "chains": chains, "quota": quota_document(quota)})
        return
    for chain in chains:
        for line in lines(chain, now):
            echo(line)
    if quota is not None and quota.total_s:
        echo(f"GPU quota: {quota.free_s / 3600:.1f} of {quota.total_s / 3600:.1f} h free")


def _say(text: str) -> None:
    echo(f"kgo: {text}", err=True)


def lines(chain: dict[str, Any], now: float) -> list[str]:
    """A chain for a person."""
    progress = chain["progress"]
    head = f"{chain['kernel']}  {chain['status']}"
    if progress["target"]:
        head += f"  step {progress['step']} of {progress['target']} ({progress['fraction']:.0%})"
    elif progress["step"]:
        head += f"  step {progress['step']}"
    text = [head]
    if chain["reason"]:
        text += [f"  {line}" for line in chain["reason"].splitlines()]
    if chain["waiting_for"]:
        until = f", until about {words.clock_time(chain['next_action_at'])}" if chain["next_action_at"] else ""
        text.append(f"  waits for: {chain['waiting_for'].replace('_', ' ')}{until}")
    if chain["hint"]:
        text.append(f"  {chain['hint']}")
    return text + [_leg(leg, now) for leg in chain["legs"]]


def _leg(leg: dict[str, Any], now: float) -> str:
    where = f"{leg['kernel']} v{leg['version']}" if leg["version"] else f"{leg['kernel']} (push in doubt)"
    how = leg["outcome"] or (leg["session_status"] or "queued").lower()
    if leg["reason"] and leg["reason"] != how:
        how += f" ({leg['reason']})"
    steps = f"step {leg['step_start']} → {leg['step_end'] if leg['step_end'] is not None else '…'}"
    if leg["outcome"] == "done" and not leg["step_end"]:
        steps = "no steps counted"  # a script that knows nothing of kgo
    took = ""
    if leg["started_at"] is not None:
        took = words.duration((leg["ended_at"] or now) - leg["started_at"])
    proof = words.resume(ResumeCheck(**leg["resume_verified"])) if leg["resume_verified"] else ""
    return f"  leg {leg['leg']}  attempt {leg['attempt']}  {where}  {how}  {steps}  {took}  {proof}".rstrip()
