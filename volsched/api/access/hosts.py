"""By which names a server may be called: those in its certificate.

A browser that was talked into another name for our address (DNS rebinding), or a page of another origin, would
speak with the reader's client certificate.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from volsched.api.loopback import host_of, is_loopback


@dataclass(frozen=True, slots=True)
class Hosts:
    names: frozenset[str]
    """In lower case; `*.example.org` is any one label before the rest."""
    addresses: frozenset[ipaddress.IPv4Address | ipaddress.IPv6Address] = frozenset()

    def knows(self, host: str) -> bool:
        host = host.lower().removesuffix(".")
        try:
            return ipaddress.ip_address(host) in self.addresses
        except ValueError:
            return host in self.names or f"*.{host.partition('.')[2]}" in self.names


@dataclass(frozen=True, slots=True)
class LoopbackHosts:
    """Of a server without TLS."""

    def knows(self, host: str) -> bool:
        return is_loopback(host)


def names_us(headers: Sequence[tuple[bytes, bytes]], hosts: Hosts | LoopbackHosts) -> bool:
    """Does the request name this server, and come from no page of another?"""
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"host" and not hosts.knows(host_of(f"//{text}")):
            return False
        if name == b"origin" and not hosts.knows(host_of(text)):
            return False
    # What a page of another embeds, an image say, comes without an origin: it would be asked in its reader's name,
    # and recorded so. To follow a link to us is another matter.
    browser = dict(headers)
    return browser.get(b"sec-fetch-site") != b"cross-site" or browser.get(b"sec-fetch-mode") == b"navigate"
