"""docker-compose.yml as local processes: its services' own commands, environments and health checks.

Everything that differs between a container and this machine is in `Local.here`.
"""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from volsched.lab.stack.local import free_port
from volsched.lab.stack.programs import (
    commands_directory,
    find_redis,
    make_cluster,
    postgres_programs,
    system_user,
)
from volsched.lab.stack.services import Definition, Health, StackService, write_definition
from volsched.lab.stack.states import WantedState, want

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
SECONDS = {"s": 1.0, "m": 60.0}
UNSYNCED = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def started_by_default() -> dict[str, dict[str, Any]]:
    """The services of no profile, those of `docker compose up`, but for the one that makes the others' secrets."""
    return {name: it for name, it in compose()["services"].items() if "profiles" not in it and name != "secrets"}


@dataclass
class Local:
    directory: Path
    ports: dict[str, int] = field(default_factory=lambda: {it: free_port() for it in ("5432", "6379", "8700")})

    def here(self, text: str, service: str = "") -> str:
        """What a word of the file means on this machine, to a service."""
        places = {
            "$$": "$",
            "${VOLSCHED_HOST_PATH:-}": "",
            "/run/secrets/": f"{self.directory / 'services' / service}/",
            "/secrets": str(self.directory / "secrets"),
            "/services": str(self.directory / "services"),
            "/tmp/": f"{self.directory / 'run'}/{{instance}}-",
            "/data": str(self.directory / "redis"),
            "/anchors": str(self.directory / "anchors"),
            # There are no other machines that could be reached by name, and nobody else shall reach us.
            "@postgres:": "@127.0.0.1:",
            "@redis:": "@127.0.0.1:",
            "0.0.0.0": "127.0.0.1",
            **{inside: str(port) for inside, port in self.ports.items()},
        }
        # All at once: what one of them has put there is not for the others to change.
        return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], text)

    def service(self, name: str, it: dict[str, Any]) -> StackService:
        environment = {key: self.here(value, name) for key, value in it.get("environment", {}).items()}
        command = tuple(self.here(word, name) for word in it["command"])
        if name == "postgres":
            # The image's entry point makes the cluster, and says where it is.
            command += ("-D", str(self.directory / "postgres"), "-h", "127.0.0.1", "-p", str(self.ports["5432"]))
            command += ("-c", "unix_socket_directories=", *UNSYNCED)
        return StackService(
            name=name,
            command=command,
            # A container has a name of its own, which is what a worker is called by unless told otherwise.
            environment={**environment, "VOLSCHED_INSTANCE": "{instance}"},
            after=tuple(service for service in it.get("depends_on", ()) if service != "secrets"),
            once=it["restart"] == "on-failure",
            health=self._health(name, it.get("healthcheck", {})),
            stop_signal=it.get("stop_signal", "SIGTERM"),
            grace=seconds(it.get("stop_grace_period", "10s")),
            user=system_user() if name == "postgres" else None,
        )

    def _health(self, name: str, check: dict[str, Any]) -> Health | None:
        if check.get("disable"):
            return None
        kind, *command = check["test"]
        assert kind == "CMD"
        return Health(
            command=tuple(self.here(word, name) for word in command),
            interval=seconds(check["interval"]),
            timeout=seconds(check["timeout"]),
            retries=check["retries"],
            start_interval=seconds(check["start_interval"]) / 4,
        )

    def prepare(self) -> None:
        """What Docker does before the first start: secrets, volumes, and PostgreSQL's entry point."""
        for name in ("secrets", "services", "redis", "run"):
            (self.directory / name).mkdir()
        for name in ("migrate", *started_by_default()):
            (self.directory / "services" / name).mkdir(exist_ok=True)
        command = map(self.here, compose()["services"]["secrets"]["command"])
        subprocess.run([commands_directory() / next(command), *command], check=True, capture_output=True)
        made = [*(self.directory / "secrets").iterdir(), *(self.directory / "services").glob("*/*")]
        for file in made:
            os.chmod(file, 0o600)
            if file.suffix not in (".crt", ".key", ".pub"):
                file.write_text(self.here(file.read_text()))
        services = started_by_default()
        postgres, redis = postgres_programs(), find_redis()
        given = services["postgres"]["environment"]
        password = Path(self.here(given["POSTGRES_PASSWORD_FILE"], "postgres")).read_text()
        assert (given["POSTGRES_USER"], given["POSTGRES_DB"]) == ("volsched", "volsched")
        make_cluster(postgres, self.directory / "postgres", password)
        definition = Definition(
            services=tuple(self.service(name, it) for name, it in services.items()),
            path=(str(commands_directory()), str(postgres), str(redis.directory)),
            urls={"api": f"https://localhost:{self.ports['8700']}"},
        )
        write_definition(self.directory / "stack.json", definition)
        want(self.directory, WantedState())


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)([sm])", text)
    assert found, text
    return int(found[1]) * SECONDS[found[2]]
