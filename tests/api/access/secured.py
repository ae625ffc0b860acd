"""A server that speaks TLS, on a free loopback port, with an authority of its own; and clients that it knows."""

import itertools
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
from starlette.applications import Starlette

from tests.support.patience import HANG_SECONDS
from tests.support.serving import in_thread
from volsched.api.access.callers import Role, new_token, organizations
from volsched.api.access.kubeconfig import kubeconfig, write_secret
from volsched.api.access.tls import Authority, Issued, load_tls
from volsched.api.limits import DEFAULT_LIMITS, Limits
from volsched.api.listener import Server, address, listen
from volsched.log.database import Database
from volsched.log.tokens import StoredToken, issue
from volsched.runtime.clock import system_clock

LONG = timedelta(hours=1)
_files = itertools.count()


def write_issued(directory: Path, issued: Issued, name: str = "") -> tuple[Path, Path]:
    name = name or f"issued-{next(_files)}"
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(issued.certificate)
    write_secret(key, issued.key)
    return certificate, key


def issue_token(
    database: Database,
    name: str,
    *roles: Role,
    namespaces: Sequence[str] | None = None,
    expires_at: int | None = None,
) -> str:
    made, now = new_token(), system_clock()
    issue(
        database,
        StoredToken(
            name=name,
            id=made.id,
            hash=made.hash,
            roles=roles,
            namespaces=None if namespaces is None else tuple(namespaces),
            issued_at=now,
            issued_by="cli/token/test",
            expires_at=expires_at,
        ),
    )
    return made.text


@dataclass
class Secured:
    url: str
    database: Database
    server: Server
    authority: Authority
    directory: Path
    clients: ExitStack

    @property
    def app(self) -> Starlette:
        app = self.server.config.app
        assert isinstance(app, Starlette)
        return app

    def trusting(self) -> ssl.SSLContext:
        """A client's side of TLS: it believes our authority, and no other."""
        return ssl.create_default_context(cadata=self.authority.pem.decode())

    def client(self, verify: ssl.SSLContext | None = None, **headers: str) -> httpx.Client:
        made = httpx.Client(
            base_url=self.url, verify=verify or self.trusting(), headers=headers, timeout=HANG_SECONDS
        )
        return self.clients.enter_context(made)

    def with_token(self, token: str) -> httpx.Client:
        return self.client(authorization=f"Bearer {token}")

    def with_certificate(
        self, name: str, *roles: Role, namespaces: Sequence[str] | None = None, lasts: timedelta = LONG
    ) -> httpx.Client:
        issued = self.authority.for_client(name, organizations(roles, namespaces), lasts=lasts)
        context = self.trusting()
        context.load_cert_chain(*write_issued(self.directory, issued))
        return self.client(context)

    def config_with_token(self, token: str) -> dict[str, object]:
        return kubeconfig(self.url, user="someone", ca=self.authority.pem, token=token)


@contextmanager
def secured(
    database: Database,
    authority: Authority,
    directory: Path,
    *,
    wake: Callable[[], None] = lambda: None,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Secured]:
    certificate, key = write_issued(
        directory, authority.for_server(["localhost", "127.0.0.1"], lasts=LONG), "server"
    )
    ca = directory / "ca.pem"
    ca.write_bytes(authority.pem)
    tls = load_tls(certificate, key, ca)
    listening = listen("127.0.0.1", 0, tls)
    with in_thread(database, listening, [], committed=wake, tls=tls, limits=limits) as started:
        url = address(listening, tls)
        trusting = ssl.create_default_context(cadata=authority.pem.decode())
        assert httpx.get(f"{url}/readyz", verify=trusting, timeout=HANG_SECONDS).text == "ok"
        with ExitStack() as clients:
            yield Secured(url, database, started[0], authority, directory, clients)
