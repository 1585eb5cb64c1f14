"""Bringing the journal up to what the two kernels' versions say: adopt, import, name strangers, or rebuild it all.

Each step is written as it is taken and can be taken again, so a controller killed in between loses nothing.
"""

from collections.abc import Callable

from kaggle_orchestrator.chain.book import Book
from kaggle_orchestrator.chain.edits import Snapshot
from kaggle_orchestrator.chain.events import Adopted, Event, Rebuilt, Stranger
from kaggle_orchestrator.chain.journal import ChainKey, ChainRecord, Journal
from kaggle_orchestrator.chain.model import Attempt, Fingerprint, Phase, Policy
from kaggle_orchestrator.chain.pair import Half, Pair
from kaggle_orchestrator.chain.survey import Sighting, Survey, generation_of, survey
from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import ChainError, ForeignKernel, Unavailable
from kaggle_orchestrator.experiment import chain_id
from kaggle_orchestrator.protocol import Header, attempt_token

Tell = Callable[[Event], None]
NEW_S = 600.0
"""For so long a kernel that was just pushed may be denied."""


def sync(kaggle: Kaggle, book: Book, half: Half, now: float, tell: Tell, *, take_over: bool = False) -> bool:
    """Look at a kernel's versions that weren't looked at before.

    Returns:
        Whether one of them is an attempt that wasn't known to have landed.

    Raises:
        ForeignKernel: The kernel isn't ours.
        ChainError: Versions that the journal knows are gone.
        KaggleError: Kaggle couldn't be asked.
    """
    doubt = any(a.kernel is half and a.version is None for a in book.open)
    found = survey(kaggle, book.pair.ref(half), book.record.seen(half), every=doubt)
    return _absorb(found, book, half, now, tell, take_over)


def rebuild(
    kaggle: Kaggle,
    journal: Journal,
    key: ChainKey,
    snapshot: Snapshot,
    policy: Policy,
    clock: Clock,
    tell: Tell,
    *,
    take_over: bool = False,
) -> Book:
    """A chain that the journal doesn't know: read back from both kernels, or new if the account lists neither.

    Raises:
        ForeignKernel: A kernel of that name isn't ours.
        Unavailable: A kernel is listed, but can't be read just now.
        KaggleError: Kaggle couldn't be asked.
    """
    pair, now = Pair(key.owner, key.slug), clock.now()
    listed = set(kaggle.kernels())
    surveys = {half: survey(kaggle, pair.ref(half), 0) for half in Half}
    for found in surveys.values():
        if found.current is None and found.ref in listed:
            # Taking it for absent would start a second chain beside the first.
            raise Unavailable(f"{found.ref} is in the account's list, but Kaggle denies it just now.")
    record = _record(key, snapshot, [s for found in surveys.values() for s in found.sightings], now)
    for found in surveys.values():
        _check_ours(found, record, 0, take_over)
    book = Book(journal, journal.save_chain(record, now, "begun"), policy, clock)
    for half, found in surveys.items():
        _absorb(found, book, half, now, tell, take_over)
    if book.attempts:
        tell(Rebuilt(len(book.attempts)))
    return book


def _record(key: ChainKey, snapshot: Snapshot, sightings: list[Sighting], now: float) -> ChainRecord:
    headers = [s.header for s in sightings if s.header is not None]
    generation = generation_of(headers, key.owner, key.slug) or 1
    chain = chain_id(key.owner, key.slug, generation)
    newest = max((h for h in headers if h.chain == chain), key=lambda h: h.attempt, default=None)
    pinned = Fingerprint(newest.code_sha256, newest.config_sha256) if newest else snapshot.fingerprint
    if pinned != snapshot.fingerprint:  # what the files were can't be read off a header
        return ChainRecord(key, generation, chain, pinned, now)
    return ChainRecord(key, generation, chain, pinned, now, files=snapshot.files, settings=snapshot.settings)


def _absorb(found: Survey, book: Book, half: Half, now: float, tell: Tell, take_over: bool) -> bool:
    seen = book.record.seen(half)
    if found.current is None or found.current < seen:
        _check_gone(found, book, half, now)
        return False
    _check_ours(found, book.record, seen, take_over)
    news = [_absorb_one(sighting, book, half, now, tell) for sighting in found.sightings]
    book.saw(half, found.current)
    return any(news)


def _absorb_one(sighting: Sighting, book: Book, half: Half, now: float, tell: Tell) -> bool:
    header, ref, version = sighting.header, sighting.ref, sighting.version
    if header is None:
        tell(Stranger(ref, version, "wasn't pushed by kgo"))
        return False
    if header.chain != book.record.chain or header.token != attempt_token(header.chain, header.leg, header.attempt):
        tell(Stranger(ref, version, "belongs to another chain"))
        return False
    known = book.by_token.get(header.token)
    if known is not None and known.version == version:
        return False
    if known is not None and known.phase is not Phase.ENDED and (known.version is None or version < known.version):
        # Of two versions with one token the lowest wins, whoever looks.
        adopted = known.landed(version, known.intended_at)
    elif known is None and book.get(header.attempt) is None:
        adopted = _imported(header, book, half, now).landed(version, None)
    else:
        tell(Stranger(ref, version, f"repeats attempt {header.attempt}"))
        return False
    book.put(adopted, "adopted", f"{ref} v{version}")
    tell(Adopted(adopted, ref))
    return True


def _imported(header: Header, book: Book, half: Half, now: float) -> Attempt:
    return Attempt(
        leg=header.leg,
        number=header.attempt,
        token=header.token,
        kernel=half,
        parent=header.parent,
        fingerprint=Fingerprint(header.code_sha256, header.config_sha256),
        session_limit_s=book.policy.session_limit_s,
        leave_after_s=None,
        intended_at=now,
    )


def _check_ours(found: Survey, record: ChainRecord, seen: int, take_over: bool) -> None:
    if seen or take_over or not found.current:
        return
    headers = [s.header for s in found.sightings if s.header is not None]
    if generation_of(headers, record.key.owner, record.key.slug) is None:
        raise ForeignKernel(
            f"{found.ref} exists at Kaggle (v{found.current}), and kgo didn't push it.",
            hint="Choose another kernel.slug, or use --take-over to push further versions of it.",
        )


def _check_gone(found: Survey, book: Book, half: Half, now: float) -> None:
    seen = book.record.seen(half)
    fresh = any(a.kernel is half and a.pushed_at is not None and now - a.pushed_at < NEW_S for a in book.attempts)
    if seen and not fresh:
        has = f"ends at v{found.current}" if found.current is not None else "can't be found at Kaggle"
        raise ChainError(
            f"{found.ref} {has}, but this chain's journal knows v{seen}: it was deleted, or is another account's.",
            hint="`kgo run --new` starts over.",
        )
