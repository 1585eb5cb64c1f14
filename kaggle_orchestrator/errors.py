"""Every error of the laptop's side, by *who must act*.

::

    KgoError                       (protocol)
    ├── UserError                  the person who called kgo
    │   ├── ConfigError            kgo.toml: all faults together
    │   ├── UsageError             the command line
    │   ├── RenderError            the kernel can't be made from these files
    │   ├── CredentialsError       no or refused credentials
    │   └── ForeignKernel          a kernel of that name isn't ours
    ├── KaggleError                Kaggle or the network
    │   ├── Refused                the push was refused, for good
    │   │   ├── SessionCap         too many sessions: wait
    │   │   ├── QuotaExhausted     weekly quota: wait for the refresh
    │   │   └── SourcesDropped     accepted, but without (some of) its sources
    │   ├── NotAccessible          403/404: no such kernel, or not yours
    │   ├── Throttled              429
    │   ├── Unavailable            5xx, network, timeout: nothing happened, or a read that can be repeated
    │   ├── UnclearPush            a push whose fate isn't known: read it back
    │   └── BadAnswer              an answer that can't be understood
    ├── ArtifactError              files that were pulled
    │   ├── Damaged                sha256 or size differs, or a file is missing
    │   └── UnsafeName             a name that would leave the target folder
    ├── JournalError               the journal can't be read or written
    ├── ChainError                 the chain can't go on without a person
    │   ├── ChainLive              a session is running
    │   └── Edited                 code or configuration changed in mid-chain
    └── LocalKaggleError           the local Kaggle can't start or be reached
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kaggle_orchestrator.protocol import KgoError


class UserError(KgoError):
    """The person who called kgo has to change something."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the configuration: ``path`` is dotted (``chain.retries``)."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(UserError):
    """``kgo.toml`` can't be used.

    Attributes:
        file: The file, as the user named it.
        faults: All of them.
    """

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__("\n".join([f"{file}: {count}", *(f"  {f}" for f in faults)]))
        self.file = file
        self.faults = tuple(faults)


class UsageError(UserError):
    """The command can't mean anything."""


class RenderError(UserError):
    """The kernel can't be made from these files."""


class CredentialsError(UserError):
    """There are no credentials, or Kaggle refused them."""


class ForeignKernel(UserError):
    """A kernel of that name exists and isn't this chain's."""


class KaggleError(KgoError):
    """Kaggle or the network."""


class Refused(KaggleError):
    """Kaggle refused a push; ``message`` holds its words."""


class SessionCap(Refused):
    """As many sessions run as the account may have.

    Attributes:
        limit: That many, if the message says so.
    """

    def __init__(self, message: str, *, limit: int | None = None) -> None:
        super().__init__(message, hint="It is pushed when a session ends.")
        self.limit = limit


class QuotaExhausted(Refused):
    """The weekly accelerator quota is used up, or reserved by running sessions.

    Attributes:
        reserved: It comes free by itself when running sessions end.
    """

    def __init__(self, message: str, *, reserved: bool = False, hint: str | None = None) -> None:
        usual = "It frees itself when a running session ends." if reserved else "Wait for the weekly refresh."
        super().__init__(message, hint=hint or usual)
        self.reserved = reserved


class SourcesDropped(Refused):
    """The push was accepted, but Kaggle dropped sources: the session runs without its data.

    Attributes:
        sources: Their names.
        version: The version that runs without them.
    """

    def __init__(self, message: str, *, sources: Sequence[str], version: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sources = tuple(sources)
        self.version = version


class NotAccessible(KaggleError):
    """403 or 404: Kaggle doesn't tell a kernel that isn't there from one that isn't yours."""


class Throttled(KaggleError):
    """Too many calls.

    Attributes:
        retry_after_s: Seconds to wait, if Kaggle said.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(KaggleError):
    """Kaggle couldn't be reached, or failed, on a call that is safe to repeat."""


class UnclearPush(KaggleError):
    """A push got no clear answer: it may have landed."""


class BadAnswer(KaggleError):
    """An answer that isn't what the API says it is."""


class ArtifactError(KgoError):
    """Something about pulled files."""


class Damaged(ArtifactError):
    """Files are missing or differ from their recorded sha256.

    Attributes:
        files: Their names.
    """

    def __init__(self, message: str, *, files: Sequence[str], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.files = tuple(files)


class UnsafeName(ArtifactError):
    """An output's name would leave the target folder."""


class JournalError(KgoError):
    """The journal (``.kgo/``) is damaged, newer than this kgo, or can't be written."""


class ChainError(KgoError):
    """The chain can't go on without a person."""


class ChainLive(ChainError):
    """A session of the chain is still running."""


class Edited(ChainError):
    """Code or configuration changed in mid-chain."""


class LocalKaggleError(KgoError):
    """The local Kaggle can't start or be reached."""
