"""A handle on the stack of a directory, for commands and drills, by name and from any process.

    stack = Stack(directory)
    stack.launch()                      # detached; the services are those of prepare()
    stack.wait_ready()
    stack.kill("worker-1")              # SIGKILL, all of its processes; the supervisor starts it again
    stack.pause("scheduler"); stack.resume("scheduler")
    stack.stop("redis"); stack.start("redis")
    stack.restart("api")                # gracefully, and healthy again when this returns
    stack.down()

A name is an instance (`worker-2`) or a service, which means all of its instances. Only processes that are provably
the stack's are sent anything (`states`).
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from volsched.lab.stack.run import AlreadyRunningError, alone, is_locked
from volsched.lab.stack.services import Definition, instance_name, read_definition
from volsched.lab.stack.states import (
    SETTLED,
    Condition,
    Identity,
    Published,
    ServiceState,
    WantedState,
    process_of,
    processor_seconds,
    read_published,
    read_wanted,
    send,
    want,
)
from volsched.lab.stack.supervisor import clean
from volsched.runtime.clock import Patience

LOOK_SECONDS = 0.02
READY_SECONDS = 180.0
DOWN_SECONDS = 120.0


class StackError(Exception):
    """The request is impossible; the message says what to do instead."""


class NotReadyError(StackError):
    """A condition was not met in time."""


@dataclass(frozen=True, slots=True)
class Stack:
    directory: Path

    # --- as a whole -------------------------------------------------------------------------------------

    @property
    def definition(self) -> Definition:
        try:
            return read_definition(self.directory / "stack.json")
        except FileNotFoundError:
            raise StackError(f"there is no stack in {self.directory}; start one with: volsched stack up") from None

    @property
    def urls(self) -> dict[str, str]:
        """The addresses of the services, without passwords."""
        return self.definition.urls

    @property
    def database_url(self) -> str:
        """The URL with its password: for programs, not for display."""
        return (self.directory / "secrets" / "database_url").read_text()

    @property
    def redis_url(self) -> str:
        return (self.directory / "secrets" / "redis_url").read_text()

    @property
    def running(self) -> bool:
        """Whether a supervisor runs."""
        return is_locked(self.directory)

    def launch(self) -> None:
        """Start a detached supervisor on the definition that `prepare` wrote."""
        if self.running:
            raise AlreadyRunningError(f"a stack runs in {self.directory} already")
        before = self.published()
        with (self.directory / "supervisor.log").open("ab") as log:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "volsched.lab.stack.run", str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        def complaint() -> str:
            return f"the supervisor did not start; see {log.name}"

        def started() -> bool:
            """Whether this supervisor has published; the state of an earlier one does not count."""
            if self.published() == before and supervisor.poll() is not None:
                raise NotReadyError(complaint())
            return self.published() != before

        self._wait(started, READY_SECONDS, complaint)

    def published(self) -> Published | None:
        """The last state that the supervisor published; None if there is none."""
        return read_published(self.directory)

    def wait_ready(self, *, seconds: float = READY_SECONDS, on_wait: Callable[[], None] = lambda: None) -> None:
        """Wait until everything that should run is healthy. Raises NotReadyError with what is not, and why.

        `seconds`: the longest time without another one becoming healthy. `on_wait` is called repeatedly meanwhile.
        """

        def settled() -> bool:
            on_wait()
            seen = self.published()
            return self.running and seen is not None and process_of(seen.supervisor) is not None and seen.settled

        self._wait(settled, seconds, self.complaint)

    def complaint(self) -> str:
        """The reasons why the stack is not ready, one line each."""
        states = self.published()
        if not self.running or states is None:
            return f"no supervisor runs in {self.directory}; see {self.directory / 'supervisor.log'}"
        late = [it for it in states.instances if it.condition not in (*SETTLED, Condition.STOPPED)]
        return "\n".join(f"{it.name} is {it.condition.value}{self._because(it, late)}" for it in late)

    def down(self) -> list[tuple[int, str]]:
        """End everything gracefully, or what a dead supervisor has left; pid and service of each leftover."""
        supervisor: Identity | None = None

        def ended() -> bool:
            """Repeated for another supervisor: one that is only starting has not published its pid."""
            nonlocal supervisor
            seen = self.published()
            if seen is not None and seen.supervisor != supervisor and send(seen.supervisor, signal.SIGTERM):
                supervisor = seen.supervisor
            # It unlocks the directory a moment before its process ends; both must have happened.
            return not self.running and (supervisor is None or process_of(supervisor) is None)

        if self.running:
            self._wait(ended, DOWN_SECONDS, lambda: "the supervisor does not end")
        if not (self.directory / "lock").exists():
            return []
        with alone(self.directory):
            return clean(self.directory, self.definition if (self.directory / "stack.json").exists() else None)

    # --- by name ----------------------------------------------------------------------------------------

    def instances(self, name: str) -> list[ServiceState]:
        """The instances that a name means. Raises StackError if there are none."""
        published = self.published()
        instances = [it for it in published.instances if name in (it.name, it.service)] if published else []
        if not instances:
            known = ", ".join(it.name for it in self.definition.services)
            raise StackError(f'there is no service "{name}" in this stack; there are {known}')
        return instances

    def processor_seconds(self) -> float:
        """Processor time of all services that run now."""
        published = self.published()
        running = [it.process for it in published.instances if it.process is not None] if published else []
        return sum(map(processor_seconds, running))

    def signal(self, name: str, number: signal.Signals, *, group: bool = True) -> list[int]:
        """Send a signal to the processes of a name; the pids that got it."""
        processes = [it.process for it in self.instances(name) if it.process is not None]
        return [it.pid for it in processes if send(it, number, group=group)]

    def kill(self, name: str) -> list[int]:
        """SIGKILL, with all child processes at once; the supervisor restarts it."""
        return self.signal(name, signal.SIGKILL)

    def pause(self, name: str) -> list[int]:
        """SIGSTOP, with all child processes."""
        return self.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> list[int]:
        return self.signal(name, signal.SIGCONT)

    def scale(self, service: str, count: int) -> None:
        """Run so many instances from now on; 0 stops the service."""
        if service not in self.definition.by_name():
            raise StackError(f'there is no service "{service}" in this stack')
        want(self.directory, WantedState({**read_wanted(self.directory).scale, service: count}))

    def stop(self, service: str) -> None:
        """Stop a service gracefully and keep it down; returns when it is."""
        self.scale(service, 0)
        self._wait(
            lambda: all(it.condition is Condition.STOPPED for it in self.instances(service)),
            DOWN_SECONDS,
            lambda: f"{service} does not end",
        )

    def start(self, service: str) -> None:
        """Start a stopped service with the scale of its definition; returns when it is healthy."""
        count = max(self.definition.service(service).scale, 1)
        self.scale(service, count)
        names = [instance_name(self.definition.service(service), number) for number in range(1, count + 1)]
        self._wait(lambda: all(self._healthy(it) for it in names), READY_SECONDS, self.complaint)

    def restart(self, name: str) -> None:
        """Restart one instance after the other, each ended gracefully and healthy again before the next."""
        for step in rolling(self, [name]):
            self._wait(step, READY_SECONDS + DOWN_SECONDS, self.complaint)

    # --- inside -----------------------------------------------------------------------------------------

    def _because(self, late: ServiceState, others: list[ServiceState]) -> str:
        if late.condition is Condition.WAITING:
            needed = self.definition.service(late.service).after
            return " for " + ", ".join(it.name for it in others if it.service in needed)
        return f": {late.health or 'see its log'}"

    def _healthy(self, name: str) -> bool:
        seen = self.published()
        return seen is not None and any(it.name == name and it.condition in SETTLED for it in seen.instances)

    def _wait(self, condition: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
        patience, most = Patience(seconds), (0, 0)
        while not condition():
            # The maximum so far: a process that repeatedly dies and restarts is no progress.
            most = max(most, self._ended_and_healthy())
            if patience.is_over(most):
                raise NotReadyError(complaint())
            time.sleep(LOOK_SECONDS)

    def _ended_and_healthy(self) -> tuple[int, int]:
        seen = self.published()
        conditions = [it.condition for it in seen.instances] if seen else []
        return conditions.count(Condition.STOPPED), sum(it in SETTLED for it in conditions)


def rolling(stack: Stack, names: Iterable[str]) -> Iterable[Callable[[], bool]]:
    """A rolling restart as conditions, one for each instance: it has begun when the next is requested.

    For callers with other work meanwhile, such as keeping up a load: call each until it returns True.
    """
    for name in names:
        for instance in stack.instances(name):
            if instance.process is None:
                continue
            service = stack.definition.service(instance.service)
            send(instance.process, signal.Signals[service.stop_signal])
            # A stopped process would not handle the signal.
            send(instance.process, signal.SIGCONT)
            yield partial(_renewed, stack, instance, time.monotonic() + service.grace)


def _renewed(stack: Stack, before: ServiceState, kill_at: float) -> bool:
    if time.monotonic() >= kill_at and before.process is not None:
        send(before.process, signal.SIGKILL, group=True)
    seen = stack.published()
    now = next((it for it in seen.instances if it.name == before.name), None) if seen else None
    return now is not None and now.condition in SETTLED and now.process not in (None, before.process)
