"""What a stack consists of, as plain values: commands, environments, health checks, and who waits for whom.

The words are those of a compose file, so that one written for Docker can be run by the same supervisor
(`tests/stack/test_compose.py` does).
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

NUMBER, COUNT, INSTANCE = "{number}", "{count}", "{instance}"
"""In an environment: which instance of its service this is, of how many, and what it is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A command that ends with 0 where the service does what it is for. Seconds throughout."""

    command: tuple[str, ...]
    interval: float = 10.0
    start_interval: float = 0.25
    """How often it is asked until it was healthy once."""
    timeout: float = 60.0
    """Of the command as a whole. How long the service may take is the command's affair; to start it takes long
    where the machine is busy."""
    retries: int = 3
    """So many failures in a row make a healthy service unhealthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackService:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    """Services that are healthy, or done, before this one is started."""
    once: bool = False
    """It does its work and ends; only a failure is tried again."""
    health: Health | None = None
    scale: int = 1
    stop_signal: str = "SIGTERM"
    grace: float = 30.0
    """Seconds from the stop signal to SIGKILL."""
    user: str | None = None
    """The system's user that it runs as, where that is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything the supervisor must know, as it is kept in `stack.json`."""

    services: tuple[StackService, ...]
    path: tuple[str, ...] = ()
    """Directories in which commands are looked for before those of the environment."""
    urls: dict[str, str] = field(default_factory=dict)
    """What listens where, for people; without passwords."""
    redis: str = ""
    """Which Redis it is, its version, and where it is from."""
    imitation: bool = False
    """Whether that is no Redis at all."""

    def service(self, name: str) -> StackService:
        return self.by_name()[name]

    def by_name(self) -> Mapping[str, StackService]:
        return {it.name: it for it in self.services}


class DefinitionError(ValueError):
    """The services cannot be started in any order; the message says why."""


def in_order(services: Iterable[StackService]) -> list[StackService]:
    """Every service after those it waits for. Raises DefinitionError where there is no such order."""
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
    """The services that could not start without this one, be it because of others that need it."""
    them = set[str]()
    for service in in_order(services):
        if name in service.after or them.intersection(service.after):
            them.add(service.name)
    return them


def environment(service: StackService, *, number: int, count: int, path: Iterable[str]) -> dict[str, str]:
    """What an instance is started with: ours, without settings that were meant for us, and its own."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("VOLSCHED_")}
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
    """So that a reader finds the old content or the new one, whenever it looks, and nobody else can read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except OSError:
        # A full disk: it is tried again, and every try would leave one.
        os.unlink(name)
        raise
