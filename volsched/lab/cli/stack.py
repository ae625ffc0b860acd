"""`volsched stack`: the processes of docker-compose.yml on this machine, without Docker."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stderr, stdout
from volsched.cli.progress import is_shown
from volsched.lab.stack.programs import WheelMissingError
from volsched.questions.get.documents import age
from volsched.runtime.clock import SECOND
from volsched.runtime.extras import MissingExtraError

try:
    from volsched.lab.stack.handle import NotReadyError, Stack, StackError
    from volsched.lab.stack.local import API_PORT, SCALABLE, check_ports, default_directory, prepare
    from volsched.lab.stack.run import AlreadyRunningError, supervise
    from volsched.lab.stack.services import distribute_secrets, make_compose_secrets
    from volsched.lab.stack.states import (
        SETTLED,
        Condition,
        Line,
        ServiceState,
        following,
        process_of,
        read_lines,
        resident_bytes,
    )
    from volsched.lab.stack.supervisor import Supervisor, leftovers
except ModuleNotFoundError as error:
    raise MissingExtraError(error, "local-stack") from error

UP_EXAMPLES = """**Examples**

`volsched stack up` starts everything and shows its logs, until Ctrl-C

`volsched stack up -d --scale worker=2` leaves it running; `volsched stack down` ends it
"""
STATUS_EXAMPLES = """**Examples**

`volsched stack status` exits with 0 where all is healthy, 1 where not, 3 where nothing runs

`volsched stack status -o json`
"""
LOGS_EXAMPLES = """**Examples**

`volsched stack logs --follow`

`volsched stack logs scheduler worker-2 --tail 50`
"""
DOWN_EXAMPLES = """**Examples**

`volsched stack down` ends all processes gracefully; data stays for the next `up`
"""
RESTART_EXAMPLES = """**Examples**

`volsched stack restart` every process, one after the other, while the others keep running

`volsched stack restart worker`
"""
SECRETS_EXAMPLES = """**Examples**

