"""Finding credentials by the official client's rules; a secret is never in a repr or a message."""

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kaggle_orchestrator.errors import CredentialsError

LOCAL_TOKEN = "kgo-local"
"""What a local Kaggle takes for its user; a suffix ``-<name>`` makes it another one's."""
HINT = (
    "Create a token on kaggle.com (Settings › API) and put it into KAGGLE_API_TOKEN or ~/.kaggle/access_token; "
    "`--local` needs none."
)


@dataclass(frozen=True, slots=True)
class Token:
    """An access token; ``origin`` says where it was found."""

    value: str = field(repr=False)
    origin: str


@dataclass(frozen=True, slots=True)
class LegacyKey:
    """A user name and an API key."""

    username: str
    key: str = field(repr=False)
    origin: str


@dataclass(frozen=True, slots=True)
class Login:
    """What ``kaggle auth login`` left: a refresh token, and maybe an access token that is still good.

    Attributes:
        expires_at: Seconds since the epoch at which ``access`` ends; 0 without one.
        file: Where it lies.
    """

    refresh: str = field(repr=False)
    access: str = field(repr=False)
    expires_at: float
    username: str
    origin: str
    file: Path

    def renewed(self, access: str, expires_at: float) -> None:
        """Write a new access token down as the official client does; what else is in the file stays.

        Nothing is written when the file is another login's by now, or gone with a logout.

        Raises:
            OSError: It can't be written; nothing is left.
            ValueError, OverflowError: It ends at no moment.
            CredentialsError: The file can't be read any more.
        """
        moment = datetime.fromtimestamp(expires_at, UTC).isoformat()
        stored = _read_object(self.file)
        if stored.get("refresh_token") != self.refresh:
            return
        stored |= {"access_token": access, "access_token_expiration": moment}
        file = self.file.resolve()  # a link stays one
        beside = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
                json.dump(stored, out, indent=2)
            beside.replace(file)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


Credentials = Token | LegacyKey | Login


def secrets(credentials: Credentials) -> tuple[str, ...]:
    """The words that must not be shown."""
    match credentials:
        case Token():
            return (credentials.value,)
        case LegacyKey():
            basic = base64.b64encode(f"{credentials.username}:{credentials.key}".encode()).decode()
            return (credentials.key, basic)  # the second is how it's sent
        case Login():
            return tuple(s for s in (credentials.refresh, credentials.access) if s)


def local_credentials(environ: Mapping[str, str]) -> Token:
    """What a loopback address gets: never a real token, and nothing is read from a file."""
    token = environ.get("KAGGLE_API_TOKEN", "").strip()
    if token.startswith(LOCAL_TOKEN):
        return Token(_sendable(token, "KAGGLE_API_TOKEN"), "KAGGLE_API_TOKEN")
    return Token(LOCAL_TOKEN, "the local Kaggle's default")


def find_credentials(environ: Mapping[str, str]) -> Credentials:
    """The first of: access token, legacy key, OAuth login.

    Raises:
        CredentialsError: There are none, or what is there can't be used.
    """
    home = Path(environ.get("HOME") or Path.home())
    legacy = _legacy_file(environ, home)
    found = _token(environ, home) or _legacy_key(environ, legacy) or _login(home)
    if found is None:
        why = f"{legacy} holds no user name and key." if legacy.is_file() else "There are no Kaggle credentials."
        raise CredentialsError(why, hint=HINT)
    return found


def _token(environ: Mapping[str, str], home: Path) -> Token | None:
    if environ.get("KAGGLE_KERNEL_RUN_TYPE") and (inside := environ.get("KAGGLE_API_V1_TOKEN")):
        origin = "the file in KAGGLE_API_V1_TOKEN"  # inside a Kaggle session
        if text := _read(Path(inside), origin):
            return Token(_sendable(text, origin), origin)
    value = environ.get("KAGGLE_API_TOKEN", "").strip()
    if value:
        origin = "the file in KAGGLE_API_TOKEN"
        text = _read(Path(value), origin)
        if text is None:
            text, origin = value, "KAGGLE_API_TOKEN"
        # The official client looks no further for a token when the file is empty.
        return Token(_sendable(text, origin), origin) if text else None
    for name in ("access_token", "access_token.txt"):
        origin = f"~/.kaggle/{name}"
        if text := _read(home / ".kaggle" / name, origin):
            return Token(_sendable(text, origin), origin)
    return None


def _legacy_file(environ: Mapping[str, str], home: Path) -> Path:
    folder = environ.get("KAGGLE_CONFIG_DIR")
    if folder:
        return Path(folder) / "kaggle.json"
    if os.path.isdir(home / ".kaggle"):  # noqa: PTH112  # Path.is_dir raises where it may not look
        return home / ".kaggle" / "kaggle.json"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "kaggle" / "kaggle.json"


def _legacy_key(environ: Mapping[str, str], file: Path) -> LegacyKey | None:
    stored = _read_object(file)
    username = environ.get("KAGGLE_USERNAME") or stored.get("username")
    key = environ.get("KAGGLE_KEY") or stored.get("key")
    if not (isinstance(username, str) and isinstance(key, str) and username and key):
        return None
    origin = "KAGGLE_KEY" if environ.get("KAGGLE_KEY") else str(file)
    return LegacyKey(_sendable(username.strip(), origin), _sendable(key.strip(), origin), origin)


def _login(home: Path) -> Login | None:
    file = home / ".kaggle" / "credentials.json"
    stored = _read_object(file)
    refresh, access, username = (stored.get(k) or "" for k in ("refresh_token", "access_token", "username"))
    if not (isinstance(refresh, str) and isinstance(access, str) and isinstance(username, str) and refresh):
        return None
    origin = "~/.kaggle/credentials.json"
    expires = _seconds(stored.get("access_token_expiration")) if access else 0.0
    return Login(refresh, _sendable(access, origin) if access else "", expires, username, origin, file)


def _seconds(text: object) -> float:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _sendable(secret: str, origin: str) -> str:
    """A secret that can be sent in a header; checked here, since the HTTP library would quote it in its error."""
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise CredentialsError(f"What {origin} holds is not a Kaggle credential.", hint=HINT)
    return secret


def _read(path: Path, origin: str) -> str | None:
    """The stripped text of a file, or None if there is none of that name. ``path`` may be a token: it isn't shown."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except PermissionError as error:
        raise CredentialsError(f"No permission to read {origin}.", hint=HINT) from error
    except (OSError, ValueError):
        return None  # no such file, a folder, or a token that can't be a file's name (too long, a NUL)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_read(path, str(path)) or "{}")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
