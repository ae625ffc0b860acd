"""The supervisor: starts processes in order, restarts and stops them; ends leftovers of a dead supervisor."""

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from volsched.lab.stack.services import (
    Definition,
    Health,
    StackService,
    environment,
    in_order,
    instance_name,
    needing,
    read_definition,
)
from volsched.lab.stack.states import (
    MARK,
    SETTLED,
    Condition,
    Identity,
    Published,
    ServiceState,
    identify,
    marked,
    process_of,
    publish,
    read_published,
    read_wanted,
    send,
)
from volsched.runtime.clock import SECOND

# One supervised process: started, health-checked, restarted when it ends, stopped in time.

LONG_LIFE = 10 * SECOND
"""A process that lived this long did not fail at its start, and is restarted at once."""
HEARTBEAT = "VOLSCHED_HEARTBEAT_FILE"
FIRST_DELAY, MOST_DELAY = SECOND // 2, 30 * SECOND


def back_off(short_lives: int) -> int:
    """How long to wait after so many short lives in a row. The first has no delay: a user may have ended it."""
    return 0 if short_lives < 2 else min(FIRST_DELAY << min(short_lives - 2, 10), MOST_DELAY)


@dataclass(slots=True)
class Instance:
    directory: Path
    service: StackService
    number: int
    condition: Condition = Condition.WAITING
    identity: Identity | None = None
    restarts: int = 0
    exit_code: int | None = None
    health: str = ""
    retry_at: int = 0
    _process: "subprocess.Popen[bytes] | None" = None
    _started_at: int = 0
    _short_lives: int = 0
    _kill_at: int | None = None
    _check: "subprocess.Popen[bytes] | None" = None
    _check_at: int = 0
    _check_ends: int = 0
    _failures: int = 0
    _environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return instance_name(self.service, self.number)

    @property
    def log(self) -> Path:
        return self.directory / "logs" / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        return self._process is not None

    @property
    def state(self) -> ServiceState:
        return ServiceState(
            name=self.name,
            service=self.service.name,
            condition=self.condition,
            process=self.identity,
            restarts=self.restarts,
            exit_code=self.exit_code,
            health=self.health,
        )

    def start(self, service: StackService, now: int, *, count: int, path: tuple[str, ...]) -> None:
        """`service` is the current definition: an upgrade changes it between two lives."""
        self.service = service
        self._environment = environment(service, number=self.number, count=count, path=path)
        self._environment[MARK] = str(self.directory)
        if HEARTBEAT in self._environment:
            # From its previous life; the health check would take it for a sign of this one.
            Path(self._environment[HEARTBEAT]).unlink(missing_ok=True)
        try:
            with self.log.open("ab") as log:
                self._process = self._spawn(service.command, log)
        except OSError as error:
            with self.log.open("a") as log_text:
                log_text.write(f"{service.command[0]}: cannot be started: {error.strerror}\n")
            self._ended(now, 127)
            return
        self.identity = identify(self._process.pid)
        self._started_at, self._kill_at, self._failures = now, None, 0
        self._check_at, self.health = now, ""
        self.condition = Condition.STARTING if service.health or service.once else Condition.HEALTHY

    def step(self, now: int) -> int:
        """Check its state; 0 if nothing has changed."""
        before = (self.condition, self.identity, self.health)
        if self._process is not None:
            code = self._process.poll()
            if code is not None:
                self._ended(now, code)
            elif self._kill_at is not None and now >= self._kill_at:
                self._signal(signal.SIGKILL)
            elif self._kill_at is None:
                self._ask_health(now)
        return int((self.condition, self.identity, self.health) != before)

    def stop(self, now: int) -> None:
        """Ask it to end; SIGKILL follows after its grace period."""
        if self._process is None:
            self.condition = Condition.DONE if self.condition is Condition.DONE else Condition.STOPPED
        elif self._kill_at is None:
            self._kill_at = now + int(self.service.grace * SECOND)
            self.condition = Condition.STOPPING
            self._end_check()
            self._signal(signal.Signals[self.service.stop_signal])
            # A stopped process would not handle the signal.
            self._signal(signal.SIGCONT)

    def _ended(self, now: int, code: int) -> None:
        stopping = self._kill_at is not None
        self._process, self.identity, self.exit_code, self._kill_at = None, None, code, None
        self._end_check()
        if stopping:
            self.condition = Condition.STOPPED
            return
        if self.service.once and code == 0:
            self.condition = Condition.DONE
            return
        self._short_lives = 0 if now - self._started_at >= LONG_LIFE else self._short_lives + 1
        self.restarts += 1
        self.retry_at = now + back_off(self._short_lives)
        self.condition = Condition.BACKING_OFF
        self.health = f"ended with {code}"

    def _ask_health(self, now: int) -> None:
        health = self.service.health
        if health is None:
            return
        if self._check is None:
            if now >= self._check_at:
                self._check_at = now + int(health.interval * SECOND)
                self._check_ends = now + int(health.timeout * SECOND)
                with self._check_output.open("wb") as said:
                    self._check = self._started_check(health, said)
            return
        code = self._check.poll()
        if code is None and now < self._check_ends:
            return
        self._end_check()
        if code == 0:
            self.condition, self.health, self._failures = Condition.HEALTHY, "", 0
        else:
            self._failures += 1
            lines = self._check_output.read_text(errors="replace").strip().splitlines()
            self.health = lines[-1] if lines and code is not None else "no answer in time" if code is None else ""
            if self.condition is Condition.HEALTHY and self._failures >= health.retries:
                self.condition = Condition.UNHEALTHY
        slowly = self.condition is Condition.HEALTHY and self._failures == 0
        self._check_at = now + int((health.interval if slowly else health.start_interval) * SECOND)

    def _started_check(self, health: Health, output: IO[bytes]) -> "subprocess.Popen[bytes] | None":
        """None if there is no such command: that says nothing about the service, but users must know."""
        try:
            return self._spawn(health.command, output)
        except (FileNotFoundError, PermissionError) as error:
            self.health = f"{health.command[0]}: cannot be started: {error.strerror}"
            return None

    @property
    def _check_output(self) -> Path:
        return self.directory / "run" / f"{self.name}.health"

    def _end_check(self) -> None:
        if self._check is not None:
            if self._check.poll() is None:
                os.killpg(self._check.pid, signal.SIGKILL)
            self._check.wait()
            self._check = None

    def _spawn(self, command: tuple[str, ...], output: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start it in its own session: Ctrl-C at the terminal is for the supervisor, which ends all in order."""
        return subprocess.Popen(
            command,
            env=self._environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **_as_user(self.service.user),
        )

    def _signal(self, number: signal.Signals) -> None:
        # Our own child, not yet waited for: its pid cannot have been reused.
        assert self._process is not None
        if number is signal.SIGKILL:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)


def _as_user(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    entry = pwd.getpwnam(name)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


# A `step(now)` that never blocks, like everything that runs here. Requests are in files that it reads again
# when they change, its observations in a file that others read, so that it can die at any moment: its services
# continue, and the next supervisor finds them (`leftovers`).
#
# As with Docker, an unhealthy service is shown and not killed: what it waits for may come back.

PUBLISH_EVERY = 1 * SECOND


class Supervisor:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._definition = read_definition(directory / "stack.json")
        in_order(self._definition.services)
        self._scale = self._wished()
        self._read_at = self._changed()
        self._instances: dict[str, list[Instance]] = {}
        self._stopping = False
        self._publish_at = 0
        myself = identify(os.getpid())
        assert myself is not None
        self._myself = myself
        for name in ("logs", "run"):
            (directory / name).mkdir(exist_ok=True)

    @property
    def instances(self) -> list[Instance]:
        return [it for them in self._instances.values() for it in them]

    @property
    def stopped(self) -> bool:
        """Asked to stop, and nothing runs any more."""
        return self._stopping and not any(it.alive for it in self.instances)

    @property
    def stopping(self) -> bool:
        return self._stopping

    def stop(self) -> None:
        self._stopping = True

    def step(self, now: int) -> int:
        if not self._stopping:
            self._read_again()
        progress = sum(it.step(now) for it in self.instances)
        if self._stopping:
            progress += self._take_down(now)
        else:
            progress += self._bring_up(now)
        if progress or now >= self._publish_at:
            self._publish(now)
        return progress

    def _bring_up(self, now: int) -> int:
        progress = 0
        for service in in_order(self._definition.services):
            instances = self._instances.setdefault(service.name, [])
            count = self._scale[service.name]
            for number in range(len(instances) + 1, count + 1):
                instances.append(Instance(self.directory, service, number))
            for instance in instances:
                if instance.number > count:
                    progress += self._stop(instance, now)
                elif not instance.alive and self._startable(instance, now):
                    instance.start(service, now, count=count, path=self._definition.path)
                    progress += 1
        return progress

    def _take_down(self, now: int) -> int:
        progress = 0
        for service in reversed(in_order(self._definition.services)):
            users = needing(self._definition.services, service.name)
            if not any(it.alive for name in users for it in self._instances.get(name, ())):
                progress += sum(self._stop(it, now) for it in self._instances.get(service.name, ()))
        return progress

    def _stop(self, instance: Instance, now: int) -> int:
        before = instance.condition
        instance.stop(now)
        return int(instance.condition is not before)

    def _startable(self, instance: Instance, now: int) -> bool:
        """Dependencies delay its first start only: later it must tolerate their absence itself."""
        if instance.condition is Condition.WAITING:
            return all(self._settled(name) for name in instance.service.after)
        if instance.condition is Condition.BACKING_OFF:
            return now >= instance.retry_at
        return instance.condition is Condition.STOPPED

    def _settled(self, name: str) -> bool:
        instances = self._instances.get(name, ())
        return bool(instances) and all(it.condition in SETTLED for it in instances)

    def _publish(self, now: int) -> None:
        self._publish_at = now + PUBLISH_EVERY
        publish(
            self.directory,
            Published(supervisor=self._myself, instances=tuple(it.state for it in self.instances)),
        )

    def _read_again(self) -> None:
        changed = self._changed()
        if changed != self._read_at:
            self._read_at = changed
            self._definition = read_definition(self.directory / "stack.json")
            self._scale = self._wished()

    def _changed(self) -> tuple[int, ...]:
        files = (self.directory / name for name in ("stack.json", "wanted.json"))
        return tuple(it.stat().st_mtime_ns if it.exists() else 0 for it in files)

    def _wished(self) -> dict[str, int]:
        wanted = read_wanted(self.directory).scale
        return {it.name: wanted.get(it.name, it.scale) for it in self._definition.services}

    @property
    def definition(self) -> Definition:
        return self._definition


# Leftovers of a dead supervisor: found and ended before anything is started again.

LOOK_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""The grace period for processes of an unknown service."""


def leftovers(directory: Path) -> dict[Identity, str]:
    """Processes of the stack in this directory, and the service of each ("" if it was never recorded).

    Recorded with their start time, or carrying the stack's mark; any other process with such a pid is unrelated.
    """
    published = read_published(directory)
    known = {it.process: it.service for it in published.instances if it.process} if published else {}
    found = {it: service for it, service in known.items() if process_of(it) is not None}
    pids = {it.pid for it in found}
    return found | {it: "" for it in marked(directory) if it.pid not in pids}


def clean(directory: Path, definition: Definition | None) -> list[tuple[int, str]]:
    """End the leftovers, the clients of a service before it; pid and service of each ended process."""
    left = leftovers(directory)
    order = [it.name for it in in_order(definition.services)] if definition else []
    services = definition.by_name() if definition else {}
    for name in ["", *reversed(order)]:
        them = [it for it, service in left.items() if service == name]
        known = services.get(name)
        number = signal.Signals[known.stop_signal] if known else signal.SIGTERM
        end_all(them, number, known.grace if known else GRACE_SECONDS)
    return [(it.pid, service) for it, service in left.items()]


def end_all(them: Iterable[Identity], number: signal.Signals, grace: float) -> None:
    """Send the signal, wait, and after the grace period kill the whole session of each."""
    ending = [it for it in them if send(it, number)]
    for process in ending:
        send(process, signal.SIGCONT)
    end = time.monotonic() + grace
    while time.monotonic() < end and any(process_of(it) for it in ending):
        time.sleep(LOOK_SECONDS)
    for process in ending:
        send(process, signal.SIGKILL, group=True)
    while any(process_of(it) for it in ending):
        time.sleep(LOOK_SECONDS)
