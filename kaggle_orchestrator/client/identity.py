"""Who calls: the credentials as a request carries them, and the user they belong to."""

import logging
import threading
from datetime import timedelta
from typing import Any

import requests
from kagglesdk.kaggle_http_client import KaggleHttpClient
from kagglesdk.security.services.oauth_service import OAuthClient
from kagglesdk.security.types.oauth_service import IntrospectTokenRequest
from kagglesdk.users.services.account_service import AccountClient
from kagglesdk.users.types.account_service import ApiVersion, GenerateAccessTokenRequest
from requests.adapters import BaseAdapter
from requests.auth import AuthBase, HTTPBasicAuth

from kaggle_orchestrator.client import answers
from kaggle_orchestrator.client.credentials import HINT, Credentials, LegacyKey, Login, Token, secrets
from kaggle_orchestrator.client.endpoint import Endpoint
from kaggle_orchestrator.client.policy import Pace, Policy
from kaggle_orchestrator.client.session import NoAuth
from kaggle_orchestrator.client.translate import Call, document, translated
from kaggle_orchestrator.client.transport import Transport
from kaggle_orchestrator.clock import Clock
from kaggle_orchestrator.errors import CredentialsError

log = logging.getLogger(__name__)

_RENEW_BEFORE_S = 300.0
_LASTS = timedelta(hours=12)
"""What the official client asks for."""


class Identity:
    """The caller's credentials.

    Attributes:
        auth: Puts them into a request.
    """

    def __init__(
        self,
        credentials: Credentials,
        endpoint: Endpoint,
        policy: Policy,
        clock: Clock,
        adapter: BaseAdapter | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._credentials = credentials
        self.auth: AuthBase
        match credentials:
            case Token():
                self.auth = KaggleHttpClient.BearerAuth(credentials.value)
            case LegacyKey():
                self.auth = HTTPBasicAuth(credentials.username, credentials.key)
            case Login():
                self.auth = _LoginAuth(credentials, Transport(endpoint, NoAuth(), policy, clock, adapter, pace), clock)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Words that no message may hold."""
        renewed = self.auth.current if isinstance(self.auth, _LoginAuth) else ""
        return tuple(s for s in (*secrets(self._credentials), renewed) if s)

    def username(self, transport: Transport) -> str:
        """Whose credentials these are. A legacy key says it itself, a token has to be asked for.

        Raises:
            CredentialsError: The token isn't good.
        """
        match self._credentials:
            case LegacyKey() | Login() if self._credentials.username:
                return self._credentials.username
            case Token():
                token, origin = self._credentials.value, self._credentials.origin
            case _:
                token, origin = self._bearer(), self._credentials.origin
        request = IntrospectTokenRequest()
        request.token = token
        call = Call("the account's name", secrets=self.secrets)
        with translated(call):
            answer = OAuthClient(transport).introspect_token(request)
        # Kaggle says "not active", or answers 400, 403 or 404: to the official client all the same.
        known = answer.status not in (400, 403, 404)
        name = answers.introspection(document(answer, call), call) if known else ""
        if not name:
            raise CredentialsError(f"Kaggle says that the token in {origin} is not valid (any more).", hint=HINT)
        return name

    def _bearer(self) -> str:
        assert isinstance(self.auth, _LoginAuth)
        return self.auth.token()


class _LoginAuth(AuthBase):
    """A bearer token that is renewed before it ends, and written into the file of `kaggle auth login`."""

    def __init__(self, login: Login, transport: Transport, clock: Clock) -> None:
        self._login = login
        self._transport = transport
        self._clock = clock
        self.current = login.access
        self._expires_at = login.expires_at
        self._lock = threading.Lock()

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self.token()}"
        return r

    def token(self) -> str:
        """A token that is good for some minutes; threads that need a new one get the same."""
        with self._lock:
            if not self.current or self._expires_at - self._clock.now() < _RENEW_BEFORE_S:
                self._renew()
            return self.current

    def _renew(self) -> None:
        call = Call("a new access token", secrets=secrets(self._login))
        request: Any = GenerateAccessTokenRequest()
        request.refresh_token = self._login.refresh
        request.api_version = ApiVersion.API_VERSION_V1
        request.expiration_duration = _LASTS
        try:
            with translated(call):
                answer = AccountClient(self._transport).generate_access_token(request)
            self.current, seconds = answers.access_token(document(answer, call), call)
        except CredentialsError as error:
            raise CredentialsError(
                f"The login in {self._login.origin} is not valid any more.", hint="Run `kaggle auth login` again."
            ) from error
        self._expires_at = self._clock.now() + seconds
        try:
            self._login.renewed(self.current, self._expires_at)
        except (OSError, ValueError, OverflowError, CredentialsError) as error:
            log.debug("The renewed access token can't be written down: %s", type(error).__name__)
        log.debug("The access token was renewed.")
