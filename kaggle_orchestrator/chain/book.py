"""The chain that is being steered, in memory and written through to the journal."""

from collections.abc import Mapping
from dataclasses import replace

from kaggle_orchestrator.chain.edits import Snapshot, changes
from kaggle_orchestrator.chain.journal import ChainRecord, Journal
from kaggle_orchestrator.chain.model import Attempt, Observation, Park, Phase, Policy
from kaggle_orchestrator.chain.pair import Half, Pair
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.experiment import MAX_SESSION_S, Experiment
from kaggle_orchestrator.models import KernelRef


def policy_of(experiment: Experiment) -> Policy:
    """The bounds in ``kgo.toml``; a one-off has one session of Kaggle's maximum, and no retries after a kill."""
    gpu, chain = experiment.kernel.accelerator.machine_shape is not None, experiment.chain
    if chain is None:
        return Policy(
            chained=False,
            gpu=gpu,
            session_limit_s=float(MAX_SESSION_S),
            stop_before_s=0.0,
            quota_reserve_s=0.0,
            min_leg_s=0.0,
            max_legs=1,
            max_gpu_hours=float("inf"),
            retries=0,
        )
    return Policy(
        chained=True,
        gpu=gpu,
        session_limit_s=chain.session_limit_s,
        stop_before_s=chain.stop_before_s,
        quota_reserve_s=chain.quota_reserve_s,
        min_leg_s=chain.min_leg_s,
        max_legs=chain.max_legs,
        max_gpu_hours=chain.max_gpu_hours,
        retries=chain.retries,
    )


class Book:
    """One generation of a chain; each change is in the journal before the method returns."""

    def __init__(self, journal: Journal, record: ChainRecord, policy: Policy, clock: Clock) -> None:
        self.record = record
        self.policy = policy
        self.pair = Pair(record.key.owner, record.key.slug)
        self._journal = journal
        self._clock = clock
        self._attempts = {a.number: a for a in journal.attempts(record)}

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """By number."""
        return tuple(self._attempts[number] for number in sorted(self._attempts))

    @property
    def by_token(self) -> Mapping[str, Attempt]:
        """By token."""
        return {a.token: a for a in self._attempts.values()}

    @property
    def open(self) -> tuple[Attempt, ...]:
        """Those without a verdict."""
        return tuple(a for a in self.attempts if a.phase is not Phase.ENDED)

    def get(self, number: int) -> Attempt | None:
        """The attempt of that number."""
        return self._attempts.get(number)

    def ref(self, attempt: Attempt) -> KernelRef:
        """The kernel it was pushed to."""
        return self.pair.ref(attempt.kernel)

    def put(self, attempt: Attempt, what: str, detail: str = "") -> None:
        """Insert or replace an attempt."""
        self._journal.save_attempt(self.record, attempt, self._clock.now(), what, detail)
        self._attempts[attempt.number] = attempt

    def drop(self, attempt: Attempt, what: str, detail: str) -> None:
        """Take back an intent whose push was refused."""
        self._journal.drop_attempt(self.record, attempt, self._clock.now(), what, detail)
        del self._attempts[attempt.number]

    def pin(self, snapshot: Snapshot, what: str, detail: str = "") -> None:
        """From now on the chain is the experiment as it is now."""
        pinned = replace(
            self.record, fingerprint=snapshot.fingerprint, files=snapshot.files, settings=snapshot.settings
        )
        self._save(pinned, what, detail)

    def saw(self, half: Half, version: int) -> None:
        """Versions of a kernel up to this one were looked at."""
        if version > self.record.seen(half):
            self._save(self.record.saw(half, version), "looked", f"{self.pair.ref(half)} up to v{version}")

    def park(self, park: Park | None) -> None:
        """Remember why a push was refused, or forget it."""
        if park != self.record.park:
            self._save(replace(self.record, park=park), "parked" if park else "unparked", park.message if park else "")

    def forgive(self) -> None:
        """What failed so far doesn't count any more."""
        number = max(self._attempts, default=0)
        if number != self.record.forgiven:
            self._save(replace(self.record, forgiven=number), "forgiven", f"up to attempt {number}")

    def changed(self, snapshot: Snapshot) -> tuple[str, ...]:
        """What differs between the chain's experiment and the one there is now."""
        return changes(self.record.fingerprint, self.record.files, self.record.settings, snapshot)

    def observation(self, snapshot: Snapshot | None) -> Observation:
        """What is known; ``snapshot`` None while the experiment's files don't matter."""
        return Observation(
            pair=self.pair,
            policy=self.policy,
            attempts=self.attempts,
            pinned=self.record.fingerprint,
            current=snapshot.fingerprint if snapshot else self.record.fingerprint,
            changed=self.changed(snapshot) if snapshot else (),
            forgiven=self.record.forgiven,
            park=self.record.park,
        )

    def _save(self, record: ChainRecord, what: str, detail: str) -> None:
        self.record = self._journal.save_chain(record, self._clock.now(), what, detail)
