"""Which address, whose credentials: found by the official client's rules, never shown, never sent astray."""

import base64
import json
import os
import random
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from kaggle_orchestrator.client import Kaggle, connect
from kaggle_orchestrator.client.credentials import (
    Credentials,
    LegacyKey,
    Login,
    Token,
    find_credentials,
    local_credentials,
)
from kaggle_orchestrator.client.endpoint import Endpoint, parse_endpoint
from kaggle_orchestrator.client.identity import Identity
from kaggle_orchestrator.client.policy import Retry
from kaggle_orchestrator.client.session import open_session
from kaggle_orchestrator.client.transport import Transport
from kaggle_orchestrator.clock import FakeClock
from kaggle_orchestrator.errors import CredentialsError, NotAccessible, UsageError
from kaggle_orchestrator.models import KernelRef, OutputFile
from tests.client.conftest import QUICK
from tests.client.faulty import FaultyServer, answer

REF = KernelRef("me", "digits")
SECRET = "0123456789abcdef"
INTROSPECT = "/v1/security.OAuthService/IntrospectToken"
RENEW = "/v1/users.AccountService/GenerateAccessToken"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".kaggle").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "url", "loopback"),
    [
        (None, "https://api.kaggle.com", False),
        ("https://api.kaggle.com/", "https://api.kaggle.com", False),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("http://127.9.9.9", "http://127.9.9.9", True),
        ("http://[::1]:8000", "http://[::1]:8000", True),
        ("http://localhost:1/", "http://localhost:1", True),
        (" https://proxy.example:8443 ", "https://proxy.example:8443", False),
        ("https://127.0.0.1.example.org", "https://127.0.0.1.example.org", False),
    ],
)
def test_endpoints(text: str | None, url: str, loopback: bool) -> None:
    assert parse_endpoint(text) == Endpoint(url, loopback)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:8000",
        "ftp://127.0.0.1",
        "http://",
        "http://[::1",
        "http://127.0.0.1:port",
        "http://me:secret@127.0.0.1",
        "https://api.kaggle.com/v1",
        "https://api.kaggle.com?x=secret",
        "http://api.kaggle.com",
        "http://localhost.example.org",
        "http://0.0.0.0:8000",
    ],
)
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_endpoint(text)
    assert refused.value.hint
    assert "secret" not in str(refused.value)


def test_pages_for_a_person(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "KAGGLE_API_TOKEN": SECRET}
    with connect(environ=environ) as kaggle:
        assert kaggle.web_url(REF, 3) == "https://www.kaggle.com/code/me/digits"
        assert kaggle.endpoint == "https://api.kaggle.com"
    with connect("http://127.0.0.1:8000", environ=environ) as local:
        assert local.web_url(REF) == "http://127.0.0.1:8000/code/me/digits"


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_token_comes_first(home: Path) -> None:
    write(home / ".kaggle/access_token", "second\n")
    write(home / ".kaggle/access_token.txt", "third")
    write(home / ".kaggle/kaggle.json", {"username": "me", "key": "fourth"})
    write(home / ".kaggle/credentials.json", {"refresh_token": "fifth", "username": "me"})
    environ = {"HOME": str(home), "KAGGLE_API_TOKEN": " first\n"}
    order: list[Credentials] = [
        Token("first", "KAGGLE_API_TOKEN"),
        Token("second", "~/.kaggle/access_token"),
        Token("third", "~/.kaggle/access_token.txt"),
        LegacyKey("me", "fourth", str(home / ".kaggle/kaggle.json")),
        Login("fifth", "", 0.0, "me", "~/.kaggle/credentials.json", home / ".kaggle/credentials.json"),
    ]
    assert find_credentials(environ) == order[0]
    del environ["KAGGLE_API_TOKEN"]
    for expected, name in zip(order[1:], ["access_token", "access_token.txt", "kaggle.json", ""], strict=True):
        assert find_credentials(environ) == expected
        if name:
            (home / ".kaggle" / name).unlink()


def test_inside_a_kaggle_session_its_own_token_comes_first(home: Path) -> None:
    file = write(home / "token", "inside\n")
    environ = {"HOME": str(home), "KAGGLE_API_TOKEN": "outside", "KAGGLE_API_V1_TOKEN": str(file)}
    assert find_credentials(environ) == Token("outside", "KAGGLE_API_TOKEN")
    environ["KAGGLE_KERNEL_RUN_TYPE"] = "Batch"
    assert find_credentials(environ) == Token("inside", "the file in KAGGLE_API_V1_TOKEN")


def test_a_token_may_name_a_file(home: Path) -> None:
    file = write(home / "token", f"{SECRET}\n")
    found = find_credentials({"HOME": str(home), "KAGGLE_API_TOKEN": str(file)})
    assert found == Token(SECRET, "the file in KAGGLE_API_TOKEN")
    file.write_text("  \n")
    write(home / ".kaggle/access_token", "not looked at")
    with pytest.raises(CredentialsError, match="no Kaggle credentials"):
        find_credentials({"HOME": str(home), "KAGGLE_API_TOKEN": str(file)})


def test_a_token_too_long_for_a_file_name_is_a_token(home: Path) -> None:
    token = "e" * 5000
    assert find_credentials({"HOME": str(home), "KAGGLE_API_TOKEN": token}) == Token(token, "KAGGLE_API_TOKEN")


def test_the_legacy_key_from_all_its_places(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert find_credentials({"HOME": home, "KAGGLE_USERNAME": "me", "KAGGLE_KEY": SECRET}) == LegacyKey(
        "me", SECRET, "KAGGLE_KEY"
    )
    file = write(tmp_path / ".config/kaggle/kaggle.json", {"username": "xdg", "key": SECRET})
    assert find_credentials({"HOME": home}) == LegacyKey("xdg", SECRET, str(file))
    file = write(tmp_path / "elsewhere/kaggle.json", {"username": "dir", "key": SECRET})
    environ = {"HOME": home, "KAGGLE_CONFIG_DIR": str(file.parent)}
    assert find_credentials(environ) == LegacyKey("dir", SECRET, str(file))
    assert find_credentials({**environ, "KAGGLE_USERNAME": "other"}) == LegacyKey("other", SECRET, str(file))


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"username": "me"}', '{"username": 1, "key": 2}', "[" * 99999])
def test_a_broken_key_file_is_named(home: Path, content: str) -> None:
    file = write(home / ".kaggle/kaggle.json", content)
    with pytest.raises(CredentialsError, match=r"kaggle\.json holds no user name and key") as missing:
        find_credentials({"HOME": str(home)})
    assert str(file) in missing.value.message
    assert missing.value.hint


def test_no_credentials_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="no Kaggle credentials") as missing:
        connect(environ={"HOME": str(tmp_path)})
    assert missing.value.hint
    assert "KAGGLE_API_TOKEN" in missing.value.hint


@pytest.mark.parametrize("bad", ["two words", "line\nbreak", "täken", "nul\0"])
def test_what_cannot_be_sent_in_a_header_is_refused_unseen(home: Path, bad: str) -> None:
    for environ in (
        {"KAGGLE_API_TOKEN": bad},
        {"KAGGLE_USERNAME": "me", "KAGGLE_KEY": bad},
    ):
        with pytest.raises(CredentialsError) as refused:
            find_credentials({"HOME": str(home), **environ})
        assert bad not in str(refused.value)
        assert bad not in str(refused.value.hint)


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Root reads everything, so these tests give it up."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


def test_a_file_that_may_not_be_read(home: Path, request: pytest.FixtureRequest) -> None:
    write(home / ".kaggle/access_token", SECRET).chmod(0)
    request.getfixturevalue("ordinary_user")
    with pytest.raises(CredentialsError, match=r"No permission to read ~/\.kaggle/access_token"):
        find_credentials({"HOME": str(home)})


