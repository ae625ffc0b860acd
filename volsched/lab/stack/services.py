"""The parts of a stack, as plain values, and its passwords, URLs and certificates as files."""

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from volsched.api.access.callers import Role, organizations
from volsched.api.access.kubeconfig import kubeconfig, write_secret
from volsched.api.access.tls import load_authority, make_authority
from volsched.lab.stack.programs import DATABASE, USER
from volsched.log.integrity.anchors import make_keys
from volsched.log.service_roles import SERVICES, role_of

# The terms are those of a compose file, so that the same supervisor can run one written for Docker
# (`tests/stack/test_compose.py` does).

NUMBER, COUNT, INSTANCE = "{number}", "{count}", "{instance}"
"""Placeholders in an environment: the number of the instance, the count of instances, the instance's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A command that exits with 0 if the service works. Seconds throughout."""

    command: tuple[str, ...]
    interval: float = 10.0
    start_interval: float = 0.25
    """The interval until it was healthy once."""
    timeout: float = 60.0
    """Limit of the whole command. It limits the service's answer itself; starting it is slow on a busy machine."""
    retries: int = 3
    """So many failures in a row make a healthy service unhealthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackService:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    """Services that must be healthy, or done, before this one starts."""
    once: bool = False
    """It does its work and ends; only a failure is retried."""
    health: Health | None = None
    scale: int = 1
    stop_signal: str = "SIGTERM"
    grace: float = 30.0
    """Seconds from the stop signal to SIGKILL."""
    user: str | None = None
    """The system user that it runs as, if not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything the supervisor must know, as stored in `stack.json`."""

    services: tuple[StackService, ...]
    path: tuple[str, ...] = ()
    """Directories that are searched for commands before those of the environment."""
    urls: dict[str, str] = field(default_factory=dict)
    """The addresses of the services, for users; without passwords."""
    redis: str = ""
    """The implementation of Redis, its version, and its origin."""
    imitation: bool = False
    """Whether it is not a real Redis."""

    def service(self, name: str) -> StackService:
        return self.by_name()[name]

    def by_name(self) -> Mapping[str, StackService]:
        return {it.name: it for it in self.services}


class DefinitionError(ValueError):
    """The services cannot be started in any order; the message says why."""


def in_order(services: Iterable[StackService]) -> list[StackService]:
    """Every service after those it waits for. Raises DefinitionError if there is no such order."""
    left, ordered, ready = list(services), list[StackService](), set[str]()
    known = {it.name for it in left}
    for service in left:
        for name in service.after:
            if name not in known:
                raise DefinitionError(f'service {service.name} waits for "{name}", which is not part of the stack')
    while left:
        free = [it for it in left if ready.issuperset(it.after)]
        if not free:
            names = ", ".join(it.name for it in left)
            raise DefinitionError(f"these services wait for each other: {names}")
        ordered += free
        ready.update(it.name for it in free)
        left = [it for it in left if it.name not in ready]
    return ordered


def needing(services: Iterable[StackService], name: str) -> set[str]:
    """The services that could not start without this one, directly or indirectly."""
    them = set[str]()
    for service in in_order(services):
        if name in service.after or them.intersection(service.after):
            them.add(service.name)
    return them


def environment(service: StackService, *, number: int, count: int, path: Iterable[str]) -> dict[str, str]:
    """The environment of an instance: ours, without settings that were meant for us, and its own.

    Logging settings apply to all of them.
    """
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("VOLSCHED_") or key.startswith("VOLSCHED_LOG_")
    }
    names = {NUMBER: str(number), COUNT: str(count), INSTANCE: instance_name(service, number)}
    own = dict(service.environment)
    for placeholder, value in names.items():
        own = {key: text.replace(placeholder, value) for key, text in own.items()}
    searched = os.pathsep.join([*path, inherited.get("PATH", os.defpath)])
    return {**inherited, "PATH": searched, "PYTHONUNBUFFERED": "1", **own}


def instance_name(service: StackService, number: int) -> str:
    """`worker-2`."""
    return f"{service.name}-{number}"


_ADAPTER = TypeAdapter(Definition)


def write_definition(path: Path, definition: Definition) -> None:
    replace_file(path, _ADAPTER.dump_json(definition, indent=2))


def read_definition(path: Path) -> Definition:
    return _ADAPTER.validate_json(path.read_bytes())


def replace_file(path: Path, content: bytes) -> None:
    """Atomic: a reader finds the old content or the new one, and no other user can read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except OSError:
        # A full disk: every retry would leave another file.
        os.unlink(name)
        raise


# The passwords, URLs and certificates of a stack, as files: an environment is visible to too many.
#
# Created once. Existing ones stay, because PostgreSQL keeps the password that it was created with.

