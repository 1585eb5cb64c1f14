"""Every form of failure has its error, for reads and for pushes; none is forgotten, and none shows a secret."""

import http.client
import importlib
import logging
import pkgutil
import socket
import ssl
import traceback
from collections.abc import Callable
from pathlib import Path

import kagglesdk
import pytest
import urllib3.exceptions as pool
from requests import exceptions as web
from urllib3.response import HTTPResponse

from kaggle_orchestrator.client import Kaggle
from kaggle_orchestrator.client.translate import Call, from_exception, retry_after_s, translated
from kaggle_orchestrator.errors import (
    BadAnswer,
    CredentialsError,
    KaggleError,
    NotAccessible,
    QuotaExhausted,
    Refused,
    SessionCap,
    SourcesDropped,
    Throttled,
    Unavailable,
    UnclearPush,
)
from kaggle_orchestrator.models import KernelRef, OutputFile, PushRequest
from tests.client.faulty import FaultyServer, Reply, answer, broken, closed, hang, reset, trickle

REF = KernelRef("me", "digits")
PUSH = PushRequest(REF, "Digits", "print(1)\n")
HTML = b"<!DOCTYPE html><html><body>Service unavailable</body></html>"
JSON = {"Content-Type": "application/json"}


def google(code: int, message: str = "words", status: str = "X") -> dict[str, object]:
    return {"error": {"code": code, "message": message, "status": status}}


def plain(code: int, message: str = "words") -> dict[str, object]:
    return {"code": code, "message": message}


# What the server does, what a read makes of it, what a push makes of it.
WIRE: list[tuple[str, Reply, type[Exception], type[Exception]]] = [
    ("google-400", answer(google(400), 400), KaggleError, Refused),
    ("google-401", answer(google(401), 401), CredentialsError, CredentialsError),
    ("google-403", answer(google(403), 403), NotAccessible, Refused),
    ("google-404", answer(google(404), 404), NotAccessible, Refused),
    ("google-429", answer(google(429), 429), Throttled, Throttled),
    ("google-500", answer(google(500), 500), Unavailable, UnclearPush),
    ("google-503", answer(google(503), 503), Unavailable, UnclearPush),
    ("plain-400", answer(plain(400), 400), KaggleError, Refused),
    ("plain-401", answer(plain(401), 401), CredentialsError, CredentialsError),
    ("plain-403", answer(plain(403), 403), NotAccessible, Refused),
    ("plain-404", answer(plain(404), 404), NotAccessible, Refused),
    ("plain-409", answer(plain(409), 409), KaggleError, Refused),
    ("plain-429", answer(plain(429), 429), Throttled, Throttled),
    ("plain-500", answer(plain(500), 500), Unavailable, UnclearPush),
    ("plain-408", answer(plain(408), 408), Unavailable, UnclearPush),
    ("200-with-code-429", answer(plain(429)), Throttled, Throttled),
    ("200-with-code-500", answer(plain(500)), Unavailable, UnclearPush),
    ("200-with-code-403", answer(google(403)), NotAccessible, Refused),
    ("200-with-error-object", answer({"error": {"message": "odd"}}), Unavailable, UnclearPush),
    ("empty-401", answer(b"", 401), CredentialsError, CredentialsError),
    ("empty-403", answer(b"", 403), NotAccessible, Refused),
    ("empty-404", answer(b"", 404), NotAccessible, Refused),
    ("empty-500", answer(b"", 500), Unavailable, UnclearPush),
    ("html-403", answer(HTML, 403, {"Content-Type": "text/html"}), Unavailable, Unavailable),
    ("html-404", answer(HTML, 404), Unavailable, Unavailable),
    ("html-413", answer(HTML, 413), KaggleError, Refused),
    ("html-429", answer(HTML, 429), Throttled, Throttled),
    ("html-502", answer(HTML, 502), Unavailable, UnclearPush),
    ("html-200", answer(HTML), BadAnswer, UnclearPush),
    ("empty-200", answer(b""), BadAnswer, UnclearPush),
    ("half-json-200", answer(b'{"versionNumber": 3, "re', headers=JSON), BadAnswer, UnclearPush),
    ("text-200", answer(b"rate limit exceeded"), BadAnswer, UnclearPush),
    ("list-200", answer([1]), BadAnswer, UnclearPush),
    ("null-200", answer(b"null", headers=JSON), BadAnswer, UnclearPush),
    ("not-utf8-200", answer(b"\xff\xfe\xfd", headers=JSON), BadAnswer, UnclearPush),
    ("deep-200", answer(b"[" * 200_000, headers=JSON), BadAnswer, UnclearPush),
    ("status-is-no-text", answer({"status": 2, "versionNumber": "x"}), BadAnswer, UnclearPush),
    ("status-is-empty", answer({"status": "", "versionNumber": 0}), BadAnswer, UnclearPush),
    ("status-is-null", answer({"status": None, "versionNumber": None}), BadAnswer, UnclearPush),
    ("status-is-unknown", answer({"status": "SLEEPING", "versionNumber": True}), BadAnswer, UnclearPush),
    ("patient-503", answer(b"", 503, {"Retry-After": "1"}), Throttled, UnclearPush),
    ("200-with-error-text", answer({"error": "words", "status": "RUNNING"}), KaggleError, Refused),
    ("empty-object-200", answer({}), BadAnswer, UnclearPush),
    ("redirect", answer(b"", 302, {"Location": "/elsewhere"}), BadAnswer, UnclearPush),
    ("hang", hang, Unavailable, UnclearPush),
    ("trickle", trickle, Unavailable, UnclearPush),
    ("reset", reset, Unavailable, UnclearPush),
    ("closed", closed, Unavailable, UnclearPush),
    ("broken-body", broken(b'{"versionNumber": 3}', 9), Unavailable, UnclearPush),
    ("broken-body-reset", broken(b'{"versionNumber": 3}', 9, reset=True), Unavailable, UnclearPush),
    ("bad-gzip", answer(b"not gzip", headers={"Content-Encoding": "gzip"}), Unavailable, UnclearPush),
]


