"""The host names that a server accepts: those of its certificate, without TLS only this machine's own."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

# The names of this machine: without TLS, only local programs are served, and no web page.
#
# Such a server listens on loopback only, as `kubectl proxy` does. A browser reaches that too, so requests
# addressed to another host (DNS rebinding), or sent by a page of another origin, are refused (`access.gate`).

LOCALHOST = "localhost"
LOCAL_ONLY = "only programs of this machine are served, under the names localhost, 127.0.0.1 and [::1]"


def is_loopback(host: str) -> bool:
    if host == LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def host_of(url: str) -> str:
    """The part between `//` and the port; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


# A browser misled to another name for our address (DNS rebinding), or a page of another origin, would use the
# reader's client certificate.


@dataclass(frozen=True, slots=True)
class Hosts:
    names: frozenset[str]
    """Host names in lower case; `*.example.org` matches any one label before the rest."""
    addresses: frozenset[ipaddress.IPv4Address | ipaddress.IPv6Address] = frozenset()

    def knows(self, host: str) -> bool:
        host = host.lower().removesuffix(".")
        try:
            return ipaddress.ip_address(host) in self.addresses
        except ValueError:
            return host in self.names or f"*.{host.partition('.')[2]}" in self.names


@dataclass(frozen=True, slots=True)
class LoopbackHosts:
    """The hosts of a server without TLS: names of this machine only."""

    def knows(self, host: str) -> bool:
        return is_loopback(host)


def names_us(headers: Sequence[tuple[bytes, bytes]], hosts: Hosts | LoopbackHosts) -> bool:
    """Whether the request names this server, and comes from no page of another origin."""
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"host" and not hosts.knows(host_of(f"//{text}")):
            return False
        if name == b"origin" and not hosts.knows(host_of(text)):
            return False
    # A request for embedded content, such as an image in a foreign page, has no origin header: it would be served,
    # and recorded, in its reader's name. Following a link to us is allowed.
    browser = dict(headers)
    return browser.get(b"sec-fetch-site") != b"cross-site" or browser.get(b"sec-fetch-mode") == b"navigate"
