"""`volsched certs` and `kubeconfig`: certificates of a small authority, and what clients need to reach the API."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.api.access.callers import Role, read_token
from volsched.api.access.kubeconfig import kubeconfig as kubeconfig_document
from volsched.cli.console import Exit, duration, fail, stderr
from volsched.cli.operator import user as this_user
from volsched.cli.tokens import Namespaces, Roles, check_identity, save_secret
from volsched.kube.manifest_reader import dump_manifests
from volsched.runtime.extras import missing
from volsched.runtime.user_files import data_directory

if TYPE_CHECKING:
    from volsched.api.access.tls import Authority, Issued


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
"""Characters of a common name in a certificate."""

app = typer.Typer(help="Certificates for the API: an authority, servers, clients.", no_args_is_help=True)
Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Directory of the authority and of new files; else the user's."),
]
Expires = Annotated[str, typer.Option("--expires", metavar="D", help="How long it is valid: 12h, 30d.")]


@app.command(epilog=INIT_EXAMPLES)
def init(directory: Directory = None) -> None:
    """Create an authority: ca.crt is public, ca.key must stay secret."""
    from volsched.api.access.tls import AuthorityError, make_authority

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
    """Issue the certificate of a server: server.crt and server.key. The server answers to these names only."""
    named = list(dict.fromkeys([*(hosts or ()), *ALWAYS]))
    if wrong := next((it for it in named if not it.isascii() or not it.strip() or "/" in it), None):
        fail(Exit.USAGE, f'"{wrong}" is neither a name nor an address of a host')
    where = certificates_directory(directory)
    issued = authority_in(where).for_server(named, lasts=lifetime(expires))
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

    It cannot be revoked: choose a short lifetime, or issue a token instead.
    """
    where = certificates_directory(directory)
    _write(where, name, issue_client(where, name, role, namespace, expires))


def issue_client(
    directory: Path, name: str, roles: list[Role], namespaces: list[str] | None, expires: str
) -> "Issued":
    from volsched.api.access.callers import organizations

    check_identity(name, roles, namespaces)
    if len(name) > LONGEST_NAME:
        fail(Exit.USAGE, f'"{name}" is too long for a certificate; choose at most {LONGEST_NAME} characters')
    if name in ("ca", "server"):
        fail(Exit.USAGE, f'"{name}" is the name of other files here; choose another one')
    granted = organizations(dict.fromkeys(roles), namespaces or None)
    if wrong := next((it for it in granted if len(it) > LONGEST_NAME), None):
        fail(Exit.USAGE, f'"{wrong}" is too long for a certificate; issue a token')
    return authority_in(directory).for_client(name, granted, lasts=lifetime(expires))


def certificates_directory(given: Path | None) -> Path:
    return given or data_directory() / "certs"


def authority_in(directory: Path) -> "Authority":
    try:
        from volsched.api.access.tls import AuthorityError, load_authority
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, missing(error.name, "server"))
    try:
        return load_authority(directory)
    except AuthorityError as error:
        fail(Exit.NOT_FOUND, str(error))


def lifetime(text: str) -> timedelta:
    return timedelta(microseconds=duration(text))


def _write(directory: Path, name: str, issued: "Issued") -> None:
    save_secret(directory / f"{name}.key", issued.key)
    (directory / f"{name}.crt").write_bytes(issued.certificate)
    typer.echo(f"wrote {directory / f'{name}.crt'} and {directory / f'{name}.key'}")


# `volsched kubeconfig`: what kubectl, or any client of Kubernetes, needs to reach the API.

EXAMPLES = """**Examples**

`volsched kubeconfig --out local.conf` for a server without TLS, on this machine

`volsched kubeconfig --server https://api.example.org:8700 --user ada --role operator --out ada.conf`

`volsched kubeconfig --server https://api.example.org:8700 --token-file ci.token > ci.conf`

`volsched token create ci --role viewer | volsched kubeconfig --server https://… --token-file - --out ci.conf`
"""


def kubeconfig(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="URL of the API.")
    ] = "http://127.0.0.1:8700",
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Issue a certificate to this user.")
    ] = None,
    role: Annotated[
        list[Role] | None,
        typer.Option("--role", metavar="ROLE", help=f"{', '.join(Role)}; with --user. May be repeated."),
    ] = None,
    namespace: Namespaces = None,
    expires: Expires = "30d",
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE|-", help="Or use this token; '-' is standard input."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="The CA certificate of the server; else ca.crt in --dir."),
    ] = None,
    directory: Directory = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there, readable by you alone; else it is printed."),
    ] = None,
) -> None:
    """Write a kubeconfig: for a server without TLS, with a token, or with a certificate that is issued for it.

    It contains the key or the token: anyone who can read it can do what its user can.
    """
    where = certificates_directory(directory)
    encrypted = server.startswith("https://")
    if not encrypted and not server.startswith("http://"):
        fail(Exit.USAGE, f'"{server}" is not the address of a server; write https://HOST:PORT')
    if user is not None and token_file is not None:
        fail(Exit.USAGE, "--user issues a certificate and --token-file needs none; give one of them")
    if (user is None) != (not role):
        fail(Exit.USAGE, "--user and --role go together: who it is, and what they may do")
    if (user is not None or token_file is not None) and not encrypted:
        fail(
            Exit.USAGE,
            f"{server} is served without TLS, where every caller is the local user; give an https:// URL",
        )
    if encrypted and user is None and token_file is None:
        fail(Exit.USAGE, "no user is named; give --user NAME --role ROLE, or --token-file FILE")
    default = namespace[0] if namespace else None
    if user is not None:
        issued = issue_client(where, user, role or [], namespace, expires)
        document = kubeconfig_document(
            server,
            user=user,
            ca=_authority(ca, where),
            certificate=issued.certificate,
            key=issued.key,
            namespace=default,
        )
    elif token_file is not None:
        token = _token(token_file)
        document = kubeconfig_document(
            server, user="token", ca=_authority(ca, where), token=token, namespace=default
        )
    else:
        document = kubeconfig_document(server, user=this_user())
    text = dump_manifests([document]).removeprefix("---\n")
    if out is None:
        typer.echo(text, nl=False)
        return
    save_secret(out, text.encode())
    stderr.print(f"wrote {out}; try: kubectl --kubeconfig {out} get pods -A", markup=False)


def _authority(given: Path | None, directory: Path) -> bytes:
    path = given or directory / "ca.crt"
    try:
        return path.read_bytes()
    except OSError as error:
        fail(Exit.USAGE, f"{path} cannot be read: {error.strerror}; give the CA of the server with --ca")


def _token(file: str) -> str:
    try:
        text = (sys.stdin.read() if file == "-" else Path(file).read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        fail(Exit.USAGE, f"{file} cannot be read: {why}; give the file of a token")
    if read_token(text) is None:
        # The content is not shown: it may be another secret.
        fail(Exit.USAGE, f"{file} holds no token of volsched; give what volsched token create has written")
    return text
