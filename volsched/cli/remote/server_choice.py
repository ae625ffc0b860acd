"""Which server a command talks to, if any; verbs that need the store itself end here if one was named."""

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from volsched.cli.console import Exit, fail
from volsched.cli.remote.server_options import ServerChoice, choice_of_command

if TYPE_CHECKING:
    from volsched.cli.remote.server import RemoteServer


def chosen_server(db: str | None = None) -> "RemoteServer | None":
    """The server that this command is to ask; None: it opens the store itself."""
    choice = choice_of_command()
    if choice.live or (choice.server is None and choice.kubeconfig is None and choice.context is None):
        return None
    if db is not None:
        if choice.by_environment:
            return None
        fail(Exit.USAGE, "--server and --db name two places; give one of them")
    return _server(choice)


def refuse_server(db: str | None) -> None:
    """Ends a command that needs the store itself, if a server was named."""
    if chosen_server(db) is None:
        return
    fail(
        Exit.USAGE,
        f"volsched {choice_of_command().verb} works on a store itself, not over HTTP; run it where that is, with "
        "--db URL, and without --server or VOLSCHED_SERVER",
    )


def _server(choice: ServerChoice) -> "RemoteServer":
    # Most commands open a store, and need none of it.
    from volsched.cli.remote.server import (
        Credentials,
        RemoteServer,
        default_kubeconfig,
        of_kubeconfig,
        read_secret,
    )

    if (choice.client_cert is None) != (choice.client_key is None):
        fail(Exit.USAGE, "--client-cert and --client-key go together; give both")
    names_file = choice.kubeconfig is not None or choice.context is not None
    credentials = (
        of_kubeconfig(choice.kubeconfig or default_kubeconfig(), choice.context) if names_file else Credentials()
    )
    url = (choice.server or credentials.server).rstrip("/")
    token = read_secret(choice.token_file) if choice.token_file is not None else credentials.token
    is_local = _check(url, token is not None)
    return RemoteServer(
        url=url,
        token=None if is_local and choice.token_file is None else token,
        ca_file=choice.ca_file or credentials.ca_file,
        ca_data=None if choice.ca_file is not None else credentials.ca_data,
        certificate=choice.client_cert or credentials.certificate,
        key=choice.client_key or credentials.key,
    )


def _check(url: str, with_token: bool) -> bool:
    """Whether it is plain http, which is refused beyond this machine: others could read what is sent."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.scheme not in ("http", "https") or parts.path or parts.query or parts.username:
        fail(Exit.USAGE, f'"{_without_password(url)}" is not the address of a server; write https://HOST:PORT')
    if parts.scheme == "https":
        return False
    if not _is_loopback(host):
        fail(Exit.USAGE, f"plain http is served on this machine alone; write https://{parts.netloc}")
    if with_token:
        fail(Exit.USAGE, f"{url} is served without TLS, where every caller is the local user; leave the token out")
    return True


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_password(url: str) -> str:
    """Without a password, which must not be printed."""
    return url.rpartition("@")[2][:80]
