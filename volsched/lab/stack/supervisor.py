"""The supervisor: brings services up in order, keeps them up, takes them down in the opposite order.

A `step(now)` like everything that runs here; it never waits. What it was asked for lies in files that it reads
again when they change, what it sees in a file that others read, so that it can die at any moment: its services go
on, and the next supervisor finds them (`leftovers`).

As with Docker, an unhealthy service is shown and not killed: whoever it waits for may come back.
"""

import os
from pathlib import Path

from volsched.lab.stack.identity import identify
from volsched.lab.stack.instance import Instance
from volsched.lab.stack.services import Definition, in_order, needing, read_definition
from volsched.lab.stack.states import SETTLED, Condition, Published, publish, read_wanted
from volsched.runtime.clock import SECOND

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
        """Told to stop, and nothing runs any more."""
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
        """Others are waited for before its first start only: to bear their absence later is its own business."""
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
            Published(supervisor=self._myself, instances=tuple(it.seen for it in self.instances)),
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