@pytest.mark.parametrize(("reply", "read", "push"), [w[1:] for w in WIRE], ids=[w[0] for w in WIRE])
def test_what_comes_over_the_wire(
    server: FaultyServer, ticking: Kaggle, reply: Reply, read: type[Exception], push: type[Exception]
) -> None:
    server.rpc("GetKernelSessionStatus", reply)
    server.rpc("SaveKernel", reply)
    with pytest.raises(KaggleError if read is not CredentialsError else read) as reading:
        ticking.status(REF, 3)
    with pytest.raises(KaggleError if push is not CredentialsError else push) as pushing:
        ticking.push(PUSH)
    assert type(reading.value) is read
    assert type(pushing.value) is push
    assert "me/digits" in str(reading.value)
    assert len(server.calls("SaveKernel")) == 1
    repeats = 3 if read in (Throttled, Unavailable, BadAnswer) else 1
    assert len(server.calls("GetKernelSessionStatus")) == repeats


def test_nobody_there_is_no_unclear_push(nobody: Kaggle) -> None:
    with pytest.raises(Unavailable, match="refused") as pushing:
        nobody.push(PUSH)
    assert pushing.value.hint
    assert isinstance(pushing.value.__cause__, web.ConnectionError)


def test_an_error_that_is_being_handled_elsewhere_does_not_make_a_push_clear(
    server: FaultyServer, kaggle: Kaggle, nobody: Kaggle
) -> None:
    server.rpc("SaveKernel", reset)
    try:
        nobody.status(REF, 1)
    except Unavailable:
        with pytest.raises(UnclearPush):
            kaggle.push(PUSH)


REFUSALS: list[tuple[str, type[Refused], int | None]] = [
    ("Maximum batch GPU session count of 2 reached.", SessionCap, 2),
    ("Maximum batch CPU session count of 5 reached.", SessionCap, 5),
    ("Maximum weekly GPU quota of 30.00 hours reached.", QuotaExhausted, None),
    ("Maximum weekly GPU quota of 60.00 hours reached.", QuotaExhausted, None),
    (
        "Session cannot start because currently running sessions are projected to exceed maximum weekly GPU quota "
        "of 30. Stop a session first.",
        QuotaExhausted,
        None,
    ),
    ("Notebook not found", Refused, None),
    ("The requested title is already in use by a notebook. Please choose another title.", Refused, None),
    ("The kernel source must be less than 1 megabytes in size.", Refused, None),
    ("Phone verification is required to use a GPU.", Refused, None),
]


SAID = [
    pytest.param(status, *refused, id=f"{status}-{refused[0][:32]}")
    for status in (200, 400, 403, 409, 429)
    for refused in REFUSALS
    if status != 429 or refused[1] is not Refused  # 429 without a cap's words is throttling
]


