"""The stack of docker-compose.yml without Docker: the same commands, PostgreSQL and Redis of this machine.

`tests/stack/test_compose.py` compares the two; change a command in both.
"""

import socket
from dataclasses import replace
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from volsched.lab.stack.programs import (
    DATABASE,
    USER,
    WheelMissingError,
    commands_directory,
    find_redis,
    make_cluster,
    postgres_programs,
    system_user,
)
from volsched.lab.stack.services import (
    ROLES,
    Definition,
    Health,
    StackService,
    make_anchor_keys,
    make_store_secrets,
    write_definition,
)
from volsched.lab.stack.states import WantedState, want
from volsched.log.service_roles import SERVICES
from volsched.runtime.health_check import API_URL
from volsched.runtime.user_files import data_directory

API_PORT = 8700
HOST = "127.0.0.1"
SCALABLE = ("scheduler", "controller", "worker")
"""Services that can have several instances; others have their own port, data or task."""
UNSYNCED = ("fsync", "full_page_writes")
"""Switched off where power loss is no concern and all data is temporary: in tests. Not `synchronous_commit`:
without it a killed server forgets the commits of the last half second, and drills kill it."""


def default_directory() -> Path:
    return data_directory() / "stack"


def prepare(
    directory: Path,
    *,
    api_port: int = API_PORT,
    scale: dict[str, int] | None = None,
    durable: bool = True,
    imitation: bool = False,
) -> Definition:
    """Create what a stack needs to start, if it does not exist yet, and write its definition.

    Data, passwords and ports of an existing stack are kept. Raises WheelMissingError. `imitation` allows an
    imitation of Redis if there is no real one: for a demonstration, never for a measurement or a drill.
    """
    postgres, redis = postgres_programs(), find_redis(imitation=imitation)
    directory.mkdir(parents=True, exist_ok=True, mode=0o711)
    for name, mode in (("secrets", 0o700), ("redis", 0o700), ("run", 0o700), ("logs", 0o700)):
        (directory / name).mkdir(exist_ok=True, mode=mode)
    ports = _ports(directory)
    make_store_secrets(
        directory / "secrets",
        postgres=f"{HOST}:{ports['postgres']}",
        redis=f"{HOST}:{ports['redis']}",
        redis_data=str(directory / "redis"),
        bind=HOST,
    )
    make_anchor_keys(directory / "secrets")
    make_cluster(postgres, directory / "postgres", (directory / "secrets" / "postgres_password").read_text())
    definition = Definition(
        services=services(directory, ports=ports, api_port=api_port, durable=durable),
        path=(str(commands_directory()), str(postgres), str(redis.directory)),
        urls={
            "api": f"http://{HOST}:{api_port}",
            "postgres": f"postgresql://{USER}@{HOST}:{ports['postgres']}/{DATABASE}",
            "redis": f"redis://{HOST}:{ports['redis']}/0",
        },
        redis=redis.description,
        imitation=redis.imitation,
    )
    write_definition(directory / "stack.json", definition)
    want(directory, WantedState(scale or {}))
    return definition


def services(directory: Path, *, ports: dict[str, int], api_port: int, durable: bool) -> tuple[StackService, ...]:
    secrets, data = directory / "secrets", directory / "postgres"
    store = {
        service: {"VOLSCHED_DATABASE_URL_FILE": str(secrets / f"database_url.{service}")} for service in SERVICES
    }
    owner = {"VOLSCHED_DATABASE_URL_FILE": str(secrets / "database_url")}
    queue = {"VOLSCHED_REDIS_URL_FILE": str(secrets / "redis_url")}
    beat = {"VOLSCHED_HEARTBEAT_FILE": str(directory / "run" / "{instance}.heartbeat")}
    anchors = {
        "VOLSCHED_ANCHOR_DIRECTORY": str(directory / "anchors"),
        "VOLSCHED_ANCHOR_KEY_FILE": str(secrets / "anchor.key"),
    }
    settings = () if durable else tuple(word for name in UNSYNCED for word in ("-c", f"{name}=off"))
    ours = ("migrate", "redis")
    return (
        StackService(
            name="postgres",
            command=(
                "postgres", "-c", "max_connections=100", "-D", str(data), "-h", HOST, "-p", str(ports["postgres"]),
                "-c", "unix_socket_directories=", *settings,
            ),
            health=Health(
                command=("pg_isready", "-q", "-h", HOST, "-p", str(ports["postgres"]), "-U", USER, "-d", DATABASE)
            ),
            # Ends open transactions; committed data is safe.
            stop_signal="SIGINT",
            grace=60,
            user=system_user(),
        ),
        StackService(
            name="redis",
            command=("redis-server", str(secrets / "redis.conf")),
            # Through the environment: any user can read the arguments of a command.
            health=Health(command=(
                "sh", "-c",
                f'REDISCLI_AUTH="$(sed -n "s/^requirepass //p" {quote(str(secrets / "redis.conf"))})" '
                f"redis-cli -h {HOST} -p {ports['redis']} ping | grep -q PONG",
            )),
        ),
        StackService(
            name="migrate",
            command=("volsched", "migrate", "--roles", str(secrets / ROLES)),
            environment=owner,
            after=("postgres",),
            once=True,
        ),
        StackService(
            name="api",
            command=("volsched", "serve", "api", "--host", HOST, "--port", str(api_port)),
            environment={**store["api"], API_URL: f"http://{HOST}:{api_port}"},
            after=("migrate",),
            health=_health("api"),
        ),
        StackService(
            name="scheduler",
            command=("volsched", "serve", "scheduler"),
            environment={**store["scheduler"], **queue, **beat, "VOLSCHED_SCHEDULER_SHARE": "{number}/{count}"},
            after=ours,
            health=_health("scheduler"),
        ),
        StackService(
            name="controller",
            command=("volsched", "serve", "controller"),
            environment={**store["controller"], **queue, **beat, **anchors},
            after=ours,
            health=_health("controller"),
        ),
        StackService(
            name="worker",
            command=("celery", "-A", "workers.app", "worker", "--concurrency", "2", "--loglevel", "WARNING"),
            environment={
                **store["worker"], **queue, **beat, "VOLSCHED_INSTANCE": f"{directory.name}-{{instance}}",
            },
            after=ours,
            health=replace(_health("worker"), interval=30),
        ),
    )  # fmt: skip


def _health(service: str) -> Health:
    return Health(command=("python", "-m", "volsched.runtime.health_check", service))


def check_ports(definition: Definition) -> None:
    """Before anything is started: a service that cannot listen would restart endlessly.

    Raises WheelMissingError. If nothing of this stack runs, another program listens there.
    """
    for name, url in definition.urls.items():
        port = urlsplit(url).port or 0
        with socket.socket() as tried:
            # As the servers do: remains of an earlier connection do not matter.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((HOST, port))
            except OSError as error:
                why = f"port {port} of {HOST}, which {name} needs, is not available ({error.strerror})"
                remedy = "end what uses it" + (", or name another with --port" if name == "api" else "")
                raise WheelMissingError(f"{why}; {remedy}") from None


def _ports(directory: Path) -> dict[str, int]:
    """The previous ports, so that clients still find them; else any free ones.

    The secrets contain the previous ports: they are created first, and never change.
    """
    files = {"postgres": directory / "secrets" / "database_url", "redis": directory / "secrets" / "redis_url"}
    return {
        name: urlsplit(file.read_text()).port or free_port() if file.exists() else free_port()
        for name, file in files.items()
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port
