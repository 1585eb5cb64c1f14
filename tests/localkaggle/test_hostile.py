"""Nothing that arrives makes the server fail, is stored to make it fail later, or leads outside its folders."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kaggle_orchestrator.localkaggle.address import LocalServer
from kaggle_orchestrator.localkaggle.app import SERVICES
from kaggle_orchestrator.localkaggle.faultkinds import RPCS
from tests.localkaggle.client import Client

RAW = [
    b"",
    b"{",
    b"[1]",
    b"null",
    b'"x"',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"pageSize": NaN, "userName": "me"}',
    b'{"pageSize": 1e999}',
    b'{"id": ' + b"9" * 5000 + b"}",
    b"\xff\xfe",
    b'{"text": "\\ud800", "slug": "me/lone-surrogate", "newTitle": "lone surrogate", "language": "python", '
    b'"kernelType": "script"}',
    b'{"userName": "me\\u0000", "kernelSlug": "x"}',
]
SERVICE = {rpc: service for service, handlers in SERVICES.items() for rpc in handlers} | {
    "IntrospectToken": "security.OAuthService"
}
FIELDS = [
    *("slug", "newTitle", "text", "language", "kernelType", "userName", "kernelSlug", "ownerSlug", "datasetSlug"),
    *("versionLabel", "pageSize", "pageToken", "page", "id", "isPrivate", "enableGpu", "machineShape", "search"),
    *("sessionTimeoutSeconds", "kernelDataSources", "datasetDataSources", "filePath", "versionNumber", "token"),
    *("kernelSessionId", "group", "user", "competitionDataSources", "kernelExecutionType"),
    *("title", "licenseName", "files", "body", "name", "contentLength", "fileName", "datasetVersionNumber"),
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["me", "me/some-kernel", "some-kernel", "v1", "../..", "PROFILE", "script", "python", "\ud800"]),
    st.lists(st.text(max_size=8), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def test_faults_know_every_call() -> None:
    assert set(SERVICE) == RPCS


@pytest.mark.parametrize("rpc", sorted(RPCS))
def test_malformed_bodies_are_refused(client: Client, rpc: str) -> None:
    for body in RAW:
        response = client.http.post(f"{client.url}/v1/{SERVICE[rpc]}/{rpc}", data=body, timeout=30)
        assert response.status_code < 500, (rpc, body[:60], response.text)
        response.json()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rpc=st.sampled_from(sorted(RPCS)), fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
def test_no_fields_make_it_fail(client: Client, rpc: str, fields: dict[str, Any]) -> None:
    body = json.dumps(fields)  # lone surrogates travel as escapes
    response = client.http.post(f"{client.url}/v1/{SERVICE[rpc]}/{rpc}", data=body, timeout=30)
    assert response.status_code not in (500, 503), (rpc, fields, response.text)
    if rpc == "SaveKernel":
        assert client.post("ListKernels", {"group": "PROFILE"}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/_kgo/output/1001/../../../etc/passwd",
        "/_kgo/output/1001/%2e%2e/%2e%2e/world.sqlite?expires=99999999999&signature=x",
        "/_kgo/output/%2e%2e/x?expires=1&signature=",
        "/_kgo/output/" + "9" * 5000 + "/x?expires=1&signature=1",
        "/_kgo/output/1001/x?expires=%C2%B2&signature=%ff",
        "/v1/kernels/logs/stream/../../etc",
        "/v1/kernels/logs/stream/me/%00?versionLabel=%ff",
        "//etc/passwd",
        "/%ff%fe",
    ],
)
def test_paths_lead_nowhere(server: LocalServer, path: str) -> None:
    """Over a bare socket, since clients tidy such paths up."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), 10) as connection:
        request = (
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer kgo-local\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(request.encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    status = int(answer.split()[1])
    assert 400 <= status < 600
    assert status not in (500, 503)
    assert b"root:" not in answer
    assert b"SQLite" not in answer


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::bad", "localhost:99999999", ""])
def test_a_web_page_can_not_reach_it_through_a_name_of_its_own(client: Client, host: str) -> None:
    response = client.http.get(f"{client.url}/_kgo/health", headers={"Host": host, "X-Kgo-Admin": "1"}, timeout=30)
    assert response.status_code in (400, 403)


def test_admin_routes_want_a_header_that_a_web_page_can_not_send(client: Client) -> None:
    response = client.http.post(f"{client.url}/_kgo/stop", json={}, timeout=30)
    assert response.status_code == 403


def test_real_credentials_are_not_known(server: LocalServer) -> None:
    answer = Client(server.url).rpc("IntrospectToken", "security.OAuthService", token="KGAT_0123456789abcdef")
    assert answer == {"active": False}
    answer = Client(server.url).rpc("IntrospectToken", "security.OAuthService", token="kgo-local-acme")
    assert answer == {"active": True, "username": "acme"}
    assert Client(server.url, "KGAT_0123456789abcdef").post("ListKernels", {}).status_code == 401