SERVER_NAMES = ("api", "localhost", "127.0.0.1", "::1")
ROLES = "database_roles"
"""The services' passwords, for `volsched migrate --roles`; each service has its own `database_url.SERVICE`."""
LASTS = timedelta(days=365)
_OF_A_LOOP = ("database_url", "redis_url")
FILES_OF = {
    "postgres": ("postgres_password",),
    "redis": ("redis.conf",),
    "migrate": ("database_url", ROLES),
    "api": ("database_url", "server.crt", "server.key", "ca.crt"),
    "scheduler": _OF_A_LOOP,
    "controller": (*_OF_A_LOOP, "anchor.key"),
    "worker": _OF_A_LOOP,
    "prometheus": ("ca.crt", "prometheus.crt", "prometheus.key"),
    "grafana": ("grafana_password",),
}
"""The files that each service of docker-compose.yml gets, and no others."""
READABLE = 0o444
"""Each container reads its own volume, as another user; no other container mounts it."""


def make_store_secrets(directory: Path, *, postgres: str, redis: str, redis_data: str, bind: str) -> None:
    """`postgres` and `redis` are HOST:PORT, as their clients reach them."""
    names = ("postgres_password", "database_url", "redis_url", "redis.conf")
    if not all((directory / name).exists() for name in names):
        _make_owner_and_queue(directory, names, postgres=postgres, redis=redis, redis_data=redis_data, bind=bind)
    if not (directory / ROLES).exists():
        passwords = {service: secrets.token_urlsafe(24) for service in SERVICES}
        for service, password in passwords.items():
            url = f"postgresql://{role_of(service)}:{password}@{postgres}/{DATABASE}"
            write_secret(directory / f"database_url.{service}", url.encode())
        lines = (f"{service} {password}\n" for service, password in passwords.items())
        # Last: while it is missing, all of them are created again.
        write_secret(directory / ROLES, "".join(lines).encode())


def _make_owner_and_queue(
    directory: Path, names: tuple[str, ...], *, postgres: str, redis: str, redis_data: str, bind: str
) -> None:
    password, queue = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    settings = (f"bind {bind}", f"port {redis.rpartition(':')[2]}", f"requirepass {queue}", 'save ""')
    contents = (
        password,
        f"postgresql://{USER}:{password}@{postgres}/{DATABASE}",
        f"redis://default:{queue}@{redis}/0",
        "\n".join([*settings, f'dir "{redis_data}"', ""]),
    )
    for name, content in zip(names, contents, strict=True):
        write_secret(directory / name, content.encode())


def make_anchor_keys(directory: Path) -> None:
    if not (directory / "anchor.key").exists():
        make_keys(directory / "anchor.key", directory / "anchor.pub")


def make_compose_secrets(directory: Path, *, port: int = 8700) -> None:
    """Everything that docker-compose.yml names, and a kubeconfig for the user who created it."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    make_store_secrets(directory, postgres="postgres:5432", redis="redis:6379", redis_data="/data", bind="0.0.0.0")
    if not (directory / "grafana_password").exists():
        write_secret(directory / "grafana_password", secrets.token_urlsafe(24).encode())
    make_anchor_keys(directory)
    if not (directory / "ca.crt").exists():
        make_authority(directory)
    authority = load_authority(directory)
    server = authority.for_server(SERVER_NAMES, lasts=LASTS)
    scraper = authority.for_client("prometheus", organizations([Role.VIEWER], None), lasts=LASTS)
    admin = authority.for_client("admin", organizations([Role.ADMIN], None), lasts=LASTS)
    for name, issued in (("server", server), ("prometheus", scraper)):
        write_secret(directory / f"{name}.crt", issued.certificate)
        write_secret(directory / f"{name}.key", issued.key)
    config = kubeconfig(
        f"https://localhost:{port}",
        user="admin",
        ca=authority.pem,
        certificate=admin.certificate,
        key=admin.key,
    )
    for it in directory.iterdir():
        it.chmod(0o400 if it.name == "ca.key" else READABLE)
    # JSON, which is YAML too.
    write_secret(directory / "admin.kubeconfig", orjson.dumps(config, option=orjson.OPT_INDENT_2))


def distribute_secrets(directory: Path, services: Path) -> None:
    """Copy the files of each service to `services/NAME`, for each existing directory."""
    for service, names in FILES_OF.items():
        if not (services / service).is_dir():
            continue
        for name in names:
            own = directory / f"{name}.{service}"
            target = services / service / name
            # An earlier run left it read-only.
            target.unlink(missing_ok=True)
            write_secret(target, (own if own.exists() else directory / name).read_bytes())
            target.chmod(READABLE)
