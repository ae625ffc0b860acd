"""What the supervisor publishes (`state.json`) and what it is asked for (`wanted.json`), in the stack's directory.

Files and not a socket: they can be read after a crash, by whoever comes next.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from volsched.lab.stack.identity import Identity
from volsched.lab.stack.services import replace_file


class Condition(StrEnum):
    WAITING = "waiting"
    """For others to be healthy first."""
    STARTING = "starting"
    """It runs, and has not been healthy yet."""
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    BACKING_OFF = "backing off"
    """It has ended, and is started again after a while."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    DONE = "done"
    """It had one thing to do, and did it."""


SETTLED = (Condition.HEALTHY, Condition.DONE)
"""Others need not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """One instance of a service, as the supervisor sees it."""

    name: str
    service: str
    condition: Condition
    process: Identity | None = None
    restarts: int = 0
    exit_code: int | None = None
    """Of its last process that has ended; negative: the signal that ended it."""
    health: str = ""
    """What the health check said last, where it was not content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    supervisor: Identity
    instances: tuple[ServiceState, ...] = ()

    def of(self, service: str) -> list[ServiceState]:
        return [it for it in self.instances if it.service == service]

    @property
    def settled(self) -> bool:
        """Whether all that should run does, and does what it is for."""
        left = [it for it in self.instances if it.condition is not Condition.STOPPED]
        return bool(left) and all(it.condition in SETTLED for it in left)


@dataclass(frozen=True, slots=True)
class WantedState:
    """How many instances of a service there shall be, where that is not what its definition says."""

    scale: dict[str, int] = field(default_factory=dict)


_PUBLISHED, _WANTED = TypeAdapter(Published), TypeAdapter(WantedState)


def publish(directory: Path, published: Published) -> None:
    replace_file(directory / "state.json", _PUBLISHED.dump_json(published, indent=2))


def read_published(directory: Path) -> Published | None:
    """None where there has never been a supervisor, or where what it wrote was lost: a machine went off."""
    try:
        return _PUBLISHED.validate_json((directory / "state.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def want(directory: Path, wanted: WantedState) -> None:
    replace_file(directory / "wanted.json", _WANTED.dump_json(wanted, indent=2))


def read_wanted(directory: Path) -> WantedState:
    try:
        return _WANTED.validate_json((directory / "wanted.json").read_bytes())
    except FileNotFoundError:
        return WantedState()