`volsched stack secrets deploy/secrets` before the first `docker compose up`
"""
COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
MEBIBYTE = 1024 * 1024
IMITATION_REMEDY = "install redis-server or valkey-server for a real one"
CONDITIONS = {Condition.HEALTHY: "green", Condition.DONE: "green", Condition.UNHEALTHY: "red"}

app = typer.Typer(help="Run the whole stack on this machine, without Docker.", no_args_is_help=True)
Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Directory of its data; else in the user's data directory."),
]


@app.command(epilog=UP_EXAMPLES)
def up(
    directory: Dir = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the API, on loopback.")] = API_PORT,
    scale: Annotated[
        list[str] | None, typer.Option(metavar="SERVICE=N", help="So many instances; may be repeated.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is ready; it keeps running.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="With -d: seconds to wait for the next service to get ready.")
    ] = 120.0,
) -> None:
    """Start PostgreSQL, Redis, API, scheduler, controller and workers, and keep them running."""
    stack = _stack(directory)
    try:
        if stack.running:
            raise AlreadyRunningError(f"a stack runs in {stack.directory} already; see: volsched stack status")
        scaled = dict(map(_scaled, scale or ()))
        _cleaned(stack.down())
        with stderr.status("looking for PostgreSQL and Redis"):
            definition = prepare(stack.directory, api_port=port, scale=scaled, imitation=True)
        check_ports(definition)
        if definition.imitation:
            stderr.print(f"[yellow]warning:[/] Redis is {escape(definition.redis)}; {IMITATION_REMEDY}")
        if not detach:
            supervise(stack.directory, on_line=Printer().show, changed=_Progress(stack))
            return
        stack.launch()
        stack.wait_ready(seconds=timeout, on_wait=_Arrivals(stack))
    except WheelMissingError as error:
        fail(Exit.USAGE, str(error))
    except AlreadyRunningError as error:
        fail(Exit.CONFLICT, str(error))
    except NotReadyError as error:
        fail(Exit.TIMED_OUT, *str(error).splitlines(), "see volsched stack logs; end it with volsched stack down")
    except PermissionError as error:
        fail(Exit.FAILURE, f"{error.filename}: {error.strerror}; name a directory of your own with --dir")
    _ready(stack)


@app.command(epilog=STATUS_EXAMPLES)
def status(directory: Dir = None, output: OutputOption = Output.table) -> None:
    """Show the state, restarts, uptime, memory and health of every process."""
    stack = _stack(directory)
    states = stack.published()
    if not stack.running or states is None:
        left = leftovers(stack.directory) if stack.directory.is_dir() else {}
        message = f"no stack runs in {stack.directory}; start one with: volsched stack up"
        if left:
            message = f"the supervisor is gone and left {len(left)} processes; end them with: volsched stack down"
        fail(Exit.NOT_FOUND, message)
    rows = [_row(it) for it in states.instances]
    if output is Output.json:
        print_json(
            {
                "kind": "List",
                "apiVersion": "v1",
                "items": rows,
                "urls": stack.urls,
                "redis": stack.definition.redis,
            }
        )
    else:
        table = Table(
            "service", "pid", "state", "restarts", "uptime", "memory", "health", box=None, header_style="bold"
        )
        for row, instance in zip(rows, states.instances, strict=True):
            colour = CONDITIONS.get(instance.condition, "yellow")
            uptime = "-" if row["uptimeSeconds"] is None else age(0, row["uptimeSeconds"] * SECOND)
            memory = "-" if row["residentMiB"] is None else f"{row['residentMiB']} MiB"
            table.add_row(
                row["name"], str(row["pid"] or "-"), f"[{colour}]{row['state']}[/]", str(row["restarts"]), uptime,
                memory, escape(row["health"] or "-"),
            )  # fmt: skip
        stdout.print(table)
        stdout.print("  ".join(f"{name} {url}" for name, url in stack.urls.items()))
        stdout.print(f"Redis is {escape(stack.definition.redis)}")
    if not states.settled:
        raise typer.Exit(Exit.FAILURE)


@app.command(epilog=DOWN_EXAMPLES)
def down(directory: Dir = None) -> None:
    """End all processes gracefully, also those that a dead supervisor has left."""
    stack = _stack(directory)
    ran = stack.running
    try:
        left = stack.down()
    except StackError as error:
        fail(Exit.TIMED_OUT, str(error))
    except AlreadyRunningError:
        fail(
            Exit.CONFLICT, f"another command is starting a stack in {stack.directory}; see: volsched stack status"
        )
    _cleaned(left)
    stdout.print("ended; data stays in " + str(stack.directory) if ran or left else "nothing was running")


@app.command(epilog=RESTART_EXAMPLES)
def restart(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Services or instances.")] = None,
    directory: Dir = None,
) -> None:
    """End and start processes one after the other, each healthy again before the next; the stack keeps working."""
    stack = _stack(directory)
    if not stack.running:
        fail(Exit.NOT_FOUND, f"no stack runs in {stack.directory}; start one with: volsched stack up")
    try:
        for name in names or [it.name for it in reversed(stack.definition.services) if not it.once]:
            if all(it.process is None for it in stack.instances(name)):
                raise StackError(f"{name} does not run; see: volsched stack status")
            started = time.monotonic()
            stack.restart(name)
            stdout.print(f"{name} is healthy again after {time.monotonic() - started:.1f} s")
    except NotReadyError as error:
        fail(Exit.TIMED_OUT, *str(error).splitlines())
    except StackError as error:
        fail(Exit.NOT_FOUND, str(error))


@app.command(epilog=SECRETS_EXAMPLES)
def secrets(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of all secrets.")],
    services: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy the secrets of each service to DIR/SERVICE.")
    ] = None,
) -> None:
    """Create the passwords and certificates of docker-compose.yml, and a kubeconfig for its API.

    Passwords that are there stay. Certificates last a year; run it again for new ones.
    """
    try:
        make_compose_secrets(directory)
        if services is not None:
            distribute_secrets(directory, services)
    except PermissionError as error:
        fail(Exit.FAILURE, f"{error.filename}: {error.strerror}; run it as the owner of the directory")
    stdout.print(f"wrote secrets into {directory}; for kubectl: {directory / 'admin.kubeconfig'}")


@app.command(epilog=LOGS_EXAMPLES)
def logs(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Services or instances.")] = None,
    directory: Dir = None,
    tail: Annotated[int, typer.Option(min=0, help="Number of last lines to show.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines until Ctrl-C.")] = False,
) -> None:
    """Show the merged logs of the services, each line with its time and service."""
    stack = _stack(directory)
    where = stack.directory / "logs"
    if not where.is_dir():
        fail(Exit.NOT_FOUND, f"there is no stack in {stack.directory}; start one with: volsched stack up")
    wanted = _chooser(names or [])
    instances = sorted(it.stem for it in where.glob("*-*.log"))
    unknown = set(names or ()).difference(instances, (it.rpartition("-")[0] for it in instances))
    if unknown:
        fail(Exit.NOT_FOUND, f'there are no logs of "{min(unknown)}" here; there are {", ".join(instances)}')
    printer = Printer(times=True)
    lines = [it for it in read_lines(where) if wanted(it)]
    for line in lines[len(lines) - tail if tail < len(lines) else 0 :]:
        printer.show(line)
    if follow:
        for line in filter(wanted, following(where)):
            printer.show(line)


class Printer:
    """Lines of services, each service in its own colour."""

    def __init__(self, *, times: bool = False) -> None:
        self._times = times
        self._colours: dict[str, str] = {}

    def show(self, line: Line) -> None:
        colour = self._colours.setdefault(line.instance, COLOURS[len(self._colours) % len(COLOURS)])
        at = f"[dim]{line.at}[/] " if self._times else ""
        stdout.print(f"{at}[{colour}]{line.instance:<12}[/] {escape(line.text)}", soft_wrap=True)


class _Arrivals:
    """Reports every process that is up, and how many of all are."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._began = time.monotonic()
        self._up: set[str] = set()

    def __call__(self) -> None:
        states = self._stack.published()
        if states is None or not is_shown():
            return
        for service in states.instances:
            if service.condition in SETTLED and service.name not in self._up:
                self._up.add(service.name)
                how = "done" if service.condition is Condition.DONE else "up"
                counts = f"{len(self._up)} of {len(states.instances)}"
                stderr.print(f"{service.name} is {how} after {time.monotonic() - self._began:.1f} s ({counts})")


