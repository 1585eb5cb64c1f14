"""``kgo push``: start the next leg, or the one-off, and return."""

from pathlib import Path
from typing import assert_never

import click

from kaggle_orchestrator.chain import Fail, Finish, Options, Push, Refuse, Stop, Wait, Why
from kaggle_orchestrator.chain.events import Event, Pushed
from kaggle_orchestrator.cli.chains import steered, steering_options
from kaggle_orchestrator.cli.context import connect, local_option, profile_option
from kaggle_orchestrator.cli.display import Display
from kaggle_orchestrator.cli.options import exp_argument, json_option, print_json
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.errors import ChainError, ChainLive, KaggleError, QuotaExhausted, SessionCap, Unavailable
from kaggle_orchestrator.experiment import load

SCHEMA = 1


@click.command("push", short_help="Start the next leg and return.")
@exp_argument
@steering_options
@local_option
@profile_option
@json_option
def command(
    exp: Path, accept_changes: bool, new: bool, retry: bool, take_over: bool, local: bool, as_json: bool
) -> None:
    """Start the next leg (or a fresh version of a one-off) and return.

    Refuses with exit 4 while a session lives.
    """
    experiment = load(exp)
    kaggle = connect(local, [experiment])
    options = Options(accept_changes=accept_changes, new=new, retry=retry, take_over=take_over)
    display, pushed = Display((experiment.kernel.slug,)), list[Pushed]()

    def note(event: Event) -> None:
        display.event(experiment.kernel.slug, event)
        if isinstance(event, Pushed):
            pushed.append(event)

    with steered(experiment, kaggle, options) as chain:
        action = chain.tick(note)
        if isinstance(action, Wait) and action.why is Why.SESSION and not chain.open:
            action = chain.tick(note)  # another controller's attempt was found and has ended meanwhile
        match action:
            case Push():
                pass
            case Finish():
                display.say(experiment.kernel.slug, "The target is reached already: nothing to push.")
            case Wait():
                raise _not_now(action)
            case Fail():
                raise ChainError(f"A person is needed: {action.message}", hint=action.hint)
            case Stop():
                raise ChainError("The chain was stopped.", hint="`--retry` goes on.")
            case Refuse():
                raise AssertionError("a refusal is raised")
            case _:
                assert_never(action)
    if as_json:
        print_json({"schema": SCHEMA, "pushed": [_document(p) for p in pushed]})
    else:
        for event in pushed:
            click.echo(f"{event.ref} v{event.attempt.version}  {event.url}")


def _document(event: Pushed) -> dict[str, object]:
    attempt, parent = event.attempt, event.attempt.parent
    return {
        "kernel": str(event.ref),
        "version": attempt.version,
        "url": event.url,
        "leg": attempt.leg,
        "attempt": attempt.number,
        "resumed_from": {"kernel": parent.kernel, "version": parent.version, "step": parent.step} if parent else None,
    }


def _not_now(wait: Wait) -> ChainLive | KaggleError:
    left = max(0.0, wait.until - SystemClock().now())
    match wait.why:
        case Why.SESSION:
            return ChainLive("A session of this chain is still running.", hint="`kgo status` shows it.")
        case Why.RESULT:
            return ChainLive(wait.message, hint="`kgo run` waits for it.")
        case Why.LANDING:
            return ChainLive(
                wait.message or "The last push got no clear answer, and it isn't repeated while it may have landed.",
                hint="`kgo run` looks until that is known.",
            )
        case Why.BACKOFF:
            return ChainLive(f"The next try is due in {left:.0f} s: {wait.message}", hint="`kgo run` makes it then.")
        case Why.SESSION_CAP:
            return SessionCap(wait.message)
        case Why.QUOTA:
            return QuotaExhausted(wait.message, hint="`kgo run` waits for it.")
        case Why.NETWORK:
            return Unavailable(wait.message)
        case _:
            assert_never(wait.why)