@pytest.mark.parametrize(("status", "words", "kind", "limit"), SAID)
def test_refusals_in_kaggles_words(
    server: FaultyServer, kaggle: Kaggle, status: int, words: str, kind: type[Refused], limit: int | None
) -> None:
    body = {"error": words} if status == 200 else plain(status, words)
    server.rpc("SaveKernel", answer(body, status))
    with pytest.raises(Refused) as refused:
        kaggle.push(PUSH)
    assert type(refused.value) is kind
    assert words in refused.value.message
    assert refused.value.hint
    assert getattr(refused.value, "limit", None) == limit


def test_an_unknown_refusal_keeps_kaggles_words(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("SaveKernel", answer({"error": "The moon is in\n the \x1b[31mwrong house."}))
    with pytest.raises(Refused, match=r"The moon is in the .*wrong house\.") as refused:
        kaggle.push(PUSH)
    assert "\x1b" not in str(refused.value)


# Exceptions of the HTTP library, what a read makes of them, what a push makes of them.
RAISED: dict[type[BaseException], tuple[type[Exception], type[Exception]]] = {
    web.RequestException: (Unavailable, UnclearPush),
    web.InvalidJSONError: (Unavailable, Unavailable),
    web.JSONDecodeError: (Unavailable, UnclearPush),
    web.HTTPError: (Unavailable, UnclearPush),
    web.ConnectionError: (Unavailable, UnclearPush),
    web.ProxyError: (Unavailable, Unavailable),
    web.SSLError: (Unavailable, UnclearPush),
    web.Timeout: (Unavailable, UnclearPush),
    web.ConnectTimeout: (Unavailable, Unavailable),
    web.ReadTimeout: (Unavailable, UnclearPush),
    web.URLRequired: (BadAnswer, BadAnswer),
    web.TooManyRedirects: (Unavailable, UnclearPush),
    web.MissingSchema: (BadAnswer, BadAnswer),
    web.InvalidSchema: (BadAnswer, BadAnswer),
    web.InvalidURL: (BadAnswer, BadAnswer),
    web.InvalidHeader: (CredentialsError, CredentialsError),
    web.InvalidProxyURL: (BadAnswer, BadAnswer),
    web.ChunkedEncodingError: (Unavailable, UnclearPush),
    web.ContentDecodingError: (Unavailable, UnclearPush),
    web.StreamConsumedError: (Unavailable, UnclearPush),
    web.RetryError: (Unavailable, UnclearPush),
    web.UnrewindableBodyError: (Unavailable, UnclearPush),
    http.client.IncompleteRead: (Unavailable, UnclearPush),
    http.client.RemoteDisconnected: (Unavailable, UnclearPush),
    ConnectionResetError: (Unavailable, UnclearPush),
    TimeoutError: (Unavailable, UnclearPush),
    OSError: (Unavailable, UnclearPush),
    pool.HTTPError: (Unavailable, UnclearPush),
    pool.ProtocolError: (Unavailable, UnclearPush),
    pool.IncompleteRead: (Unavailable, UnclearPush),
    pool.DecodeError: (Unavailable, UnclearPush),
    pool.ReadTimeoutError: (Unavailable, UnclearPush),
    pool.NewConnectionError: (Unavailable, Unavailable),
    pool.NameResolutionError: (Unavailable, Unavailable),
    pool.ConnectTimeoutError: (Unavailable, Unavailable),
    pool.LocationParseError: (Unavailable, UnclearPush),
    pool.SSLError: (Unavailable, UnclearPush),
    pool.BodyNotHttplibCompatible: (Unavailable, UnclearPush),
    pool.ClosedPoolError: (Unavailable, UnclearPush),
    pool.EmptyPoolError: (Unavailable, UnclearPush),
    pool.FullPoolError: (Unavailable, UnclearPush),
    pool.HeaderParsingError: (Unavailable, UnclearPush),
    pool.HostChangedError: (Unavailable, UnclearPush),
    pool.InvalidChunkLength: (Unavailable, UnclearPush),
    pool.InvalidHeader: (Unavailable, UnclearPush),
    pool.LocationValueError: (Unavailable, UnclearPush),
    pool.MaxRetryError: (Unavailable, UnclearPush),
    pool.PoolError: (Unavailable, UnclearPush),
    pool.ProxyError: (Unavailable, UnclearPush),
    pool.ProxySchemeUnknown: (Unavailable, UnclearPush),
    pool.RequestError: (Unavailable, UnclearPush),
    pool.ResponseError: (Unavailable, UnclearPush),
    pool.ResponseNotChunked: (Unavailable, UnclearPush),
    pool.TimeoutError: (Unavailable, UnclearPush),
    pool.TimeoutStateError: (Unavailable, UnclearPush),
    pool.URLSchemeUnknown: (Unavailable, UnclearPush),
    pool.UnrewindableBodyError: (Unavailable, UnclearPush),
    pool.ProxySchemeUnsupported: (Unavailable, Unavailable),
    http.client.HTTPException: (Unavailable, UnclearPush),
    http.client.BadStatusLine: (Unavailable, UnclearPush),
    http.client.CannotSendHeader: (Unavailable, UnclearPush),
    http.client.CannotSendRequest: (Unavailable, UnclearPush),
    http.client.ImproperConnectionState: (Unavailable, UnclearPush),
    http.client.InvalidURL: (Unavailable, UnclearPush),
    http.client.LineTooLong: (Unavailable, UnclearPush),
    http.client.NotConnected: (Unavailable, UnclearPush),
    http.client.ResponseNotReady: (Unavailable, UnclearPush),
    http.client.UnimplementedFileMode: (Unavailable, UnclearPush),
    http.client.UnknownProtocol: (Unavailable, UnclearPush),
    http.client.UnknownTransferEncoding: (Unavailable, UnclearPush),
}
MAKE: dict[type[BaseException], Callable[[], BaseException]] = {
    web.JSONDecodeError: lambda: web.JSONDecodeError("no", "doc", 0),
    http.client.IncompleteRead: lambda: http.client.IncompleteRead(b"x"),
    pool.IncompleteRead: lambda: pool.IncompleteRead(1, 2),
    pool.ReadTimeoutError: lambda: pool.ReadTimeoutError(None, "u", "m"),  # type: ignore[arg-type]
    pool.NewConnectionError: lambda: pool.NewConnectionError(None, "m"),  # type: ignore[arg-type]
    pool.NameResolutionError: lambda: pool.NameResolutionError("h", None, socket.gaierror("g")),  # type: ignore[arg-type]
    pool.LocationParseError: lambda: pool.LocationParseError("where"),
    pool.ClosedPoolError: lambda: pool.ClosedPoolError(None, "m"),  # type: ignore[arg-type]
    pool.EmptyPoolError: lambda: pool.EmptyPoolError(None, "m"),  # type: ignore[arg-type]
    pool.FullPoolError: lambda: pool.FullPoolError(None, "m"),  # type: ignore[arg-type]
    pool.PoolError: lambda: pool.PoolError(None, "m"),  # type: ignore[arg-type]
    pool.RequestError: lambda: pool.RequestError(None, "u", "m"),  # type: ignore[arg-type]
    pool.MaxRetryError: lambda: pool.MaxRetryError(None, "u"),  # type: ignore[arg-type]
    pool.HostChangedError: lambda: pool.HostChangedError(None, "u"),  # type: ignore[arg-type]
    pool.HeaderParsingError: lambda: pool.HeaderParsingError([], None),
    pool.InvalidChunkLength: lambda: pool.InvalidChunkLength(HTTPResponse(b""), b"x"),
    pool.ProxyError: lambda: pool.ProxyError("m", OSError("x")),
    pool.ProxySchemeUnknown: lambda: pool.ProxySchemeUnknown("x"),
    pool.URLSchemeUnknown: lambda: pool.URLSchemeUnknown("x"),
    http.client.BadStatusLine: lambda: http.client.BadStatusLine("x"),
    http.client.LineTooLong: lambda: http.client.LineTooLong("x"),
    http.client.UnknownProtocol: lambda: http.client.UnknownProtocol("x"),
}


@pytest.mark.parametrize("kind", RAISED, ids=lambda k: f"{k.__module__.split('.')[0]}.{k.__name__}")
def test_what_the_http_library_raises(kind: type[BaseException]) -> None:
    error = MAKE.get(kind, kind)()
    read, push = RAISED[kind]
    assert type(from_exception(error, Call("x"))) is read
    assert type(from_exception(error, Call("x", push=True))) is push
    with pytest.raises(push) as raised, translated(Call("x", push=True)):
        raise error
    assert raised.value.__cause__ is error


def all_below(kind: type[BaseException]) -> set[type[BaseException]]:
    below = set(kind.__subclasses__())
    return below.union(*(all_below(k) for k in below))


def test_no_exception_of_requests_is_forgotten() -> None:
    known = {k for k in {web.RequestException, *all_below(web.RequestException)} if k.__module__ == web.__name__}
    assert known - set(RAISED) == set(), "requests has a new exception: say what it means for a read and for a push"


def test_no_exception_below_requests_is_forgotten() -> None:
    below = {k for k in all_below(Exception) if not issubclass(k, Warning)}
    raised = {k for k in below if k.__module__ in (pool.__name__, http.client.__name__)}
    assert len(raised) > 40, "the search finds them"
    assert raised - set(RAISED) == set(), "there is a new exception: say what it means for a read and for a push"


def test_the_sdk_has_no_exception_of_its_own() -> None:
    for module in pkgutil.walk_packages(kagglesdk.__path__, "kagglesdk."):
        if not module.name.startswith("kagglesdk.test"):
            importlib.import_module(module.name)
    own = {k.__qualname__ for k in all_below(BaseException) if k.__module__.startswith("kagglesdk")}
    assert own == set(), "the SDK has an exception now: client/translate.py must know it"


def test_a_certificate_that_is_not_trusted_means_nothing_was_sent() -> None:
    inner = pool.MaxRetryError(None, "/v1", pool.SSLError(ssl.SSLCertVerificationError("self-signed")))  # type: ignore[arg-type]
    error = web.SSLError(inner)
    assert type(from_exception(error, Call("x", push=True))) is Unavailable


def test_a_failure_of_the_tls_record_layer_is_unclear() -> None:
    inner = pool.MaxRetryError(None, "/v1", pool.SSLError(ssl.SSLError("bad record mac")))  # type: ignore[arg-type]
    assert type(from_exception(web.SSLError(inner), Call("x", push=True))) is UnclearPush


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        ("1.5", 1.5),
        ("soon", None),
        ("-3", None),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, 1_800_000_000.0) == seconds


