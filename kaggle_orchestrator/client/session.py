"""HTTP sessions: no call is without a timeout, no ``.netrc`` is ever read, a loopback address gets no proxy."""

import logging
import re
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.auth import AuthBase

from kaggle_orchestrator import __version__
from kaggle_orchestrator.client.endpoint import Endpoint
from kaggle_orchestrator.client.policy import Policy

_QUERY = re.compile(r"\?\S*")


class NoAuth(AuthBase):
    """Sends no credentials. It must be an object: with None, requests would look into ``.netrc``."""

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        return r


class Session(requests.Session):
    """A session whose redirects never pick up credentials, and that never reads ``.netrc``."""

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Drop the credentials when a redirect leaves the host; take no others."""
        headers, old, new = prepared_request.headers, response.request.url, prepared_request.url
        if "Authorization" in headers and (old is None or new is None or self._leaves(old, new)):
            del headers["Authorization"]

    def _leaves(self, old: str, new: str) -> bool:
        return bool(self.should_strip_auth(old, new))  # type: ignore[no-untyped-call]


class TimeoutAdapter(HTTPAdapter):
    """An adapter that has a timeout even when the caller gives none."""

    def __init__(self, timeout: tuple[float, float], connections: int) -> None:
        self._timeout = timeout
        super().__init__(pool_connections=8, pool_maxsize=connections)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send, with the timeout."""
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self._timeout
        return super().send(request, *args, **kwargs)


class _HideQueries(logging.Filter):
    """Takes queries out of urllib3's debug log: a signed URL's query is its credential."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_QUERY.sub("?…", a) if isinstance(a, str) else a for a in record.args)
        return True


_HIDE = _HideQueries()


def open_session(
    endpoint: Endpoint, policy: Policy, auth: AuthBase | None = None, adapter: BaseAdapter | None = None
) -> Session:
    """A session with the policy's timeouts; ``auth`` None for signed URLs, which get no credentials.

    ``adapter`` takes the network's place: what answers lies in the same process.
    """
    logging.getLogger("urllib3.connectionpool").addFilter(_HIDE)  # adding it again changes nothing
    session = Session()
    session.auth = auth or NoAuth()
    session.trust_env = not endpoint.loopback
    session.headers["User-Agent"] = f"kaggle-orchestrator/{__version__}"
    adapter = adapter or TimeoutAdapter((policy.connect_s, policy.read_s), policy.connections)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session
