"""The official SDK's HTTP client, pointed at any address and handing answers over undecoded, whatever their status."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import requests
from kagglesdk.kaggle_env import KaggleEnv
from kagglesdk.kaggle_http_client import KaggleHttpClient
from requests.adapters import BaseAdapter
from requests.auth import AuthBase

from kaggle_orchestrator.client.endpoint import Endpoint
from kaggle_orchestrator.client.policy import Pace, Policy
from kaggle_orchestrator.client.session import open_session
from kaggle_orchestrator.client.wire import Answer, answer_of, blocks
from kaggle_orchestrator.clock import Clock

_BLOCK = 1 << 16
_LARGEST = 1 << 29
"""Bytes of the largest answer that is read: a log is in it, and can be long."""


@dataclass(frozen=True, slots=True)
class _Setup:
    endpoint: Endpoint
    auth: AuthBase
    policy: Policy
    clock: Clock
    adapter: BaseAdapter | None


class Transport(KaggleHttpClient):  # type: ignore[misc]  # the SDK has no types
    """What the SDK's service clients call. They get an :class:`Answer` back instead of the SDK's decoded object."""

    def __init__(
        self,
        endpoint: Endpoint,
        auth: AuthBase,
        policy: Policy,
        clock: Clock,
        adapter: BaseAdapter | None = None,
        pace: Pace | None = None,
    ) -> None:
        # PROD is the form of the routes (`/v1/…`), whatever the address.
        super().__init__(env=KaggleEnv.PROD)
        self._setup = _Setup(endpoint, auth, policy, clock, adapter)
        self._pace = pace or Pace(policy, clock)
        self._endpoint = endpoint.url
        # The SDK doesn't look for credentials when the session is there.
        self._session = open_session(endpoint, policy, auth, adapter)
        self._session.headers["Content-Type"] = "application/json"

    def call(self, service_name: str, request_name: str, request: Any, response_type: Any = None) -> Answer:
        """Send one request and read the whole answer, whatever its status.

        Raises:
            requests.RequestException: There was no whole answer.
        """
        prepared = self._prepare_request(service_name, request_name, request)
        settings = self._session.merge_environment_settings(prepared.url, {}, None, None, None)
        settings["stream"] = True
        self._pace.wait()
        clock, limit = self._setup.clock, self._setup.policy.total_s
        started = clock.now()
        with self._session.send(prepared, allow_redirects=False, **settings) as response:
            body = bytearray()
            for block in blocks(response, _BLOCK):
                body += block
                if len(body) > _LARGEST:
                    raise requests.exceptions.ContentDecodingError(f"The answer is larger than {_LARGEST} bytes")
                if clock.now() - started > limit:
                    raise requests.exceptions.ReadTimeout(f"No whole answer within {limit:g} s")
            return answer_of(response, bytes(body), clock.now())

    @contextmanager
    def alone(self) -> Iterator["Transport"]:
        """A transport with a connection of its own and a push's patience.

        A kept-alive connection that the server closes in the same instant leaves a request's fate unknown.
        """
        setup = self._setup
        policy = replace(setup.policy, read_s=setup.policy.push_read_s, connections=1)
        transport = Transport(setup.endpoint, setup.auth, policy, setup.clock, setup.adapter, self._pace)
        try:
            yield transport
        finally:
            transport.close()

    def open(self, path: str, query: dict[str, str]) -> requests.Response:
        """The answer to a GET, whose body is still to be read.

        It may be a redirect's: Kaggle keeps what is finished in its storage, which gets no credentials.

        Raises:
            requests.RequestException: There is none.
        """
        self._pace.wait()
        headers = {"Accept": "text/event-stream, */*", "Content-Type": None}  # as the official client's
        return self._session.get(f"{self._endpoint}{path}", params=query, headers=headers, stream=True)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()
