"""`volsched kubeconfig`: what kubectl, or any client of Kubernetes, needs to reach the API."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from volsched.api.access.callers import Role
from volsched.api.access.kubeconfig import kubeconfig as made_kubeconfig
from volsched.api.access.tokens import read_token
from volsched.cli.certs import Directory, Expires, certificates_directory, issue_client
from volsched.cli.console import Exit, fail, stderr
from volsched.cli.operator import user as this_user
from volsched.cli.tokens import Namespaces, save_secret
from volsched.kube.manifest_reader import dump_manifests

EXAMPLES = """**Examples**

`volsched kubeconfig --out local.conf` for a server without TLS, on this machine

`volsched kubeconfig --server https://api.example.org:8700 --user ada --role operator --out ada.conf`

`volsched kubeconfig --server https://api.example.org:8700 --token-file ci.token > ci.conf`

`volsched token create ci --role viewer | volsched kubeconfig --server https://… --token-file - --out ci.conf`
"""


def kubeconfig(
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Where the API is.")
    ] = "http://127.0.0.1:8700",
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Issue a certificate to them.")
    ] = None,
    role: Annotated[
        list[Role] | None,
        typer.Option("--role", metavar="ROLE", help=f"{', '.join(Role)}; with --user. May be given often."),
    ] = None,
    namespace: Namespaces = None,
    expires: Expires = "30d",
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE|-", help="Instead: a token; '-' is standard input.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Who vouches for the server; else ca.crt in --dir.")
    ] = None,
    directory: Directory = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there, for you alone; else it is printed."),
    ] = None,
) -> None:
    """Write a kubeconfig: of a server without TLS, for a token, or with a certificate that is issued for it.

    It holds the key or the token itself: whoever reads it can do what its user can.
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
            f"{server} is served without TLS, and there everybody is the local user; give an https:// URL",
        )
    if encrypted and user is None and token_file is None:
        fail(Exit.USAGE, "who is it for? give --user NAME --role ROLE, or --token-file FILE")
    default = namespace[0] if namespace else None
    if user is not None:
        issued = issue_client(where, user, role or [], namespace, expires)
        document = made_kubeconfig(
            server,
            user=user,
            ca=_authority(ca, where),
            certificate=issued.certificate,
            key=issued.key,
            namespace=default,
        )
    elif token_file is not None:
        token = _token(token_file)
        document = made_kubeconfig(server, user="token", ca=_authority(ca, where), token=token, namespace=default)
    else:
        document = made_kubeconfig(server, user=this_user())
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
        fail(Exit.USAGE, f"{path} cannot be read: {error.strerror}; give who vouches for the server with --ca")


def _token(file: str) -> str:
    try:
        text = (sys.stdin.read() if file == "-" else Path(file).read_text()).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        fail(Exit.USAGE, f"{file} cannot be read: {why}; give the file of a token")
    if read_token(text) is None:
        # What it is instead is not shown: it may be a secret of something else.
        fail(Exit.USAGE, f"{file} holds no token of volsched; give what volsched token create has written")
    return text
