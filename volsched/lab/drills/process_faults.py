"""The faults that a drill injects into the processes of a stack, including a caller with very large requests."""

import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import redis
from pydantic_core import from_json, to_json
from sqlalchemy import select, update

from volsched.lab.drills.process_scenario import Step
from volsched.lab.drills.process_work import (
    OURS,
    Pods,
    bound_pods,
    database_url,
    named,
    open_bindings,
    unwritten_volumes,
)
from volsched.lab.faults import ON_SQLITE
from volsched.lab.stack.handle import Stack, rolling
from volsched.lab.stack.services import write_definition
from volsched.lab.stack.states import SETTLED, Condition, ServiceState, process_of
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.effects import MAX_ATTEMPTS, EffectState
from volsched.runtime.clock import SKEW
from volsched.runtime.fault_points import DRILL_FLAG

# A caller with very large requests, and how long all other callers wait meanwhile.

ITEMS = 20_000
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NAMESPACE = "/api/v1/namespaces/default"
JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
REQUEST_SECONDS = 120.0


@dataclass(slots=True)
class HeavyCaller:
    url: str
    name: str
    longest: float = 0.0
    """Seconds that `/livez`, or a small write, took during the large request."""
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=REQUESTS[self.name], args=(self,), name=self.name, daemon=True)
        self._thread.start()

    def probe(self) -> bool:
        """Send small requests, as other callers do; returns whether the large request has been answered."""
        done = not self._thread.is_alive()
        for method, path, body in (
            ("GET", "/livez", None),
            ("PATCH", NAMESPACE, {"metadata": {"annotations": {"volsched.io/drill": str(time.time())}}}),
        ):
            begun = time.monotonic()
            self.send(method, path, None if body is None else json.dumps(body).encode(), MERGE)
            self.longest = max(self.longest, time.monotonic() - begun)
        return done

    def send(self, method: str, path: str, body: bytes | None, form: str) -> None:
        """A refusal is an answer too."""
        asked = urllib.request.Request(self.url + path, body, {"content-type": form}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=REQUEST_SECONDS) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.close()


def _hot_patch(caller: HeavyCaller) -> None:
    """Many finalizers in another order: this work was once done under the log's lock."""
    finalizers = [f"drill.example.com/f{number}" for number in range(ITEMS)]
    claim: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "hot", "finalizers": finalizers},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    caller.send("POST", CLAIMS, json.dumps(claim).encode(), JSON)
    turned = finalizers[::-1]
    patch = {"metadata": {"$setElementOrder/finalizers": turned, "finalizers": turned}}
    caller.send("PATCH", f"{CLAIMS}/hot", json.dumps(patch).encode(), STRATEGIC)
    # Removed again, so that nothing has to manage it.
    caller.send("PATCH", f"{CLAIMS}/hot", b'{"metadata":{"finalizers":null}}', MERGE)
    caller.send("DELETE", f"{CLAIMS}/hot", None, JSON)


def _slow_body(caller: HeavyCaller) -> None:
    """Send as much YAML as a request may hold, and more, to an open path: it was once parsed in the event loop."""
    lines = "".join(f"  - k{number}: [1, 2, 3, a, b, c]\n" for number in range(ITEMS * 4))
    for path, most in ((REVIEWS, 2_900_000), (CLAIMS, 500_000)):
        for _ in range(3):
            caller.send("POST", path, f"spec:\n  extra:\n{lines[:most].rpartition('  -')[0]}".encode(), YAML)


REQUESTS: dict[str, Callable[[HeavyCaller], None]] = {"patch": _hot_patch, "yaml": _slow_body}


Until = Callable[[Callable[[], bool]], None]
"""Keeps the load up until a condition holds. Raises TimeoutError."""
FULL_BYTES = 64 * 1024
"""Beyond this offset nothing can be written to any file while PostgreSQL's disk is full."""
NO_LEG = 99