def test_no_repr_shows_a_secret(home: Path) -> None:
    write(home / ".kaggle/credentials.json", {"refresh_token": SECRET, "access_token": SECRET, "username": "me"})
    login = find_credentials({"HOME": str(home)})
    for credentials in (Token(SECRET, "x"), LegacyKey("me", SECRET, "x"), login):
        assert SECRET not in repr(credentials)
        assert SECRET not in str(credentials)


# What is sent where.


def real(server: FaultyServer, credentials: Credentials, clock: FakeClock) -> Kaggle:
    """A client that takes the test's server for Kaggle itself, so that it sends real credentials."""
    endpoint = Endpoint(server.url, loopback=False)
    identity = Identity(credentials, endpoint, QUICK, clock)
    transport = Transport(endpoint, identity.auth, QUICK, clock)
    return Kaggle(endpoint, transport, identity, open_session(endpoint, QUICK), Retry(QUICK, clock, random.Random(0)))


def authorization(server: FaultyServer) -> list[str | None]:
    return [seen.headers.get("authorization") for seen in server.seen]


@pytest.mark.parametrize("token", [SECRET, "", "  ", "KGO-LOCAL", "kgo_local"])
def test_a_loopback_address_never_gets_real_credentials(server: FaultyServer, home: Path, token: str) -> None:
    write(home / ".kaggle/access_token", SECRET)
    write(home / ".kaggle/kaggle.json", {"username": "real", "key": SECRET})
    environ = {"HOME": str(home), "KAGGLE_API_TOKEN": token, "KAGGLE_USERNAME": "real", "KAGGLE_KEY": SECRET}
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with connect(server.url, environ=environ) as kaggle:
        kaggle.status(REF, 1)
    assert authorization(server) == ["Bearer kgo-local"]


def test_a_local_token_makes_another_user(server: FaultyServer, tmp_path: Path) -> None:
    write(tmp_path / "kgo-local-acme", SECRET)  # a file of that name isn't read
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    environ = {"HOME": str(tmp_path), "KAGGLE_API_TOKEN": "kgo-local-acme"}
    with connect(server.url, environ=environ) as kaggle:
        kaggle.status(REF, 1)
    assert authorization(server) == ["Bearer kgo-local-acme"]
    assert local_credentials(environ) == Token("kgo-local-acme", "KAGGLE_API_TOKEN")


def test_a_bearer_token_and_its_owner(server: FaultyServer, clock: FakeClock) -> None:
    server.on(INTROSPECT, answer({"active": True, "username": "ann"}))
    with real(server, Token(SECRET, "x"), clock) as kaggle:
        assert kaggle.owner() == "ann"
        assert kaggle.owner() == "ann"
    (seen,) = server.seen
    assert seen.json == {"token": SECRET}
    assert seen.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, {"active": False}), (200, {}), (200, {"active": True}), (400, {}), (403, {}), (404, {}), (401, {})],
)
def test_a_token_that_is_not_good(server: FaultyServer, clock: FakeClock, status: int, body: object) -> None:
    server.on(INTROSPECT, answer(body, status))
    with real(server, Token(SECRET, "~/.kaggle/access_token"), clock) as kaggle, pytest.raises(CredentialsError) as bad:
        kaggle.owner()
    assert SECRET not in str(bad.value)
    assert bad.value.hint
    assert len(server.seen) == 1


def test_a_legacy_key_says_its_owner_itself(server: FaultyServer, clock: FakeClock) -> None:
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with real(server, LegacyKey("ann", "key", "x"), clock) as kaggle:
        assert kaggle.owner() == "ann"
        kaggle.status(REF, 1)
    assert authorization(server) == ["Basic YW5uOmtleQ=="]


