"""Everything that can go wrong on the wire, as this package's errors; the only module that knows the HTTP library's.

Two promises: no message holds a secret or a signed URL's query, and a push that may have landed is never reported as
one that didn't (:class:`~kaggle_orchestrator.errors.UnclearPush` says "read it back").
"""

import http.client
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

import urllib3.exceptions as pool
from requests import exceptions as web

from kaggle_orchestrator.client.refusal import refusal
from kaggle_orchestrator.client.wire import Answer
from kaggle_orchestrator.errors import (
    BadAnswer,
    CredentialsError,
    KaggleError,
    NotAccessible,
    Throttled,
    Unavailable,
    UnclearPush,
)
from kaggle_orchestrator.protocol import KgoError

WIRE_ERRORS = (
    web.RequestException,
    pool.HTTPError,
    pool.ProxySchemeUnsupported,  # a mere ValueError
    http.client.HTTPException,
    OSError,
)
"""All that the HTTP library raises; it lets some of its layers' errors through as they are."""

_NETWORK_HINT = "Check the network; nothing was lost, the command can be repeated."
_PUSH_HINT = "The push may have landed: kgo reads the kernel back before it pushes again."
_KEY_HINT = "Create a new token on kaggle.com (Settings › API), or check that it is this account's."
_LONGEST_WORDS = 400


@dataclass(frozen=True, slots=True)
class Call:
    """One call, for its messages and for what its failure means.

    Attributes:
        what: Names it, after "for": ``the status of me/x v3``.
        push: It makes something, so a failure may have landed.
        secrets: Words that no message may hold.
    """

    what: str
    push: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)


@contextmanager
def translated(call: Call) -> Iterator[None]:
    """Raise what the HTTP library raises as this package's errors."""
    try:
        yield
    except WIRE_ERRORS as error:
        _scrub(error, call.secrets)
        raise from_exception(error, call) from error


def from_exception(error: BaseException, call: Call) -> KgoError:
    """The error that an exception of the HTTP library means for this call."""
    if isinstance(error, web.InvalidHeader):
        return CredentialsError("The credentials can't be sent in a header.", hint=_KEY_HINT)
    if isinstance(error, (web.MissingSchema, web.InvalidSchema, web.InvalidURL, web.URLRequired)):
        return BadAnswer(f"The address for {call.what} can't be used.")
    why = _why(error)
    if call.push and not _never_sent(error):
        return UnclearPush(f"No clear answer to {call.what}: {why}.", hint=_PUSH_HINT)
    return Unavailable(f"Kaggle couldn't be reached for {call.what}: {why}.", hint=_NETWORK_HINT)


def document(answer: Answer, call: Call) -> dict[str, Any]:
    """The JSON object in a good answer.

    Refusals that come as 200 with ``error`` set are a good answer here: only a push knows what they mean.

    Raises:
        KgoError: The answer isn't good; which one is a matter of status and body.
    """
    data, why = _parse(answer.body)
    status, message = answer.status, ""
    if isinstance(data, dict):
        code, message = _error_in(data)
        if code >= 400 and answer.status < 400:
            status = code  # the SDK knows this form: 200 with a code in the body
    if status >= 300 or status < 200:
        _fail(status, answer, words(message, call), call, page=_is_page(answer))
    if not isinstance(data, dict):
        raise bad_answer(call, why)
    if isinstance(data.get("error"), str) and data["error"] and not call.push:
        raise KaggleError(f"Kaggle refused {call.what}: {words(message, call)}")
    return data


def file_failure(answer: Answer, call: Call) -> KgoError:
    """The error behind a signed URL that didn't give its file."""
    if answer.status == 429 or (answer.status == 503 and "retry-after" in answer.headers):
        return _throttled(answer, call)
    if answer.status >= 500 or answer.status == 408:
        return Unavailable(f"{call.what} couldn't be fetched: its server answered {answer.status}.", hint=_NETWORK_HINT)
    return BadAnswer(f"{call.what} couldn't be fetched: its server answered {answer.status}.")


def bad_answer(call: Call, why: str) -> KgoError:
    """A JSON object that isn't what this call should bring."""
    if call.push:
        return UnclearPush(f"No clear answer to {call.what}: {why}.", hint=_PUSH_HINT)
    return BadAnswer(f"Kaggle's answer for {call.what} can't be read: {why}.")


def _fail(status: int, answer: Answer, message: str, call: Call, *, page: bool) -> NoReturn:
    said = f"{status}: {message}" if message else f"{status}"
    if status == 401:
        raise CredentialsError(f"Kaggle didn't accept the credentials for {call.what} ({said}).", hint=_KEY_HINT)
    if call.push and (status >= 500 or status == 408 or status < 400):
        raise UnclearPush(f"No clear answer to {call.what} ({said}).", hint=_PUSH_HINT)
    if page and status in (403, 404):  # a proxy or a portal in between: says nothing about the kernel
        raise Unavailable(f"Not Kaggle's API but a web page answered for {call.what} ({status}).", hint=_NETWORK_HINT)
    if call.push and not (status == 429 and _is_throttling(message)):
        raise refusal(message or f"no reason, status {status}", status, call.what)
    if status == 429 or (status == 503 and "retry-after" in answer.headers):
        raise _throttled(answer, call)
    if status >= 500 or status == 408:
        raise Unavailable(f"Kaggle failed on {call.what} ({said}).", hint=_NETWORK_HINT)
    if status in (403, 404):
        raise NotAccessible(f"Kaggle doesn't show {call.what} ({said}): it isn't there, or isn't this account's.")
    if status < 400:
        raise BadAnswer(f"Kaggle's answer for {call.what} is a redirect ({status}).")
    raise KaggleError(f"Kaggle refused {call.what} ({said}).")


