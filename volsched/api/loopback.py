"""Which names are this machine's own: without TLS, only its own programs are served, and no web page.

Such a server listens on loopback only, as `kubectl proxy` does. A browser reaches that too, so requests that were
addressed to another host (DNS rebinding), or that a page of another origin has sent, are refused (`access.gate`).
"""

import ipaddress
from urllib.parse import urlsplit

LOCALHOST = "localhost"
NOT_FOR_YOU = "only programs of this machine are served, under the names localhost, 127.0.0.1 and [::1]"


def is_loopback(host: str) -> bool:
    if host == LOCALHOST:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(url: str) -> str:
    """What stands between `//` and the port; empty where nothing does."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
