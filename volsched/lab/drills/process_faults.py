"""What is done to the processes of a stack in a drill, step by step, while its load goes on."""

import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import redis
from pydantic_core import from_json, to_json
from sqlalchemy import select, update

from volsched.lab.drills.heavy_caller import HeavyCaller
from volsched.lab.drills.process_places import OURS, database_url, named
from volsched.lab.drills.process_scenario import ON_SQLITE, Step
from volsched.lab.drills.process_work import Pods, bound_pods, open_bindings, unwritten_volumes
from volsched.lab.stack.handle import Stack, rolling
from volsched.lab.stack.identity import process_of
from volsched.lab.stack.services import write_definition
from volsched.lab.stack.states import SETTLED, Condition, ServiceState
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.effects import MAX_ATTEMPTS, EffectState
from volsched.runtime.clock import SKEW
from volsched.runtime.fault_points import DRILL_FLAG

Until = Callable[[Callable[[], bool]], None]
"""Keeps the load up until a condition holds. Raises TimeoutError."""
FULL_BYTES = 64 * 1024
"""Beyond this offset nothing can be written to any file while PostgreSQL's disk is full."""
NO_LEG = 99


class ToolMissingError(Exception):
    """Something that a step needs is not installed; the message says what."""


@dataclass(slots=True)
class ProcessFaults:
    stack: Stack
    engine: str
    database: Database
    pods: Pods
    until: Until
    clock: Callable[[], float]
    """Seconds, for waits alone."""
    paused: set[str] = field(default_factory=set)
    """Instances that are frozen on purpose."""
    stolen: set[str] = field(default_factory=set)
    """Bindings of which somebody else took a volume."""

    def carry_out(self, step: Step) -> None:
        getattr(self, f"_{step.verb}")(step)

    def asleep(self, name: str) -> list[psutil.Process]:
        """Processes of these instances that a fault point, or somebody, has put to sleep."""
        return [
            it for seen in self._instances([name]) for it in _family(seen) if _status(it) == psutil.STATUS_STOPPED
        ]

    def wake_others(self, service: str, kept: Iterable[str]) -> None:
        """A fault point holds every process that comes to it; those that the drill does not mean go on."""
        for seen in self._instances([service]):
            if seen.name not in self.paused and seen.name not in kept:
                for it in self.asleep(seen.name):
                    with suppress(psutil.NoSuchProcess):
                        it.send_signal(signal.SIGCONT)

    # --- steps, called by their verbs -------------------------------------------------------------------

    def _kill(self, step: Step) -> None:
        for name in named(self.engine, step.target):
            self.stack.kill(name)

    def _pause(self, step: Step) -> None:
        for name in named(self.engine, step.target):
            self.paused.update(it.name for it in self._instances([name]))
            self.stack.pause(name)

    def _resume(self, step: Step) -> None:
        for name in named(self.engine, step.target):
            self.paused.difference_update(it.name for it in self._instances([name]))
            self.stack.resume(name)

    def _stop(self, step: Step) -> None:
        for name in named(self.engine, step.target):
            self.stack.scale(name, 0)
            self.until(lambda it=name: all(s.condition is Condition.STOPPED for s in self._instances([it])))  # type: ignore[misc]

    def _start(self, step: Step) -> None:
        for name in named(self.engine, step.target):
            self.stack.scale(name, max(self.stack.definition.service(name).scale, 1))
            self.until(lambda it=name: any(s.condition in SETTLED for s in self._instances([it])))  # type: ignore[misc]

    def _restart(self, step: Step) -> None:
        for renewed in rolling(self.stack, named(self.engine, step.target)):
            self.until(renewed)

    def _skew(self, step: Step) -> None:
        """It is started again with a wrong clock: nobody can change that of a process that runs."""
        definition, names = self.stack.definition, named(self.engine, step.target)
        wrong = {DRILL_FLAG: "1", SKEW: f"{step.seconds:g}"}
        services = tuple(
            replace(it, environment={**it.environment, **wrong}) if it.name in names else it
            for it in definition.services
        )
        write_definition(self.stack.directory / "stack.json", replace(definition, services=services))
        self._restart(step)

    def _crash(self, step: Step) -> None:
        """Killed, and started with the right clock again."""
        definition, names = self.stack.definition, named(self.engine, step.target)
        services = tuple(
            replace(it, environment={key: value for key, value in it.environment.items() if key != SKEW})
            if it.name in names
            else it
            for it in definition.services
        )
        write_definition(self.stack.directory / "stack.json", replace(definition, services=services))
        self._kill(step)

    def _flush(self, _step: Step) -> None:
        with redis.Redis.from_url(self.stack.redis_url) as client:
            client.flushall()

    def _wait(self, step: Step) -> None:
        end = self.clock() + step.seconds
        self.until(lambda: self.clock() >= end)

    def _send(self, step: Step) -> None:
        """A large request; whoever else asks must be answered within so many seconds meanwhile."""
        caller = HeavyCaller(self.pods.client.url, step.target)
        self.until(caller.look)
        if caller.longest > step.seconds:
            raise TimeoutError(f"others waited {caller.longest:.1f} s for an answer during {step.target}")

    def _poison(self, _step: Step) -> None:
        """An effect names a leg that is not there, as a mistake of a program could have it.

        It has failed often already: all of its attempts would take a minute.
        """
        effects, found = tables.effects, list[str]()
        asked = select(effects.c.key, effects.c.data).where(
            effects.c.state != EffectState.PARKED, effects.c.data.contains('"leg"')
        )

        def poisoned() -> bool:
            with self.database.write() as connection:
                self.database.dialect.begin_beside_log(connection)
                row = connection.execute(asked.order_by(effects.c.key).limit(1)).first()
                if row is not None:
                    data = to_json({**from_json(row.data), "leg": NO_LEG}).decode()
                    changed = update(effects).where(effects.c.key == row.key)
                    connection.execute(changed.values(data=data, attempts=MAX_ATTEMPTS - 1))
                    found.append(row.key)
            return bool(found)

        self.until(poisoned)

    def _fill(self, _step: Step) -> None:
        """Files of the database cannot grow, for whoever writes to them: a disk without room, without being root.

        Unlike on a full disk the error is EFBIG and not ENOSPC, and room within files can be used.
        """
        if self.engine == ON_SQLITE:
            store = Path(database_url(self.stack, self.engine).removeprefix("sqlite:///"))
            most = max(store.with_name(f"{store.name}-wal").stat().st_size, 4_096)
        else:
            most = FULL_BYTES
        self._limit(str(most))

    def _free(self, _step: Step) -> None:
        self._limit("unlimited")

    def _limit(self, most: str) -> None:
        for seen in self._instances(OURS if self.engine == ON_SQLITE else ("postgres",)):
            # As whoever they run as: root of a container may not change limits of others.
            user = self.stack.definition.service(seen.service).user
            # A server without limits starts children without: they recover what those with limits could not write.
            # Were it limited itself, it could not even make shared memory, which a full disk does not prevent.
            servers = 0 if self.engine == ON_SQLITE else 1
            for it in list(_family(seen))[servers:]:
                command = ["prlimit", "--pid", str(it.pid), f"--fsize={most}:"]
                try:
                    done = subprocess.run(
                        command, capture_output=True, text=True, cwd="/", user=user, group=user,
                        extra_groups=None if user is None else [],
                    )  # fmt: skip
                except FileNotFoundError:
                    raise ToolMissingError("prlimit is not installed; it is part of util-linux") from None
                if done.returncode != 0 and it.is_running():
                    raise ToolMissingError(f"{' '.join(command)}: {done.stderr.strip()}")

    def _give(self, _step: Step) -> None:
        """Returns when the herd runs."""
        self.pods.give_nodes()
        self.until(lambda: open_bindings(self.database) > 0 or bound_pods(self.database) > 0)

    def _delete(self, _step: Step) -> None:
        self.until(self.pods.delete_stuck)

    def _steal(self, _step: Step) -> None:
        """Of every other binding in flight, the first volume that nobody has written yet goes to another claim."""
        for binding, volume in list(unwritten_volumes(self.database).items())[::2]:
            self.until(lambda it=volume: self.pods.give_away(it))  # type: ignore[misc]
            self.stolen.add(binding)

    # --- inside -----------------------------------------------------------------------------------------

    def _instances(self, names: Iterable[str]) -> list[ServiceState]:
        seen = self.stack.seen()
        wanted = set(names)
        return [it for it in seen.instances if wanted & {it.name, it.service}] if seen else []


def _family(seen: ServiceState) -> Iterator[psutil.Process]:
    process = None if seen.process is None else process_of(seen.process)
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            yield process
            yield from process.children(recursive=True)


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD
