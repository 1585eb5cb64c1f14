"""A local Kaggle in this process, with one account on it and sessions that a test plays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.localkaggle.inprocess import LocalKaggle
from kaggle_orchestrator.localkaggle.scripted import Actor, Line, Scene, Script, Write
from tests.localkaggle.client import Client


@dataclass(frozen=True)
class Stage:
    """The Kaggle, its time, and a client of user ``me``."""

    kaggle: LocalKaggle
    clock: FakeClock
    client: Client
    scenes: list[Scene]

    def later(self, seconds: float) -> None:
        """Let time go by."""
        self.clock.sleep(seconds)

    def other(self, name: str) -> Client:
        """Another account."""
        return Client(self.kaggle.url, f"kgo-local-{name}", self.kaggle.adapter)


def plain(after_s: float = 60.0, /, **output: str) -> Script:
    """A session that writes ``output`` half way, says two lines, and ends."""
    writes = tuple(Write(after_s / 2, name.replace("__", "/"), text.encode()) for name, text in output.items())
    return Script(after_s, writes=writes, log=(Line(0.0, "hello\n"), Line(after_s, "bye\n")))


@contextmanager
def staged(
    root: Path,
    script: Script | Callable[[Scene], Script] | None = None,
    *,
    knobs: Mapping[str, object] | None = None,
    faults: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Stage]:
    """A stage whose sessions all follow ``script``."""
    clock, scenes = FakeClock(), list[Scene]()
    script = script or plain(result="text")

    def act(scene: Scene) -> Script:
        scenes.append(scene)
        return script(scene) if callable(script) else script

    actor: Actor = act
    with LocalKaggle(root, clock=clock, knobs=knobs, faults=faults, actor=actor) as kaggle:
        yield Stage(kaggle, clock, Client(kaggle.url, adapter=kaggle.adapter), scenes)
