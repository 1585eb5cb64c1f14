"""One real local Kaggle for all tests of this folder, a real client on it, and experiments that run there."""

import shutil
import venv
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kaggle_orchestrator.chain import Attempt, Chain, Half, Journal, Options, Pair
from kaggle_orchestrator.chain.events import Event
from kaggle_orchestrator.client import Kaggle, Policy, connect
from kaggle_orchestrator.clock import Clock, SystemClock
from kaggle_orchestrator.experiment import Experiment, load
from kaggle_orchestrator.localkaggle import admin, background
from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.admin import LocalSession
from tests.chain.local import TOY, new_slug


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    home = tmp_path_factory.mktemp("home")
    yield background.ensure(home, idle_s=1800)  # others may take their time between two tests that need it
    background.stop(home)


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without torch: sessions of the toy start in no time, and need nothing but the bundle."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def kaggle(server: LocalServer) -> Iterator[Kaggle]:
    # One try a read: the faults that tests script are for the chain to bear, not for the client to hide.
    with connect(server.url, environ={}, policy=Policy(attempts=1)) as kaggle:
        yield kaggle


@dataclass
class Lab:
    """Makes experiments and steers them at the real local Kaggle.

    Attributes:
        events: What the chains told, oldest first.
    """

    root: Path
    kaggle: Kaggle
    url: str
    python: Path
    stack: ExitStack
    events: list[Event] = field(default_factory=list)

    def experiment(
        self,
        *,
        folder: str = "exp",
        slug: str | None = None,
        params: str = "steps = 30, step_s = 0.0",
        chain: str | None = 'session_limit = "20s", stop_before = "10s"',
        kernel: str = "",
    ) -> Experiment:
        """An experiment whose training is the toy; each has a slug of its own, so that tests share one server.

        Args:
            folder: Below the test's folder.
            slug: Given only to write the same experiment again.
            params: ``train.params``.
            chain: Keys of ``[chain]``, or None for a one-off.
            kernel: Further keys of ``[kernel]``.
        """
        root, slug = self.root / folder, slug or new_slug()
        root.mkdir(parents=True, exist_ok=True)
        if not (root / "train.py").exists():
            shutil.copy(TOY, root / "train.py")
        lines = ["[kernel]", f'slug = "{slug}"', kernel, "[train]", 'entry = "train.py"', 'include = ["*.py"]']
        lines += [f"params = {{ {params} }}", *(["[chain]", *chain.split(", ")] if chain is not None else [])]
        (root / "kgo.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for half in Half:
            admin.configure_kernel(self.url, str(Pair("me", slug).ref(half)), self.python)
        return load(root)

    def chain(
        self,
        experiment: Experiment,
        *,
        clock: Clock | None = None,
        options: Options | None = None,
        kaggle: Kaggle | None = None,
    ) -> Chain:
        """A controller with a fresh memory: it knows what journal and Kaggle tell it."""
        journal = self.stack.enter_context(Journal.of(experiment.root))
        return Chain(experiment, kaggle or self.kaggle, journal, clock or SystemClock(), options=options)

    def told(self, kind: type[Event]) -> list[Event]:
        """Events of a kind."""
        return [e for e in self.events if isinstance(e, kind)]

    def sessions(self, experiment: Experiment) -> list[LocalSession]:
        """The server's own record of this experiment's sessions, oldest first."""
        pair = Pair("me", experiment.kernel.slug)
        return [s for s in admin.sessions(self.url) if pair.half(s.kernel) is not None]

    def state(self, experiment: Experiment, attempt: Attempt) -> str:
        """The trained state in an attempt's output, as Kaggle serves it."""
        assert attempt.version is not None
        ref = Pair("me", experiment.kernel.slug).ref(attempt.kernel)
        data = self.kaggle.read(ref, attempt.version, "final/state.txt")
        assert data is not None
        return data.decode()


@pytest.fixture
def lab(tmp_path: Path, kaggle: Kaggle, server: LocalServer, python: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        yield Lab(tmp_path, kaggle, server.url, python, stack)
