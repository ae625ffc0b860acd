"""`volsched certs`: a small authority, and the certificates of servers and clients that it issues."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.api.access.callers import Role
from volsched.cli.console import Exit, fail
from volsched.cli.durations import duration
from volsched.cli.tokens import Namespaces, Roles, check_identity, save_secret
from volsched.runtime.settings import data_directory

if TYPE_CHECKING:
    from volsched.api.access.authority import Authority, Issued

INIT_EXAMPLES = """**Examples**

`volsched certs init` then `volsched certs server api.example.org 10.0.0.5`
"""
SERVER_EXAMPLES = """**Examples**

`volsched certs server api.example.org 10.0.0.5` writes server.crt and server.key
"""
CLIENT_EXAMPLES = """**Examples**

`volsched certs client kube-scheduler --role extender --expires 90d` writes kube-scheduler.crt and .key

`volsched certs client ada --role viewer --role operator --namespace shop`
"""
ALWAYS = ("localhost", "127.0.0.1", "::1")
LONGEST_NAME = 64
"""Of a CN."""

app = typer.Typer(help="Certificates for the API: an authority, servers, clients.", no_args_is_help=True)
Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Where the authority is, and files are written; else the user's."),
]
Expires = Annotated[str, typer.Option("--expires", metavar="D", help="After which it ends: 12h, 30d.")]


@app.command(epilog=INIT_EXAMPLES)
def init(directory: Directory = None) -> None:
    """Make an authority: ca.crt, for everybody, and ca.key, which must not leave your hands."""
    from volsched.api.access.authority import AuthorityError, make_authority

    where = certificates_directory(directory)
    try:
        make_authority(where)
    except AuthorityError as error:
        fail(Exit.CONFLICT, str(error))
    except OSError as error:
        fail(Exit.USAGE, f"{where} cannot be written: {error.strerror}; choose another with --dir")
    typer.echo(f"wrote {where / 'ca.crt'} and {where / 'ca.key'}")


@app.command(epilog=SERVER_EXAMPLES)
def server(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST…]", help="Names and addresses it is reached by, beside localhost."),
    ] = None,
    expires: Expires = "365d",
    directory: Directory = None,
) -> None:
    """Issue the certificate of a server: server.crt and server.key. Only the names in it are answered."""
    named = list(dict.fromkeys([*(hosts or ()), *ALWAYS]))
    if wrong := next((it for it in named if not it.isascii() or not it.strip() or "/" in it), None):
        fail(Exit.USAGE, f'"{wrong}" is neither a name nor an address of a host')
    where = certificates_directory(directory)
    issued = authority_in(where).for_server(named, lasts=lasting(expires))
    _write(where, "server", issued)


@app.command(epilog=CLIENT_EXAMPLES, no_args_is_help=True)
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user; for the role node, the node.")],
    role: Roles,
    namespace: Namespaces = None,
    expires: Expires = "30d",
    directory: Directory = None,
) -> None:
    """Issue a certificate that proves a user and their roles: NAME.crt and NAME.key.

    It cannot be revoked, only run out: keep it short, or give a token.
    """
    where = certificates_directory(directory)
    _write(where, name, issue_client(where, name, role, namespace, expires))


def issue_client(
    directory: Path, name: str, roles: list[Role], namespaces: list[str] | None, expires: str
) -> "Issued":
    from volsched.api.access.certificates import organizations

    check_identity(name, roles, namespaces)
    if len(name) > LONGEST_NAME:
        fail(Exit.USAGE, f'"{name}" is too long for a certificate; choose at most {LONGEST_NAME} characters')
    if name in ("ca", "server"):
        fail(Exit.USAGE, f'"{name}" is what other files are called here; choose another name')
    granted = organizations(dict.fromkeys(roles), namespaces or None)
    if wrong := next((it for it in granted if len(it) > LONGEST_NAME), None):
        fail(Exit.USAGE, f'"{wrong}" is too long for a certificate; give a token')
    return authority_in(directory).for_client(name, granted, lasts=lasting(expires))


def certificates_directory(given: Path | None) -> Path:
    return given or data_directory() / "certs"


def authority_in(directory: Path) -> "Authority":
    try:
        from volsched.api.access.authority import AuthorityError, load_authority
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[server]'")
    try:
        return load_authority(directory)
    except AuthorityError as error:
        fail(Exit.NOT_FOUND, str(error))


def lasting(text: str) -> timedelta:
    return timedelta(microseconds=duration(text))


def _write(directory: Path, name: str, issued: "Issued") -> None:
    save_secret(directory / f"{name}.key", issued.key)
    (directory / f"{name}.crt").write_bytes(issued.certificate)
    typer.echo(f"wrote {directory / f'{name}.crt'} and {directory / f'{name}.key'}")