def _throttled(answer: Answer, call: Call) -> Throttled:
    seconds = retry_after_s(answer.headers.get("retry-after"), answer.at)
    wait = f" {seconds:.0f} s" if seconds is not None else ""
    return Throttled(f"Kaggle asks to wait{wait} before {call.what}: too many calls.", retry_after_s=seconds)


def _is_throttling(message: str) -> bool:
    return "session count" not in message and "quota of" not in message


def retry_after_s(header: str | None, now: float) -> float | None:
    """Seconds that a ``Retry-After`` asks for, given as seconds or as a date; None if it doesn't say."""
    if not header:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d+)?", header.strip()):
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _parse(body: bytes) -> tuple[object, str]:
    """The JSON in a body, and why it isn't an object."""
    if not body.strip():
        return None, "it is empty"
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        start = body.lstrip()[:1]
        if start == b"<":
            return None, "it is a web page"
        return None, "it is broken off or not JSON" if start in b"{[" else "it is not JSON"
    return data, f"it is a JSON {type(data).__name__}, not an object"


def _error_in(data: Mapping[str, Any]) -> tuple[int, str]:
    """Code and message of both forms of error body; a bare ``error`` text is no code, it's a push's refusal."""
    inner = data.get("error")
    source = inner if isinstance(inner, dict) and inner else data
    code, message = source.get("code"), source.get("message")
    if source is inner and not isinstance(code, int):
        code = 500
    if not isinstance(message, str):
        message = inner if isinstance(inner, str) else ""
    return (code if isinstance(code, int) and not isinstance(code, bool) else 0), message


def _is_page(answer: Answer) -> bool:
    return "html" in answer.headers.get("content-type", "") or answer.body.lstrip()[:1] == b"<"


def words(text: str, call: Call) -> str:
    """Kaggle's words on one line, without control characters and secrets."""
    for secret in call.secrets:
        text = text.replace(secret, "…")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _LONGEST_WORDS else text[:_LONGEST_WORDS] + "…"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes, as urllib3 nests them.

    ``__context__`` isn't followed: it may lead to the error of another call that is just being handled.
    """
    yield error
    nested = [
        error.__cause__,
        getattr(error, "reason", None) if isinstance(error, pool.HTTPError) else None,
        *error.args,
    ]
    for one in nested:
        if isinstance(one, BaseException) and one is not error:
            yield from _chain(one)


def _never_sent(error: BaseException) -> bool:
    """Whether the request certainly didn't leave: the connection never stood."""
    before = (web.ConnectTimeout, web.ProxyError, pool.ProxySchemeUnsupported)
    if isinstance(error, before) or type(error) is web.InvalidJSONError:
        return True
    unsent = (pool.NewConnectionError, pool.ConnectTimeoutError, ssl.SSLCertVerificationError)
    return any(isinstance(e, unsent) for e in _chain(error))


def _why(error: BaseException) -> str:
    names = {type(e) for e in _chain(error)}

    def has(*kinds: type[BaseException]) -> bool:
        return any(issubclass(n, kinds) for n in names)

    if has(pool.NameResolutionError):
        return "its name can't be resolved"
    if has(ConnectionRefusedError):
        return "the connection was refused"
    if has(web.ProxyError, pool.ProxyError, pool.ProxySchemeUnsupported):
        return "the proxy doesn't let the call through"
    if has(web.SSLError, pool.SSLError):
        return "no trusted encrypted connection"
    if has(web.ConnectTimeout, pool.ConnectTimeoutError):
        return "no connection in time"
    if has(web.Timeout, pool.TimeoutError, TimeoutError):
        return "no answer in time"
    if has(web.ChunkedEncodingError, pool.IncompleteRead, web.ContentDecodingError, pool.DecodeError):
        return "the answer broke off"
    if has(ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
        return "the connection was cut"
    return f"the connection failed ({type(error).__name__})"


_URL_QUERY = re.compile(r"\?[^\s'\")]+")


def _scrub(error: BaseException, secrets: tuple[str, ...]) -> None:
    """Take signed URLs' queries and secrets out of the exceptions that a traceback will show."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen or not isinstance(one, WIRE_ERRORS):
            continue
        seen.add(id(one))
        one.args = tuple(_clean(a, secrets) if isinstance(a, str) else a for a in one.args)
        todo += [one.__context__, *_chain(one)]


def _clean(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "…")
    return _URL_QUERY.sub("?…", text)
