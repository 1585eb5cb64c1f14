"""Where Kaggle is: its own address, or another one that speaks the same API."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from kaggle_orchestrator.errors import UsageError
from kaggle_orchestrator.models import KernelRef

KAGGLE = "https://api.kaggle.com"
_KAGGLE_WEB = "https://www.kaggle.com"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked address: ``url`` has no path, no query and no credentials in it.

    Attributes:
        loopback: It never leaves this machine, so it gets neither real credentials nor a proxy.
    """

    url: str
    loopback: bool

    def page(self, ref: KernelRef) -> str:
        """The kernel's page for a person."""
        base = _KAGGLE_WEB if self.url == KAGGLE else self.url
        return f"{base}/code/{ref}"


def parse_endpoint(text: str | None) -> Endpoint:
    """Check an address; None is Kaggle itself.

    Raises:
        UsageError: It isn't one, or it would send credentials unencrypted over a network.
    """
    if text is None:
        return Endpoint(KAGGLE, loopback=False)
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError("The endpoint is not an address.", hint=_EXAMPLE) from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError("The endpoint is not an http or https address.", hint=_EXAMPLE)
    if parts.username is not None or parts.query or parts.fragment or parts.path.strip("/"):
        raise UsageError(f"The endpoint on {host} has more to it than scheme, host and port.", hint=_EXAMPLE)
    loopback = _is_loopback(host)
    if parts.scheme == "http" and not loopback:
        raise UsageError(
            f"The endpoint http://{host} would be sent credentials unencrypted.",
            hint="Use https, or 127.0.0.1 for a local Kaggle.",
        )
    shown = f"[{host}]" if ":" in host else host
    return Endpoint(f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else ""), loopback)


_EXAMPLE = "For example http://127.0.0.1:8000; leave KGO_ENDPOINT unset for Kaggle itself."


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