def test_a_login_is_renewed_before_it_ends_and_written_down(
    server: FaultyServer, clock: FakeClock, tmp_path: Path
) -> None:
    file = write(tmp_path / "credentials.json", {"refresh_token": SECRET, "scopes": ["a"]})
    server.on(RENEW, answer({"token": "first", "expiresIn": 3600}), answer({"token": "second", "expiresIn": "3600"}))
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with real(server, Login(SECRET, "", 0.0, "ann", "x", file), clock) as kaggle:
        assert kaggle.owner() == "ann"
        for _ in range(2):
            kaggle.status(REF, 1)
        clock.sleep(3400)
        kaggle.status(REF, 1)
    assert authorization(server) == [None, "Bearer first", "Bearer first", None, "Bearer second"]
    assert server.calls(RENEW)[0].json["refreshToken"] == SECRET
    stored = json.loads(file.read_text())
    assert (stored["refresh_token"], stored["access_token"], stored["scopes"]) == (SECRET, "second", ["a"])
    assert stored["access_token_expiration"].endswith("+00:00")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if "credentials" in path.name] == ["credentials.json"]


def test_a_login_that_is_still_good_is_not_renewed(server: FaultyServer, clock: FakeClock, home: Path) -> None:
    stored = {
        "refresh_token": SECRET,
        "access_token": "stored",
        "access_token_expiration": "2027-01-15T09:00:00+00:00",
        "username": "ann",
    }
    write(home / ".kaggle/credentials.json", stored)
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with real(server, find_credentials({"HOME": str(home)}), clock) as kaggle:
        kaggle.status(REF, 1)
    assert authorization(server) == ["Bearer stored"]


def test_a_login_that_ended_says_so(server: FaultyServer, clock: FakeClock, tmp_path: Path) -> None:
    server.on(RENEW, answer({"code": 401, "message": "revoked"}, 401))
    login = Login(SECRET, "", 0.0, "ann", "x", tmp_path / "nowhere" / "credentials.json")
    with real(server, login, clock) as kaggle, pytest.raises(CredentialsError) as ended:
        kaggle.status(REF, 1)
    assert ended.value.hint == "Run `kaggle auth login` again."


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "netrc", "machine 127.0.0.1 login leaked password leaked\nmachine localhost login l password l\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.mark.usefixtures("netrc")
def test_no_netrc_not_even_after_a_redirect(server: FaultyServer, clock: FakeClock, tmp_path: Path) -> None:
    server.on("/other", answer(b"data"))
    server.on("/file", answer(b"", 302, {"Location": f"{server.url.replace('127.0.0.1', 'localhost')}/other"}))
    requests.get(f"{server.url}/file", timeout=5)
    assert [a and a.split()[0] for a in authorization(server)] == ["Basic", "Basic"]  # it would be sent
    server.seen.clear()
    with real(server, Token(SECRET, "x"), clock) as kaggle:
        (artifact,) = kaggle.download([OutputFile("data.txt", f"{server.url}/file")], tmp_path / "out", {})
    assert Path(artifact.path).read_bytes() == b"data"
    assert authorization(server) == [None, None]


def test_a_proxy_is_passed_by_on_loopback_only(
    server: FaultyServer, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with FaultyServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
        with connect(server.url, environ={"HOME": str(tmp_path)}) as kaggle:
            kaggle.status(REF, 1)
        assert (len(server.seen), len(proxy.seen)) == (1, 0)
        proxy.replies = dict(server.replies)
        with real(server, Token(SECRET, "x"), clock) as kaggle:
            kaggle.status(REF, 1)
        assert (len(server.seen), len(proxy.seen)) == (1, 1)


def test_connections_are_kept(server: FaultyServer, kaggle: Kaggle) -> None:
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    for _ in range(5):
        kaggle.status(REF, 1)
    assert len({seen.connection for seen in server.seen}) == 1


def test_neither_connecting_nor_importing_is_noisy_or_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, kaggle_orchestrator.client as c; assert 'kagglesdk' not in sys.modules;"
        "c.connect('http://127.0.0.1:9'); assert 'kagglesdk' in sys.modules and 'kaggle' not in sys.modules"
    )
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_a_login_asks_for_what_the_official_client_asks_for(
    server: FaultyServer, clock: FakeClock, tmp_path: Path
) -> None:
    server.on(RENEW, answer({"token": "first", "expiresIn": 3600}))
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with real(server, Login(SECRET, "", 0.0, "ann", "x", tmp_path / "gone.json"), clock) as kaggle:
        kaggle.status(REF, 1)
    (asked,) = server.calls(RENEW)
    assert asked.json == {"refreshToken": SECRET, "apiVersion": "API_VERSION_V1", "expirationDuration": "43200s"}


