"""Where a process drill is played: a stack of its own in a scratch directory, on PostgreSQL or on SQLite."""

import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from volsched.lab.drills.process_scenario import ON_SQLITE, Moment
from volsched.lab.stack.handle import Stack
from volsched.lab.stack.local import HOST, free_port, prepare, services
from volsched.lab.stack.postgres_wheel import commands_directory
from volsched.lab.stack.secret_files import make_anchor_keys
from volsched.lab.stack.services import Definition, StackService, write_definition
from volsched.lab.stack.states import WantedState, want
from volsched.runtime.fault_points import DRILL_FLAG, FAULT

READY_SECONDS = 180.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `timeout`, a terminal that is closed."""
OURS = ("api", "scheduler", "controller", "worker")
"""What runs our program; the others are servers."""
WITHOUT_SQLITE = ("postgres", "redis", "worker")


@contextmanager
def scratch_stack(
    engine: str, *, scale: Mapping[str, int], moment: Moment, durable: bool, lease: float
) -> Iterator[Stack]:
    """A stack that runs, with the moment armed, for as long as it is used."""
    with tempfile.TemporaryDirectory(prefix="volsched-drill-") as directory:
        # PostgreSQL runs as somebody else where we are root, and must get at its data.
        Path(directory).chmod(0o711)
        place = Path(directory) / "stack"
        counts = {
            name: count for name, count in scale.items() if engine != ON_SQLITE or name not in WITHOUT_SQLITE
        }
        stack = Stack(place)
        try:
            with _uninterrupted():
                if engine == ON_SQLITE:
                    definition = _prepare_sqlite(place)
                else:
                    definition = prepare(place, api_port=free_port(), durable=durable)
                calm = tuple(_drilled(it, lease) for it in definition.services)
                armed = tuple(_armed(it, engine, moment) for it in calm)
                want(place, WantedState(counts))
                write_definition(place / "stack.json", replace(definition, services=armed))
                stack.launch()
            stack.wait_ready(seconds=READY_SECONDS)
            # Whatever is started from now on is not armed: a fault happens once.
            write_definition(place / "stack.json", replace(definition, services=calm))
            yield stack
        finally:
            stack.down()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits: of what is half started nobody could say afterwards which processes to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = {
        it: signal.signal(it, lambda number, _: asked.append(number))
        for it in ENDING
        if signal.getsignal(it) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            signal.raise_signal(asked[0])


def database_url(stack: Stack, engine: str) -> str:
    return _sqlite_url(stack.directory) if engine == ON_SQLITE else stack.database_url


def named(engine: str, name: str) -> list[str]:
    """The services or instances of this engine that a scenario means; none where it has no such thing.

    On SQLite schedulers and controllers carry effects out themselves.
    """
    service, _, number = name.partition("-")
    if service == "all":
        return ["api", "scheduler", "controller"] + (
            [] if engine == ON_SQLITE else ["worker", "redis", "postgres"]
        )
    if engine != ON_SQLITE or service not in WITHOUT_SQLITE:
        return [name]
    if service != "worker":
        return []
    return [f"scheduler-{number}"] if number else ["scheduler", "controller"]


def _prepare_sqlite(place: Path) -> Definition:
    """The same processes without servers: every one of them is its own worker."""
    for name, mode in (("", 0o711), ("run", 0o711), ("logs", 0o711), ("secrets", 0o700)):
        (place / name).mkdir(mode=mode)
    make_anchor_keys(place / "secrets")
    api_port = free_port()
    of_a_stack = services(place, ports={"postgres": 0, "redis": 0}, api_port=api_port, durable=True)
    store = {"VOLSCHED_DATABASE_URL": _sqlite_url(place)}
    kept = tuple(
        replace(
            it,
            environment={key: value for key, value in it.environment.items() if "_URL_FILE" not in key} | store,
            after=tuple(name for name in it.after if name not in WITHOUT_SQLITE),
        )
        for it in of_a_stack
        if it.name not in WITHOUT_SQLITE
    )
    path = (str(commands_directory()),)
    return Definition(services=kept, path=path, urls={"api": f"http://{HOST}:{api_port}"})


def _sqlite_url(place: Path) -> str:
    return f"sqlite:///{place / 'store.db'}"


def _drilled(service: StackService, lease: float) -> StackService:
    return replace(service, environment={**service.environment, "VOLSCHED_LEASE_SECONDS": f"{lease:g}"})


def _armed(service: StackService, engine: str, moment: Moment) -> StackService:
    """It falls asleep when it comes to the place, and somebody sees that."""
    held = None if moment.service is None else held_service(engine, moment.service)
    if service.name != held:
        return service
    fault = {DRILL_FLAG: "1", FAULT: f"{moment.point}:stop"}
    return replace(service, environment={**service.environment, **fault})


def held_service(engine: str, service: str) -> str:
    return "scheduler" if engine == ON_SQLITE and service == "worker" else service
