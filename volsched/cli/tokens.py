"""`volsched token`: issues, lists and revokes tokens for the API."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.api.access.callers import NAMESPACED, Role, new_token
from volsched.api.access.kubeconfig import write_secret
from volsched.cli.console import Exit, Output, OutputOption, duration, fail, print_json, stderr
from volsched.cli.moment_option import local_time
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.output import Lines
from volsched.cli.store_option import Db, opened
from volsched.kube.names import dns_label_problem, dns_subdomain_problem
from volsched.log.tokens import NoTokenError, StoredToken, TokenTakenError, all_tokens, issue, revoke
from volsched.runtime.clock import rfc3339, system_clock

CREATE_EXAMPLES = """**Examples**

`volsched token create ci --role operator --namespace shop --expires 90d` prints it, once

`volsched token create grafana --role viewer --out grafana.token` writes it to a file that only you can read
"""
LIST_EXAMPLES = """**Examples**

`volsched token list` shows names, roles and when they end

`volsched token list -o json`
"""
REVOKE_EXAMPLES = """**Examples**

`volsched token revoke ci --reason "laptop lost"`; within seconds it is refused, and its watches end
"""
COLUMNS = ("NAME", "ROLES", "NAMESPACES", "STATE", "ISSUED", "BY", "EXPIRES")

app = typer.Typer(help="Issue, list and revoke tokens for the API.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name; for the role node, the node's.")]
Roles = Annotated[list[Role], typer.Option("--role", metavar="ROLE", help=f"{', '.join(Role)}; may be repeated.")]
Namespaces = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help=f"Only in this namespace; for {', '.join(sorted(NAMESPACED))}. May be repeated.",
    ),
]


@app.command(epilog=CREATE_EXAMPLES, no_args_is_help=True)
def create(
    name: NameArgument,
    role: Roles,
    namespace: Namespaces = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="D", help="How long it is valid: 12h, 90d; else forever.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there, readable by you alone, and do not show it."),
    ] = None,
    reason: Reason = None,
    db: Db = None,
) -> None:
    """Issue a token. It is shown once: the store keeps only its hash, and the log who issued it and why.

    Exit 7 if there is one of that name that can be used.
    """
    check_identity(name, role, namespace)
    if out is not None and not out.parent.is_dir():
        fail(Exit.USAGE, f"directory {out.parent} does not exist; create it, or name another file with --out")
    now, secret = system_clock(), new_token()
    until = None if expires is None else now + duration(expires)
    token = StoredToken(
        name=name,
        id=secret.id,
        hash=secret.hash,
        roles=tuple(dict.fromkeys(role)),
        namespaces=None if not namespace else tuple(dict.fromkeys(namespace)),
        issued_at=now,
        issued_by=actor("token"),
        expires_at=until,
    )
    with opened(db, creates=True) as database:
        try:
            issue(database, token, reason=checked_reason(reason))
        except TokenTakenError as error:
            fail(Exit.CONFLICT, str(error))
    if out is None:
        typer.echo(secret.text)
    else:
        save_secret(out, f"{secret.text}\n".encode())
    ends = "" if until is None else f" until {local_time(rfc3339(until))}"
    stderr.print(escape(f'token "{name}" is valid{ends}; it is not shown again'))


@app.command("list", epilog=LIST_EXAMPLES)
def list_tokens(db: Db = None, output: OutputOption = Output.table) -> None:
    """List tokens, without their secrets."""
    now = system_clock()
    with opened(db) as database, database.read() as connection:
        tokens = all_tokens(connection)
    if output is Output.json:
        items = [_as_json(it, now) for it in tokens]
        print_json({"apiVersion": "volsched.io/v1", "kind": "List", "items": items})
    elif not tokens:
        stderr.print("there are no tokens")
    else:
        Lines(COLUMNS).write([_cells(it, now) for it in tokens])


@app.command("revoke", epilog=REVOKE_EXAMPLES, no_args_is_help=True)
def revoke_token(name: NameArgument, reason: Reason = None, db: Db = None) -> None:
    """End a token. Exit 3 if there is none of that name."""
    with opened(db) as database:
        try:
            done = revoke(database, name, actor=actor("token"), now=system_clock(), reason=checked_reason(reason))
        except NoTokenError as error:
            fail(Exit.NOT_FOUND, str(error))
    typer.echo(f'token "{name}" is revoked' if done else f'token "{name}" was revoked before')


def check_identity(name: str, roles: Sequence[Role], namespaces: Sequence[str] | None) -> None:
    """Check the name, roles and namespaces of a new token or certificate."""
    if problem := dns_subdomain_problem(name):
        fail(Exit.USAGE, f'"{name}" cannot be a name: {problem}')
    for namespace in namespaces or ():
        if problem := dns_label_problem(namespace):
            fail(Exit.USAGE, f'"{namespace}" cannot be a namespace: {problem}')
    wide = [it for it in roles if it not in NAMESPACED]
    if namespaces and wide:
        fail(
            Exit.USAGE,
            f"role {wide[0]} is about the whole cluster; leave --namespace out, or give "
            f"{' or '.join(sorted(NAMESPACED))}",
        )


def save_secret(path: Path, content: bytes) -> None:
    try:
        write_secret(path, content)
    except OSError as error:
        fail(Exit.USAGE, f"{path} cannot be written: {error.strerror}; check the directory and its permissions")


def _state(token: StoredToken, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.usable(now) else "expired"


def _cells(token: StoredToken, now: int) -> list[str]:
    return [
        token.name,
        ",".join(token.roles),
        "-" if token.namespaces is None else ",".join(token.namespaces),
        _state(token, now),
        local_time(rfc3339(token.issued_at)),
        token.issued_by,
        "-" if token.expires_at is None else local_time(rfc3339(token.expires_at)),
    ]


def _as_json(token: StoredToken, now: int) -> dict[str, object]:
    return {
        "name": token.name,
        "id": token.id,
        "roles": token.roles,
        "namespaces": token.namespaces,
        "state": _state(token, now),
        "issuedAt": rfc3339(token.issued_at),
        "issuedBy": token.issued_by,
        "expiresAt": None if token.expires_at is None else rfc3339(token.expires_at),
        "revokedAt": None if token.revoked_at is None else rfc3339(token.revoked_at),
    }