class ToolMissingError(Exception):
    """A tool that a step needs is not installed; the message says which."""


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
    """Instances that are paused on purpose."""
    stolen: set[str] = field(default_factory=set)
    """Bindings that lost a volume to another claim."""

    def carry_out(self, step: Step) -> None:
        CARRIED_OUT[step.verb](self, step)

    def asleep(self, name: str) -> list[psutil.Process]:
        """Processes of these instances that a fault point, or a user, has stopped."""
        return [
            it for seen in self._instances([name]) for it in _family(seen) if _status(it) == psutil.STATUS_STOPPED
        ]

    def wake_others(self, service: str, kept: Iterable[str]) -> None:
        """A fault point holds every process that reaches it; those that the drill does not need continue."""
        for seen in self._instances([service]):
            if seen.name not in self.paused and seen.name not in kept:
                for it in self.asleep(seen.name):
                    with suppress(psutil.NoSuchProcess):
                        it.send_signal(signal.SIGCONT)

    # --- steps, called by their names in `lab.faults` ---------------------------------------------------

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
        """Restarted with a wrong clock: the clock of a running process cannot be changed."""
        definition, names = self.stack.definition, named(self.engine, step.target)
        wrong = {DRILL_FLAG: "1", SKEW: f"{step.seconds:g}"}
        services = tuple(
            replace(it, environment={**it.environment, **wrong}) if it.name in names else it
            for it in definition.services
        )
        write_definition(self.stack.directory / "stack.json", replace(definition, services=services))
        self._restart(step)

    def _crash(self, step: Step) -> None:
        """Killed, and restarted with the right clock."""
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
        """A large request; other callers must get an answer within so many seconds meanwhile."""
        caller = HeavyCaller(self.pods.client.url, step.target)
        self.until(caller.probe)
        if caller.longest > step.seconds:
            raise TimeoutError(f"others waited {caller.longest:.1f} s for an answer during {step.target}")

    def _poison(self, _step: Step) -> None:
        """An effect names a missing leg, as a bug could cause.

        It starts with most attempts used up: all of them would take a minute.
        """
        effects, keys = tables.effects, list[str]()
        query = select(effects.c.key, effects.c.data).where(
            effects.c.state != EffectState.PARKED, effects.c.data.contains('"leg"')
        )

        def poisoned() -> bool:
            with self.database.write_beside_log() as connection:
                row = connection.execute(query.order_by(effects.c.key).limit(1)).first()
                if row is not None:
                    data = to_json({**from_json(row.data), "leg": NO_LEG}).decode()
                    changed = update(effects).where(effects.c.key == row.key)
                    connection.execute(changed.values(data=data, attempts=MAX_ATTEMPTS - 1))
                    keys.append(row.key)
            return bool(keys)

        self.until(poisoned)

    def _fill(self, _step: Step) -> None:
        """The database's files cannot grow, for any writer: a full disk, without being root.

        Unlike on a full disk the error is EFBIG and not ENOSPC, and free space within files can be used.
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
        for service_state in self._instances(OURS if self.engine == ON_SQLITE else ("postgres",)):
            # As their own user: root of a container may not change limits of others.
            user = self.stack.definition.service(service_state.service).user
            # A server without limits starts children without: they recover what those with limits could not write.
            # A limited server could not even create shared memory, which a full disk does not prevent.
            servers = 0 if self.engine == ON_SQLITE else 1
            for process in list(_family(service_state))[servers:]:
                command = ["prlimit", "--pid", str(process.pid), f"--fsize={most}:"]
                try:
                    done = subprocess.run(
                        command, capture_output=True, text=True, cwd="/", user=user, group=user,
                        extra_groups=None if user is None else [],
                    )  # fmt: skip
                except FileNotFoundError:
                    raise ToolMissingError("prlimit is not installed; it is part of util-linux") from None
                if done.returncode != 0 and process.is_running():
                    raise ToolMissingError(f"{' '.join(command)}: {done.stderr.strip()}")

    def _give(self, _step: Step) -> None:
        """Returns when pods are being bound."""
        self.pods.give_nodes()
        self.until(lambda: open_bindings(self.database) > 0 or bound_pods(self.database) > 0)

    def _delete(self, _step: Step) -> None:
        self.until(self.pods.delete_stuck)

    def _steal(self, _step: Step) -> None:
        """Give the first unwritten volume of every other binding in flight to another claim."""
        for binding, volume in list(unwritten_volumes(self.database).items())[::2]:
            self.until(lambda it=volume: self.pods.give_away(it))  # type: ignore[misc]
            self.stolen.add(binding)

    # --- inside -----------------------------------------------------------------------------------------

    def _instances(self, names: Iterable[str]) -> list[ServiceState]:
        seen = self.stack.published()
        wanted = set(names)
        return [it for it in seen.instances if wanted & {it.name, it.service}] if seen else []


CARRIED_OUT: Mapping[str, Callable[[ProcessFaults, Step], None]] = {
    "kill": ProcessFaults._kill,
    "pause": ProcessFaults._pause,
    "resume": ProcessFaults._resume,
    "stop": ProcessFaults._stop,
    "start": ProcessFaults._start,
    "restart": ProcessFaults._restart,
    "skew": ProcessFaults._skew,
    "crash": ProcessFaults._crash,
    "flush": ProcessFaults._flush,
    "wait": ProcessFaults._wait,
    "poison": ProcessFaults._poison,
    "fill": ProcessFaults._fill,
    "free": ProcessFaults._free,
    "give": ProcessFaults._give,
    "send": ProcessFaults._send,
    "delete": ProcessFaults._delete,
    "steal": ProcessFaults._steal,
}
"""The steps that `lab.faults` declares; a test compares both."""


def _family(service: ServiceState) -> Iterator[psutil.Process]:
    process = None if service.process is None else process_of(service.process)
    if process is not None:
        with suppress(psutil.NoSuchProcess):
            yield process
            yield from process.children(recursive=True)


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD
