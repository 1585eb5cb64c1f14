"""From a version's output to verified files: nothing is an artifact unless its sha256 is the one the session recorded.

Where a session recorded none (a script that knows nothing of kgo, a session that was killed), the files still come,
and :attr:`Pulled.unverified` names them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kaggle_orchestrator.client import Kaggle, Resign
from kaggle_orchestrator.errors import Damaged
from kaggle_orchestrator.models import Artifact, KernelRef, OutputListing
from kaggle_orchestrator.protocol import CHECKPOINTS, LEG_RESULT, FileDigest, LegResult
from kaggle_orchestrator.protocol.globs import matches
from kaggle_orchestrator.protocol.jsonable import Malformed
from kaggle_orchestrator.protocol.result import ResultState

DEFAULT_PATTERNS = ("best/**", "final/**", "final*", "kgo/**")
"""Best weights, exports, results and metrics; checkpoints only on request."""
_OURS = ("kgo/**",)
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Pulled:
    """What came of a version's output.

    Attributes:
        artifacts: The local files, in the output's order.
        result: What the session said of itself, or None if it said nothing.
        unverified: Names of artifacts whose sha256 the session didn't record: they are as long as their server said,
            and no more is known.
    """

    artifacts: tuple[Artifact, ...]
    result: LegResult | None
    unverified: tuple[str, ...] = ()


def pull(
    kaggle: Kaggle,
    ref: KernelRef,
    version: int,
    folder: Path,
    patterns: Sequence[str] = (),
    token: str | None = None,
) -> Pulled:
    """Download what the patterns match, and check it against the session's own record.

    It can be interrupted and repeated: a file that is there with the right sha256 isn't fetched again.

    Args:
        kaggle: The connection.
        ref: The kernel.
        version: Its version.
        folder: Where to; files get their names of the output below it.
        patterns: Globs over the output's names. None: best weights, exports, results and metrics; where the output
            has nothing of that kind, everything but checkpoints; where the session left no result, everything.
        token: The attempt whose result it must be; None takes any, or none at all.

    Raises:
        Damaged: Files are missing or differ from their record; those that are right are in place.
        UnsafeName: A name would leave the folder. Nothing was written.
        ArtifactError: The disk is full, or the folder can't be written.
        NotAccessible: There is no such version, or it isn't this account's.
        KaggleError: See :mod:`kaggle_orchestrator.errors`.
    """
    listing = kaggle.outputs(ref, version)

    def resign() -> dict[str, str]:
        return {f.name: f.url for f in kaggle.outputs(ref, version).files}

    result, digests = _record(kaggle, ref, version, listing, token, resign)
    there = listing.by_name
    names = [*there, *(n for n in digests if n not in there)]
    wanted = _wanted(names, patterns, result)
    missing = [n for n in wanted if n not in there]
    files = [there[n] for n in wanted if n in there]
    try:
        artifacts = kaggle.download(files, folder, digests, resign=resign)
    except Damaged as error:
        if not missing:
            raise
        raise _missing(ref, version, missing, error) from error
    if missing:
        raise _missing(ref, version, missing, None)
    return Pulled(artifacts, result, tuple(a.name for a in artifacts if a.name not in digests))


def _record(
    kaggle: Kaggle, ref: KernelRef, version: int, listing: OutputListing, token: str | None, resign: Resign
) -> tuple[LegResult | None, Mapping[str, FileDigest]]:
    """The session's result, and the digests it vouches for: its own file's always, the outputs' only when it is final.

    A result that is still ``running`` was written before its session's end: its outputs may have changed since.
    """
    file = listing.by_name.get(LEG_RESULT)
    if file is None:
        if token is None:
            return None, {}
        raise Damaged(f"{ref} v{version} has no result in its output ({LEG_RESULT}).", files=[LEG_RESULT])
    data = kaggle.read_file(file, resign)
    try:
        LegResult.loads(data)
    except Malformed:  # fetched once more, as any file that is damaged: it may have been the network
        data = kaggle.read_file(file, resign)
    try:
        result = LegResult.loads(data)
    except Malformed as error:
        raise Damaged(f"The result of {ref} v{version} can't be read: {error}", files=[LEG_RESULT]) from error
    if token is not None and result.token != token:
        raise Damaged(
            f"{ref} v{version} holds the result of another attempt (leg {result.leg}, attempt {result.attempt}).",
            files=[LEG_RESULT],
            hint="Somebody else pushed that version; kgo leaves it alone.",
        )
    outputs = result.outputs if result.state is ResultState.FINAL else {}
    return result, {**outputs, LEG_RESULT: FileDigest(hashlib.sha256(data).hexdigest(), len(data))}


def _wanted(names: Sequence[str], patterns: Sequence[str], result: LegResult | None) -> list[str]:
    if patterns:
        return [n for n in names if matches(n, patterns)]
    if result is None:
        return list(names)
    chosen = [n for n in names if matches(n, DEFAULT_PATTERNS)]
    if all(matches(n, _OURS) for n in chosen):  # a script that writes what it likes: its outputs are what is wanted
        return [n for n in names if not matches(n, [CHECKPOINTS])]
    return chosen


def _missing(ref: KernelRef, version: int, missing: Sequence[str], others: Damaged | None) -> Damaged:
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    message = f"The output of {ref} v{version} lacks {', '.join(missing[:_NAMED])}{more}, which its session recorded."
    return Damaged(
        f"{message} {others.message}" if others else message,
        files=sorted({*missing, *(others.files if others else ())}),
        hint="The files that are right are in place. Kaggle may need minutes to show an output: pull again.",
    )
