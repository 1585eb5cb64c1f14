"""What the commands that talk to Kaggle share: options, the connection, the local Kaggle's setting, an open chain."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import click
import platformdirs

from kaggle_orchestrator.chain import (
    Book,
    Chain,
    ChainKey,
    Half,
    Journal,
    Observation,
    Options,
    Pair,
    policy_of,
    steering,
)
from kaggle_orchestrator.chain.edits import snapshot
from kaggle_orchestrator.clock import SystemClock
from kaggle_orchestrator.errors import (
    ChainLive,
    CredentialsError,
    JournalError,
    KaggleError,
    LocalKaggleError,
    UsageError,
)
from kaggle_orchestrator.experiment import Experiment
from kaggle_orchestrator.profile import Profile
from kaggle_orchestrator.protocol import KgoError

if TYPE_CHECKING:
    from kaggle_orchestrator.client import Kaggle, Policy

F = TypeVar("F", bound=Callable[..., Any])
_PROFILE = "kgo.profile"


def local_option(command: F) -> F:
    """``--local``. Passed as ``local: bool``."""
    return click.option(
        "--local", is_flag=True, envvar="KGO_LOCAL", help="Use the local Kaggle, started when needed. [env: KGO_LOCAL]"
    )(command)


def profile_option(command: F) -> F:
    """``--profile``, for :func:`connect`; nothing is passed."""
    return click.option(
        "--profile",
        envvar="KGO_PROFILE",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="What `kgo probe` measured, if not in KGO_HOME. [env: KGO_PROFILE]",
        expose_value=False,
        callback=lambda ctx, _, path: ctx.meta.__setitem__(_PROFILE, path),
    )(command)


def steering_options(command: F) -> F:
    """What a person may ask of a chain. Passed as ``accept_changes, new, retry, take_over: bool``."""
    for name, text in (
        ("--take-over", "Push to a kernel of that name although kgo didn't make it."),
        ("--retry", "Go on after a failure or a stop."),
        ("--new", "Start over as a new chain."),
        ("--accept-changes", "Go on with edited code or configuration."),
    ):
        command = click.option(name, is_flag=True, help=text)(command)
    return command


def home() -> Path:
    """Where the local Kaggle and everything else that belongs to no experiment lies."""
    return Path(os.environ.get("KGO_HOME") or platformdirs.user_data_path("kgo"))


def connect(local: bool, experiments: Sequence[Experiment] = (), *, policy: "Policy | None" = None) -> "Kaggle":
    """The Kaggle to talk to: the local one, the one at ``KGO_ENDPOINT``, or Kaggle itself.

    A local Kaggle is also given the experiments' ``[local]`` sources and interpreter.

    Raises:
        CredentialsError: There are no credentials for it.
        LocalKaggleError: The local Kaggle doesn't start.
        UsageError: ``KGO_ENDPOINT``, ``KGO_HOME`` or a ``[local]`` path is wrong.
    """
    from kaggle_orchestrator import client

    endpoint = os.environ.get("KGO_ENDPOINT") or None
    if local:
        endpoint = local_endpoint()
    kaggle = client.connect(endpoint, policy=policy)
    kaggle.profile = _profile(kaggle)
    if experiments and local_root(kaggle.endpoint) is not None:
        for experiment in experiments:
            _settle_in(kaggle, experiment)
    return kaggle


def profile_path(kaggle: "Kaggle") -> Path:
    """Where the profile of a Kaggle lies by default; a local one's isn't taken for Kaggle's."""
    return home() / ("profile.json" if local_root(kaggle.endpoint) is None else "profile-local.json")


def _profile(kaggle: "Kaggle") -> Profile:
    """The profile that was named, or else the one in kgo's home if it is of this very Kaggle."""
    context = click.get_current_context(silent=True)
    named: Path | None = context.meta.get(_PROFILE) if context else None
    if named is not None:
        return Profile.load(named)
    path = home() / "profile.json"
    found = Profile.load(path) if path.is_file() else Profile()
    return found if found.endpoint == kaggle.endpoint else Profile()


def local_endpoint() -> str:
    """Address of the local Kaggle of kgo's home, started when needed.

    Raises:
        LocalKaggleError: It doesn't start.
        UsageError: kgo's home can't be used.
    """
    from kaggle_orchestrator.localkaggle import background

    try:
        return background.ensure(home()).url
    except OSError as error:
        raise UsageError(
            f"kgo's home {home()} can't be used: {error.strerror or error}.",
            hint="The local Kaggle lives there. KGO_HOME names another folder, one that can be written.",
        ) from error


def local_root(url: str) -> str | None:
    """The folder of the local Kaggle at an address, or None if none answers there."""
    from kaggle_orchestrator.client.endpoint import parse_endpoint
    from kaggle_orchestrator.localkaggle import admin

    if not parse_endpoint(url).loopback:
        return None
    try:
        return str(admin.health(url)["root"])
    except (LocalKaggleError, KeyError):
        return None


