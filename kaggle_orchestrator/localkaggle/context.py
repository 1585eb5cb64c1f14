"""What the routes share: the world, its sessions, the knobs, the clock; and one call as the routes see it."""

import hashlib
import hmac
from dataclasses import dataclass, field
from urllib.parse import quote

from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.localkaggle.faults import Faults
from kaggle_orchestrator.localkaggle.knobs import Knobs
from kaggle_orchestrator.localkaggle.scripted import Actor
from kaggle_orchestrator.localkaggle.sessions import Sessions
from kaggle_orchestrator.localkaggle.wire import Fields
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.localkaggle.worldclock import WorldClock

OUTPUT_ROUTE = "/_kgo/output"


@dataclass(slots=True)
class Context:
    """One server's state; all that must outlive it is in the world.

    Attributes:
        machine: The machine's clock.
        clock: The world's.
        boxed: Whether sessions get namespaces of their own.
        box_reason: Why, or why not.
        nonce: Tells this server from another at the same address.
        actor: Plays sessions without a process.
        patient: Whether a live log waits for what is still to be said.
        last_used: When it was last asked something, by the machine's clock.
        stopping: Set by the stop route.
    """

    world: World
    machine: Clock
    boxed: bool
    box_reason: str
    nonce: str
    actor: Actor | None = None
    patient: bool = True
    clock: WorldClock = field(init=False)
    knobs: Knobs = field(init=False)
    faults: Faults = field(init=False)
    sessions: Sessions = field(init=False)
    last_used: float = field(init=False)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.clock = WorldClock(self.world, self.machine)
        self.knobs = Knobs().remembered(self.world.fact("knobs"))
        self.faults = Faults(self.world, self.clock.now, lambda: self.knobs.seed)
        self.sessions = Sessions(
            self.world, self.clock, self.faults, lambda: self.knobs, boxed=self.boxed, actor=self.actor
        )
        self.last_used = self.machine.now()

    def set_knobs(self, values: dict[str, object]) -> None:
        """Change knobs, for this server and those after it.

        Raises:
            UsageError: No such knob, or not a value of it.
        """
        knobs = self.knobs.changed(values)
        self.world.set_fact("knobs", knobs.jsonable())
        self.knobs = knobs
        self.clock.turn(knobs.clock_factor)

    def signature(self, session: int, name: str, expires: int) -> str:
        """What proves that this server made a download URL."""
        text = f"{session}\n{name}\n{expires}".encode()
        return hmac.new(self.world.secret(), text, hashlib.sha256).hexdigest()

    def signed_url(self, base: str, session: int, name: str) -> str:
        """A download URL that needs no credentials and expires."""
        expires = int(self.clock.now() + self.knobs.url_ttl_s)
        signature = self.signature(session, name, expires)
        return f"{base}{OUTPUT_ROUTE}/{session}/{quote(name)}?expires={expires}&signature={signature}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: by whom, with which fields, at which address."""

    user: str
    fields: Fields
    base: str