@pytest.mark.parametrize("stored", [None, {"refresh_token": "another's", "access_token": "its"}])
def test_a_login_that_is_gone_or_another_s_by_now_is_left_alone(
    server: FaultyServer, clock: FakeClock, tmp_path: Path, stored: object
) -> None:
    file = tmp_path / "credentials.json"
    if stored:
        write(file, stored)
    server.on(RENEW, answer({"token": "first", "expiresIn": 3600}))
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with real(server, Login(SECRET, "", 0.0, "ann", "x", file), clock) as kaggle:
        kaggle.status(REF, 1)
    assert (json.loads(file.read_text()) if file.exists() else None) == stored


def test_a_login_behind_a_link_keeps_its_link(tmp_path: Path) -> None:
    write(tmp_path / "kept" / "credentials.json", {"refresh_token": SECRET})
    (tmp_path / "credentials.json").symlink_to(tmp_path / "kept" / "credentials.json")
    Login(SECRET, "", 0.0, "ann", "x", tmp_path / "credentials.json").renewed("next", 1_800_000_000.0)
    assert (tmp_path / "credentials.json").is_symlink()
    assert json.loads((tmp_path / "kept" / "credentials.json").read_text())["access_token"] == "next"


def test_a_token_that_can_not_be_written_down_leaves_none_lying_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "credentials.json", {"refresh_token": SECRET})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        Login(SECRET, "", 0.0, "ann", "x", file).renewed("next", 1_800_000_000.0)
    assert [path.name for path in tmp_path.iterdir() if "credentials" in path.name] == ["credentials.json"]
    assert json.loads(file.read_text()) == {"refresh_token": SECRET}


@pytest.mark.parametrize("expires", [10**17, "999999999999999999", -1])
def test_a_token_that_ends_at_no_moment_is_used_all_the_same(
    server: FaultyServer, clock: FakeClock, tmp_path: Path, expires: object
) -> None:
    file = write(tmp_path / "credentials.json", {"refresh_token": SECRET})
    server.on(RENEW, answer({"token": "first", "expiresIn": expires}))
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with real(server, Login(SECRET, "", 0.0, "ann", "x", file), clock) as kaggle:
        kaggle.status(REF, 1)
    assert authorization(server)[-1] == "Bearer first"


def test_threads_renew_a_login_once(server: FaultyServer, clock: FakeClock, tmp_path: Path) -> None:
    server.on(RENEW, answer({"token": "first", "expiresIn": 3600}))
    server.rpc("GetKernelSessionStatus", answer({"status": "RUNNING"}))
    with real(server, Login(SECRET, "", 0.0, "ann", "x", tmp_path / "gone.json"), clock) as kaggle:
        threads = [threading.Thread(target=kaggle.status, args=(REF, 1)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.calls(RENEW)) == 1
    assert len(server.calls("GetKernelSessionStatus")) == 12


def test_a_legacy_key_is_a_secret_in_its_sent_form_too(server: FaultyServer, clock: FakeClock) -> None:
    sent = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    server.rpc("GetKernelSessionStatus", answer({"code": 403, "message": f"Basic {sent} and {SECRET}"}, 403))
    with real(server, LegacyKey("ann", SECRET, "x"), clock) as kaggle, pytest.raises(NotAccessible) as refused:
        kaggle.status(REF, 1)
    assert "Basic … and …" in str(refused.value)