def address_of(kaggle: "Kaggle") -> str:
    """Names a Kaggle in journals. A local one gets another port each time, but keeps its folder."""
    root = local_root(kaggle.endpoint)
    return kaggle.endpoint if root is None else f"local:{root}"


def _settle_in(kaggle: "Kaggle", experiment: Experiment) -> None:
    from kaggle_orchestrator.localkaggle import admin

    for name, folder in experiment.local.sources.items():
        path = experiment.place(folder)
        if not path.is_dir():
            raise UsageError(f"local.sources: {folder} (for {name}) is not a folder.", hint=f"It would be {path}.")
        admin.put_dataset(kaggle.endpoint, name if "/" in name else f"competitions/{name}", path)
    python = None
    if experiment.local.python is not None:
        python = experiment.place(experiment.local.python)  # not resolved: a link is what makes a virtual environment
        if not python.exists():
            raise UsageError(f"local.python: there is no {python}.")
    pair = Pair(kaggle.owner(), experiment.kernel.slug)
    for half in Half:
        admin.configure_kernel(kaggle.endpoint, str(pair.ref(half)), python)


@dataclass(frozen=True, slots=True)
class View:
    """A chain as far as it's known; ``note`` says why it isn't fresh, if it isn't."""

    observation: Observation
    note: str = ""


def known(experiment: Experiment, kaggle: "Kaggle") -> View:
    """The chain as Kaggle and the journal have it; nothing is pushed, and no journal is made for looking.

    Raises:
        JournalError: The journal can't be used.
    """
    with ExitStack() as stack:
        if Journal.exists(experiment.root):
            journal = stack.enter_context(Journal.of(experiment.root))
        else:
            journal = stack.enter_context(Journal(Path(stack.enter_context(TemporaryDirectory())) / "journal.db"))
        try:
            key = ChainKey(address_of(kaggle), kaggle.owner(), experiment.kernel.slug)
            with steering(journal.path.parent, key.owner, key.slug):
                return View(Chain(experiment, kaggle, journal, SystemClock(), address=key.endpoint).observe())
        except ChainLive:
            return View(_from_journal(experiment, journal, key))  # who steers it keeps the journal fresh
        except JournalError:
            raise
        except KgoError as error:
            note = f"{error.message} Showing what the journal knows."
            return View(_from_journal(experiment, journal, offline_key(experiment, journal)), note)


def offline(experiment: Experiment) -> View:
    """The chain as the journal has it.

    Raises:
        JournalError: The journal can't be used.
    """
    if not Journal.exists(experiment.root):
        return View(_nothing(experiment, "?"))
    with Journal.of(experiment.root) as journal:
        return View(_from_journal(experiment, journal, offline_key(experiment, journal)))


def offline_key(experiment: Experiment, journal: Journal) -> ChainKey | None:
    """The chain that is most likely meant, while Kaggle can't be asked who we are."""
    from kaggle_orchestrator.client.endpoint import parse_endpoint

    endpoint = parse_endpoint(os.environ.get("KGO_ENDPOINT") or None)
    local = endpoint.loopback or bool(os.environ.get("KGO_LOCAL"))
    keys = journal.keys(experiment.kernel.slug)
    return next((k for k in keys if k.endpoint == endpoint.url or (local and k.endpoint.startswith("local:"))), None)


def _from_journal(experiment: Experiment, journal: Journal, key: ChainKey | None) -> Observation:
    record = journal.chain(key) if key else None
    if record is None:
        return _nothing(experiment, key.owner if key else "?")
    book = Book(journal, record, policy_of(experiment), SystemClock())
    return book.observation(None if book.open else snapshot(experiment))


def _nothing(experiment: Experiment, owner: str) -> Observation:
    fingerprint = snapshot(experiment).fingerprint
    pair = Pair(owner, experiment.kernel.slug)
    return Observation(pair, policy_of(experiment), (), pinned=fingerprint, current=fingerprint)


def try_connect(local: bool) -> "tuple[Kaggle | None, str]":
    """A connection that answers, or None and why not; it doesn't insist."""
    from kaggle_orchestrator.client import Policy

    try:
        kaggle = connect(local, policy=Policy(attempts=1, connect_s=5.0, read_s=20.0))
        kaggle.owner()
    except (KaggleError, CredentialsError, LocalKaggleError) as error:
        return None, error.message
    return kaggle, ""


@contextmanager
def steered(experiment: Experiment, kaggle: "Kaggle", options: Options) -> Iterator[Chain]:
    """The experiment's chain, for the one process that may steer it.

    Raises:
        ChainLive: Another process steers it.
        JournalError: The journal can't be used.
    """
    with (
        Journal.of(experiment.root) as journal,
        steering(journal.path.parent, kaggle.owner(), experiment.kernel.slug),
    ):
        yield Chain(experiment, kaggle, journal, SystemClock(), options=options, address=address_of(kaggle))
