"""Serving: `up`, the whole system in one process, and `serve`, the stack's single processes."""

import logging
import signal
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volsched.cli.console import Exit, fail, stderr
from volsched.cli.people import user
from volsched.cli.stores import Db, opened
from volsched.core.configuration import ConfigurationError
from volsched.engine.clock import system_clock
from volsched.engine.runner import looping
from volsched.engine.system import Bell, Role, System
from volsched.engine.upkeep.choice import Upkeep
from volsched.library import whole_system
from volsched.settings import Settings, read_settings
from volsched.store.database import Database
from volsched.store.errors import StoreError

if TYPE_CHECKING:
    from volsched.server.serving import Server

UP_EXAMPLES = """**Examples**

`volsched up` then, elsewhere, `kubectl -s http://127.0.0.1:8700 apply -f cluster.yaml`

`kubectl -s http://127.0.0.1:8700 get pods -A -w` follows along
"""
API_EXAMPLES = """**Examples**

`volsched serve api --port 8700` serves the API of a store; schedulers and workers run elsewhere
"""
SCHEDULER_EXAMPLES = """**Examples**

`volsched serve scheduler` places and binds pods; several may run on one store

`VOLSCHED_SCHEDULER_SHARE=2/4 volsched serve scheduler` is the second of four, and begins with its own pods
"""
CONTROLLER_EXAMPLES = """**Examples**

`volsched serve controller` completes bindings, provisions, reclaims and keeps StatefulSets; one of several acts

`volsched serve controller --without node-agent` where the nodes have agents of their own

`volsched serve controller --without provisioners --without stateful-sets`
"""


class Optional(StrEnum):
    """What may be left out."""

    NODE_AGENT = "node-agent"
    PROVISIONERS = "provisioners"
    ZONAL_UPGRADE = Upkeep.ZONAL_UPGRADE.value
    STATEFUL_SETS = Upkeep.STATEFUL_SETS.value
    EPHEMERAL_CLAIMS = Upkeep.EPHEMERAL_CLAIMS.value
    GARBAGE_COLLECTION = Upkeep.GARBAGE_COLLECTION.value
    STALE_NODES = Upkeep.STALE_NODES.value


Without = Annotated[list[Optional] | None, typer.Option("--without", help="Leave this out; may be given often.")]
Config = Annotated[Path | None, typer.Option(help="The scheduler's configuration; else VOLSCHED_CONFIG.")]
Host = Annotated[str, typer.Option("--host", help="Where to listen; loopback only, until there are tokens.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any that is free.")]

app = typer.Typer(help="Run one process of a stack.", no_args_is_help=True)


@app.command("api", epilog=API_EXAMPLES)
def api(db: Db = None, host: Host = "127.0.0.1", port: Port = 8700) -> None:
    """Serve the Kubernetes-style API, health and metrics; nothing is scheduled by this process."""
    with opened(db) as database:
        _serve(database, host, port, None)


@app.command("scheduler", epilog=SCHEDULER_EXAMPLES)
def scheduler(db: Db = None, config: Config = None) -> None:
    """Place pods and plan their bindings, until Ctrl-C. Workers carry them out; without Redis, this process."""
    _work(db, lambda database, bell: whole_system(database, config=config, bell=bell, roles=(Role.SCHEDULER,)))


@app.command("controller", epilog=CONTROLLER_EXAMPLES)
def controller(db: Db = None, without: Without = None) -> None:
    """Run the PV controller, provisioners, small controllers and node agent, until Ctrl-C."""
    _work(
        db,
        lambda database, bell: whole_system(
            database, bell=bell, roles=(Role.CONTROLLER,), **_chosen(without or ())
        ),
    )


def up(
    db: Db = None,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    config: Config = None,
    without: Without = None,
) -> None:
    """Run the whole system in one process: API, scheduler, controllers, workers, node agent, provisioners."""

    def make(database: Database) -> System:
        return whole_system(database, config=config, **_chosen(without or ()))

    with opened(db) as database:
        try:
            make(database)
        except ConfigurationError as error:
            fail(Exit.USAGE, *error.problems)
        _serve(database, host, port, lambda: make(database))


def _work(db: str | None, make: Callable[[Database, Bell | None], System]) -> None:
    """One role of the system, repeated until it is told to end; SIGTERM ends it as Ctrl-C does."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    ended = threading.Event()
    deaths: list[Exception] = []

    def failed(error: Exception) -> None:
        deaths.append(error)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with opened(db) as database:
        bell = _bell(database)
        try:
            make(database, bell)
        except ConfigurationError as error:
            fail(Exit.USAGE, *error.problems)
        standing = _Standing(lambda: make(database, bell))
        with closing(standing), looping(standing.step, clock=system_clock, name="volsched-system", failed=failed):
            stderr.print("at work until Ctrl-C")
            ended.wait()
    if deaths:
        fail(Exit.FAILURE, f"it ended: {deaths[0]}; what was acknowledged is kept, start it again")


def _chosen(without: Collection[Optional]) -> dict[str, Any]:
    """What `whole_system` is told of what is left out."""
    return {
        "node_agent": Optional.NODE_AGENT not in without,
        "provisioners": () if Optional.PROVISIONERS in without else None,
        "without": {it for it in Upkeep if it.value in without},
    }


def _bell(database: Database) -> Bell | None:
    """What wakes the workers, where the settings name a Redis; without one, this process is its own worker."""
    redis = read_settings().redis_url
    if redis is None:
        return None
    try:
        from volsched.engine.bell import RedisBell
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[stack]'")
    return RedisBell(redis, database, system_clock)


@dataclass(slots=True)
class _Standing:
    """A system that is made anew after the store has failed it: what it remembers may be of before."""

    make: Callable[[], System]
    system: System | None = None

    def step(self, now: int) -> int:
        if self.system is None:
            self.system = self.make()
        try:
            return self.system.step(now)
        except StoreError:
            self.system = None
            raise

    def close(self) -> None:
        if self.system is not None:
            self.system.close()


def _serve(database: Database, host: str, port: int, make: Callable[[], System] | None) -> None:
    try:
        # Only these commands need what the extra brings.
        from volsched.server.serving import ListenError, address, listen, serve
    except ModuleNotFoundError as error:
        fail(Exit.USAGE, f"{error.name} is not installed; run: pip install 'volsched[server]'")
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    servers: list[Server] = []
    deaths: list[Exception] = []

    def failed(error: Exception) -> None:
        deaths.append(error)
        for server in servers:
            server.should_exit = True

    with ExitStack() as stack:
        try:
            listening = stack.enter_context(closing(listen(host, port)))
        except ListenError as error:
            fail(Exit.USAGE, str(error))
        url = address(listening)
        stderr.print(f"serving on {url} until Ctrl-C; try: kubectl -s {url} get pods -A")
        wake: Callable[[], None] = lambda: None  # noqa: E731 - replaced where there is somebody to be woken
        if make is not None:
            standing = _Standing(make)
            stack.callback(standing.close)
            loop = looping(standing.step, clock=system_clock, name="volsched-system", failed=failed)
            wake = stack.enter_context(loop).wake
        died = serve(
            database,
            listening,
            clock=system_clock,
            actor=f"api/{user()}",
            zonal_upgrade=not Settings().disable_zonal_upgrade,
            committed=wake,
            started=servers.append,
        )
    if died is not None or deaths:
        fail(Exit.FAILURE, f"the server ended: {died or deaths[0]}; what was acknowledged is kept, start it again")
