"""Making the connection: which address, which credentials, which limits. Nothing is sent before the first call."""

import os
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kaggle_orchestrator.client.credentials import find_credentials, local_credentials
from kaggle_orchestrator.client.endpoint import parse_endpoint
from kaggle_orchestrator.client.kaggle import Kaggle
from kaggle_orchestrator.client.policy import Pace, Policy, Retry
from kaggle_orchestrator.client.session import open_session
from kaggle_orchestrator.clock import Clock, SystemClock
from kaggle_orchestrator.profile import Profile

if TYPE_CHECKING:
    from requests.adapters import BaseAdapter


def connect(
    endpoint: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    policy: Policy | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    adapter: "BaseAdapter | None" = None,
    profile: Profile | None = None,
) -> Kaggle:
    """A client for Kaggle, or for another address that speaks its API.

    A loopback address never gets real credentials: only a ``KAGGLE_API_TOKEN`` that begins with ``kgo-local``, or
    else ``kgo-local`` itself.

    Args:
        endpoint: ``http://127.0.0.1:8000``; None for Kaggle itself.
        environ: Where credentials are looked for, ``HOME`` included.
        policy: Timeouts and tries.
        clock: Waits between tries.
        rng: Jitter.
        adapter: Takes the network's place: a local Kaggle in the same process.
        profile: What was measured of that Kaggle.

    Raises:
        UsageError: The endpoint is no address.
        CredentialsError: There are no credentials.
    """
    where = parse_endpoint(endpoint)
    credentials = local_credentials(environ) if where.loopback else find_credentials(environ)
    clock = clock or SystemClock()
    policy = policy or Policy()
    retry = Retry(policy, clock, rng or random.Random())
    # The SDK takes 0.2 s to import, so only who connects pays for it.
    from kaggle_orchestrator.client.identity import Identity
    from kaggle_orchestrator.client.transport import Transport

    pace = Pace(policy, clock)
    identity = Identity(credentials, where, policy, clock, adapter, pace)
    transport = Transport(where, identity.auth, policy, clock, adapter, pace)
    files = open_session(where, policy, adapter=adapter)
    return Kaggle(where, transport, identity, files, retry, profile or Profile())
