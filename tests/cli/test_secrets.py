"""No credential is in anything that kgo writes: stdout, stderr, journal, outputs, kernels, the local Kaggle's home.

The commands run with every logger told to say all it can.
"""

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from kaggle_orchestrator.localkaggle import background
from tests.chain.local import TOY

TOKENS = {
    "env": "KGAT-planted-in-the-environment",
    "file": "KGAT-planted-in-a-token-file",
    "legacy": "planted-legacy-key-0123456789",
    "refresh": "planted-refresh-token-0123456789",
    "access": "planted-access-token-0123456789",
}
TOKENS["basic"] = base64.b64encode(f"ann:{TOKENS['legacy']}".encode()).decode()
LOUD = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(name)s %(levelname)s %(message)s", force=True)
from kaggle_orchestrator.cli import main
main()
"""


class Echo(BaseHTTPRequestHandler):
    """Answers every call with an error that holds the caller's credentials, in several forms."""

    protocol_version = "HTTP/1.1"
    seen: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        authorization = self.headers.get("Authorization", "")
        Echo.seen.append(authorization)
        status = (500, 429, 403, 401, 200)[len(Echo.seen) % 5]
        told = f"{authorization} {body.decode(errors='replace')}"
        form: object = {"code": status, "message": told}
        if len(Echo.seen) % 2:
            form = {"error": {"code": status, "message": told, "status": "X"}}
        if status == 200:
            form = {"failureMessage": told, "status": told} | ({"error": told} if len(Echo.seen) % 2 else {})
        data = json.dumps(form).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of such a server under this machine's own name, and the certificate to trust."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        pytest.skip(f"this machine's name {name} doesn't resolve")
    authority = trustme.CA()
    server = ThreadingHTTPServer((address, 0), Echo)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    bundle = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://{name}:{server.server_address[1]}", bundle
    server.shutdown()


def planted(home: Path) -> dict[str, str]:
    """An environment and a home that hold every kind of credential."""
    folder = home / ".kaggle"
    folder.mkdir(parents=True)
    (folder / "access_token").write_text(TOKENS["file"])
    (folder / "kaggle.json").write_text(json.dumps({"username": "ann", "key": TOKENS["legacy"]}))
    login = {"refresh_token": TOKENS["refresh"], "access_token": TOKENS["access"], "username": "ann"}
    (folder / "credentials.json").write_text(json.dumps(login))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KAGGLE_", "KGO_")) and "PROXY" not in k.upper()}
    return kept | {"HOME": str(home), "KAGGLE_API_TOKEN": TOKENS["env"], "KAGGLE_KEY": TOKENS["legacy"]}


def experiment(root: Path) -> Path:
    root.mkdir()
    shutil.copy(TOY, root / "train.py")
    tables = ['[kernel]\nslug = "keeps-secrets"', '[train]\nentry = "train.py"\nparams = { steps = 20, step_s = 0.0 }']
    (root / "kgo.toml").write_text("\n".join([*tables, '[chain]\nsession_limit = "20s"\nstop_before = "10s"\n']))
    return root


def run(environ: dict[str, str], *arguments: str | Path) -> tuple[int, str]:
    """Exit code and all that was said."""
    done = subprocess.run(
        [sys.executable, "-c", LOUD, *map(str, arguments)],
        env=environ, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def leaks(where: Path, said: str) -> list[str]:
    """Which credential is where."""
    found = [f"{kind} on the terminal" for kind, token in TOKENS.items() if token in said]
    for path in where.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found += [f"{kind} in {path}" for kind, token in TOKENS.items() if token.encode() in data]
    return found


def test_on_the_local_kaggle(tmp_path: Path) -> None:
    world = tmp_path / "written"
    environ = planted(tmp_path / "home") | {"KGO_HOME": str(world / "kgo"), "KGO_LOCAL": "1"}
    world.mkdir()
    exp, said = experiment(world / "exp"), ""
    try:
        for arguments in (
            ("check", exp),
            ("render", exp, "-o", world / "kernel"),
            ("run", exp),
            ("status", exp, "--json"),
            ("pull", exp, "-o", world / "pulled"),
            ("pull", "me/keeps-secrets", "-o", world / "again"),
            ("push", exp),
            ("local", "ps", "--json"),
        ):
            code, told = run(environ, *arguments)
            assert code in (0, 1), (arguments, told)
            said += told
    finally:
        background.stop(world / "kgo")
    assert (world / "pulled" / "final" / "state.txt").exists()
    assert leaks(world, said) == []
    assert leaks(tmp_path / "home", "") != [], "the search finds what is there"


@pytest.mark.parametrize("kind", ["env", "file", "legacy", "login"])
def test_at_a_kaggle_that_throws_credentials_back(tmp_path: Path, echo: tuple[str, Path], kind: str) -> None:
    url, bundle = echo
    world, home = tmp_path / "written", tmp_path / "home"
    world.mkdir()
    environ = planted(home) | {"KGO_ENDPOINT": url, "REQUESTS_CA_BUNDLE": str(bundle), "KGO_HOME": str(world / "kgo")}
    if kind != "env":
        del environ["KAGGLE_API_TOKEN"]
    if kind in ("legacy", "login"):
        (home / ".kaggle" / "access_token").unlink()
    if kind == "legacy":
        environ["KAGGLE_USERNAME"] = "ann"
    if kind == "login":
        del environ["KAGGLE_KEY"]
        (home / ".kaggle" / "kaggle.json").unlink()
    exp, said, before = experiment(world / "exp"), "", len(Echo.seen)
    for arguments in (("status", exp), ("run", exp, "--once"), ("push", exp), ("pull", "ann/x", "-o", world / "out")):
        code, told = run(environ, *arguments)
        assert code in (0, 1, 2), (arguments, told)
        assert "Traceback" not in told
        said += told
    assert len(Echo.seen) > before, "it was asked"
    assert said
    assert leaks(world, said) == []
