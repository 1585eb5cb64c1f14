"""What the commands that talk to Kaggle share: options, kgo's home, the connection, the local Kaggle's setting."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import platformdirs

from kaggle_orchestrator.errors import CredentialsError, KaggleError, LocalKaggleError, UsageError
from kaggle_orchestrator.profile import Profile

if TYPE_CHECKING:
    from kaggle_orchestrator.client import Kaggle, Policy
    from kaggle_orchestrator.experiment import Experiment

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


def home() -> Path:
    """Where the local Kaggle and everything else that belongs to no experiment lies."""
    return Path(os.environ.get("KGO_HOME") or platformdirs.user_data_path("kgo"))


def connect(local: bool, experiments: "Sequence[Experiment]" = (), *, policy: "Policy | None" = None) -> "Kaggle":
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


def _settle_in(kaggle: "Kaggle", experiment: "Experiment") -> None:
    from kaggle_orchestrator.chain import Half, Pair
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


def try_connect(local: bool) -> "tuple[Kaggle | None, str]":
    """A connection that answers, or None and why not; it doesn't insist."""
    from kaggle_orchestrator.client import Policy

    try:
        kaggle = connect(local, policy=Policy(attempts=1, connect_s=5.0, read_s=20.0))
        kaggle.owner()
    except (KaggleError, CredentialsError, LocalKaggleError) as error:
        return None, error.message
    return kaggle, ""
