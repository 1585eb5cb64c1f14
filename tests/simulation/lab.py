"""A chain against a local Kaggle in the same process, on one clock that only waiting moves."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaggle_orchestrator.chain import Chain, Finish, Journal, Pair
from kaggle_orchestrator.chain.events import Event, Stranger
from kaggle_orchestrator.chain.model import Attempt
from kaggle_orchestrator.client import connect
from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.experiment import Experiment, load
from kaggle_orchestrator.localkaggle.inprocess import LocalKaggle
from kaggle_orchestrator.models import SessionStatus
from kaggle_orchestrator.profile import Profile
from kaggle_orchestrator.protocol import Outcome
from tests.simulation.actor import FINAL, Trainee, state_after

SLUG = "toy-chain"
STEPS = 60
CHAIN = 'session_limit = "20m", stop_before = "2m", max_legs = 30'


def experiment(root: Path, *, steps: int = STEPS, chain: str = CHAIN, kernel: str = "") -> Experiment:
    """An experiment whose sessions :class:`tests.simulation.actor.Trainee` plays."""
    root.mkdir()
    (root / "train.py").write_text("print('played by the test')\n", encoding="utf-8")
    lines = ["[kernel]", f'slug = "{SLUG}"', *kernel.split(", "), "[train]", 'entry = "train.py"']
    lines += ['include = ["*.py"]', f"params = {{ steps = {steps} }}", "[chain]", *chain.split(", ")]
    (root / "kgo.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load(root)


@dataclass(frozen=True, slots=True)
class Told:
    """How a chain went.

    Attributes:
        attempts: The journal's, by number.
        sessions: The server's own record: kernel, version, status.
        state: The trained state, as Kaggle serves it.
        hours: World time that it took.
    """

    attempts: tuple[Attempt, ...]
    sessions: tuple[tuple[str, int, SessionStatus], ...]
    state: str
    hours: float
    events: tuple[Event, ...]

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How often each."""
        return Counter(a.outcome for a in self.attempts if a.outcome is not None)


@dataclass(slots=True)
class Lab:
    """What every simulated chain of a test shares.

    Attributes:
        root: A folder of the test's own.
        start: World time at the start; a Tuesday.
    """

    root: Path
    start: float = 1_800_000_000.0 + 86_400.0 * 3
    runs: int = field(default=0)

    def run(
        self,
        *,
        knobs: Mapping[str, object] | None = None,
        faults: Sequence[Mapping[str, Any]] = (),
        trainee: Trainee | None = None,
        profile: Profile | None = None,
        **settings: Any,
    ) -> Told:
        """Drive one chain to its target; whatever happened, it ended as an uninterrupted training would.

        Checked here: the state, one session of the server for each attempt of the journal, and nobody else's version.
        """
        self.runs += 1
        folder = self.root / str(self.runs)
        clock = FakeClock(time=self.start)
        folder.mkdir()
        subject = experiment(folder / "exp", **settings)
        events: list[Event] = []
        with (
            LocalKaggle(
                folder / "kaggle", clock=clock, knobs=knobs or {}, faults=faults, actor=trainee or Trainee()
            ) as local,
            connect(
                local.url, environ={}, clock=clock, rng=random.Random(0), adapter=local.adapter, profile=profile
            ) as kaggle,
            Journal.of(subject.root) as journal,
        ):
            chain = Chain(subject, kaggle, journal, clock)
            finish = chain.drive(events.append)
            assert isinstance(finish, Finish), finish
            pair = Pair("me", SLUG)
            sessions = tuple(
                (str(s.kernel), s.version, s.status) for s in local.sessions() if pair.half(str(s.kernel)) is not None
            )
            version = finish.attempt.version
            assert version is not None
            data = kaggle.read(pair.ref(finish.attempt.kernel), version, FINAL)
            told = Told(
                chain.book.attempts,
                sessions,
                (data or b"").decode(),
                (clock.now() - self.start) / 3600,
                tuple(events),
            )
        attempts = [(str(pair.ref(a.kernel)), a.version) for a in told.attempts]
        assert sorted((kernel, number) for kernel, number, _ in told.sessions) == sorted(attempts)
        assert not [e for e in told.events if isinstance(e, Stranger)]
        assert told.state == state_after(int(subject.train.params["steps"]))
        return told