class _Progress:
    """Reports once that everything is ready, and every restart of a process."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._was_ready = False
        self._was_ending = False
        self._restarts: dict[str, int] = {}
        self._arrivals = _Arrivals(stack)

    def __call__(self, supervisor: Supervisor) -> None:
        for instance in supervisor.instances:
            if instance.restarts > self._restarts.get(instance.name, 0):
                stderr.print(f"{instance.name} ended with {instance.exit_code}; it is restarted")
            self._restarts[instance.name] = instance.restarts
        if supervisor.stopping and not self._was_ending:
            self._was_ending = True
            stderr.print("ending, PostgreSQL last")
        self._arrivals()
        seen = self._stack.published()
        if not self._was_ready and seen is not None and seen.settled:
            self._was_ready = True
            _ready(self._stack)


def _ready(stack: Stack) -> None:
    stderr.print(f"ready; try: kubectl -s {stack.urls['api']} get pods -A")


def _stack(directory: Path | None) -> Stack:
    path = (directory or default_directory()).absolute()
    if os.access(path, os.F_OK) and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        fail(Exit.FAILURE, f"{path} belongs to another user; name a directory of your own with --dir")
    return Stack(path)


def _scaled(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not count.isdecimal():
        fail(Exit.USAGE, f'--scale "{text}": write SERVICE=N, such as worker=2')
    if name not in SCALABLE:
        fail(Exit.USAGE, f'--scale "{text}": only {", ".join(SCALABLE)} can have several instances')
    return name, int(count)


def _cleaned(left: list[tuple[int, str]]) -> None:
    for pid, service in left:
        stderr.print(f"ended a leftover of a stack that crashed: {service or 'process'} {pid}")


def _chooser(names: list[str]) -> Callable[[Line], bool]:
    return lambda line: not names or line.instance in names or line.instance.rpartition("-")[0] in names


def _row(service: ServiceState) -> dict[str, Any]:
    alive = service.process is not None and process_of(service.process) is not None
    resident = resident_bytes(service.process) if service.process is not None and alive else None
    return {
        "name": service.name,
        "service": service.service,
        "pid": service.process.pid if service.process is not None else None,
        "state": service.condition.value,
        "restarts": service.restarts,
        "exitCode": service.exit_code,
        "uptimeSeconds": int(time.time() - service.process.started) if service.process is not None else None,
        "residentMiB": None if resident is None else resident // MEBIBYTE,
        "health": service.health,
    }