def test_neither_secrets_nor_signatures_are_shown(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("GetKernelSessionStatus", answer(plain(403, "kgo-local may not see that"), 403))
    with pytest.raises(NotAccessible) as refused:
        kaggle.status(REF, 1)
    assert "kgo-local" not in str(refused.value)


@pytest.mark.parametrize("key", ["status", "failureMessage"])
def test_a_secret_in_an_answer_s_words_is_not_shown(server: FaultyServer, kaggle: Kaggle, key: str) -> None:
    server.rpc("GetKernelSessionStatus", answer({"status": "ERROR", key: "Bearer kgo-local"}))
    try:
        said = kaggle.status(REF, 1).failure_message
    except BadAnswer as unknown:
        said = str(unknown)
    assert "Bearer …" in said
    assert "kgo-local" not in said


def test_a_secret_in_the_answer_to_a_push_is_not_shown(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("SaveKernel", answer({"versionNumber": 1, "url": "/code/me/digits?t=kgo-local"}))
    assert "kgo-local" not in kaggle.push(PUSH).url
    server.rpc("SaveKernel", answer({"versionNumber": 1, "invalidKernelSources": ["Bearer kgo-local"]}))
    with pytest.raises(SourcesDropped) as dropped:
        kaggle.push(PUSH)
    assert "kgo-local" not in f"{dropped.value} {dropped.value.sources}"


def test_a_signed_urls_query_is_in_no_message_no_traceback_and_no_log(
    nobody: Kaggle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "".join(["s3", "cret"])
    file = OutputFile("model.pt", f"{nobody.endpoint}/file?X-Signature={secret}")
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable) as raised:
        nobody.download([file], tmp_path, {})
    cause = raised.value.__cause__
    assert isinstance(cause, web.ConnectionError)
    assert "/file?" in str(cause)  # it's the exception that holds the URL
    assert secret not in "".join(traceback.format_exception(raised.value)) + repr(raised.value) + repr(file)
    with caplog.at_level(logging.DEBUG), FaultyServer() as server:
        url = server.on("/file", answer(b"x")) + f"?X-Signature={secret}"
        nobody.download([OutputFile("model.pt", url)], tmp_path, {})
    assert "GET /file" in caplog.text
    assert secret not in caplog.text
