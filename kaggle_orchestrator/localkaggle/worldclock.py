"""The world's clock: the machine's, or one that runs faster; it never goes back, whoever turns it and whatever dies."""

from dataclasses import dataclass

from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.protocol.jsonable import from_jsonable, to_jsonable

_FACT = "clock"


@dataclass(frozen=True, slots=True)
class _Anchor:
    """From ``machine`` (the machine's time) on, which was ``world`` here, time runs ``factor`` times as fast."""

    machine: float
    world: float
    factor: float

    def at(self, machine: float) -> float:
        return self.world + (machine - self.machine) * self.factor


class WorldClock:
    """Tells the world's time; its setting is kept in the world, so it goes on while no server runs."""

    def __init__(self, world: World, machine: Clock) -> None:
        self._world = world
        self._machine = machine
        fact = world.fact(_FACT)
        self._anchor = from_jsonable(_Anchor, fact) if fact else _Anchor(0.0, 0.0, 1.0)

    @property
    def factor(self) -> float:
        """World seconds in a second of the machine."""
        return self._anchor.factor

    def now(self) -> float:
        """Seconds since the epoch, in the world."""
        return self._anchor.at(self._machine.now())

    def of(self, machine: float) -> float:
        """What the world's time was at a time of the machine since the clock was last turned."""
        return self._anchor.at(machine)

    def sleep(self, seconds: float) -> None:
        """Wait until so many seconds have gone by in the world."""
        self._machine.sleep(seconds / self._anchor.factor)

    def turn(self, factor: float) -> None:
        """Run ``factor`` times as fast as the machine's clock from now on."""
        if factor != self._anchor.factor:
            machine = self._machine.now()
            anchor = _Anchor(machine, self._anchor.at(machine), factor)
            self._world.set_fact(_FACT, to_jsonable(anchor))  # a full disk turns nothing
            self._anchor = anchor
