"""The cost of reading a store as it grows: scheduler start, `explain`, `get pv`, `verify`, the periodic resync.

Processor time of this process, and of the commands that it runs. The store has local volumes on some nodes, free
or bound to the claims of running pods, and two pods without a node: one that fits, and one whose claim is larger
than every volume.
"""

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from volsched.kube.meta import BIND_COMPLETED, HOSTNAME
from volsched.kube.storage import NO_PROVISIONER
from volsched.lab.bench.figure_history import SizeAxis
from volsched.lab.bench.log import must
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision
from volsched.log.garbage_pause import collector_resting
from volsched.log.integrity.verify import verify
from volsched.log.reads.as_of import view_at_head
from volsched.log.transaction import execute
from volsched.objects.rules.object_events import created_event
from volsched.pv_controller.controller import RESYNC, Controller
from volsched.questions.context import QuestionContext
from volsched.questions.explain.handlers import explain
from volsched.questions.explain.parameters import ExplainParameters
from volsched.questions.get.object_rows import state_rows
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.rules.profile import VOLSCHED

PER_COMMIT = 500
SECOND = 1_000_000
SIZES, SMALLEST = 7, 10
FITS, TOO_LARGE = "fits", "too-large"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow:
    what: str
    engine: str
    nodes: int
    volumes: int
    in_use: int
    """How many of the volumes are bound, each to the claim of a running pod."""
    seconds: float
    """Processor time."""
    over_nodes: float | None = None
    """How the time grows with the nodes, as many volumes in all; 1 is in proportion."""
    over_volumes: float | None = None
    """How it grows with the volumes, as many on each node: the cluster grows as a whole."""
    over_volumes_a_node: float | None = None
    """How it grows with the volumes on each node, as many nodes."""

    @property
    def volumes_a_node(self) -> float:
        return self.volumes / self.nodes

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _axis(column: str, size: Callable[[ReadRow], float], same: Callable[[ReadRow], float]) -> SizeAxis[ReadRow]:
    return SizeAxis(
        column=column,
        size=size,
        alike=lambda row: (row.what, row.engine, row.in_use / row.volumes, same(row)),
        figure=lambda row: row.seconds,
    )


READ_AXES = (
    _axis("over_nodes", lambda row: row.nodes, lambda row: row.volumes),
    _axis("over_volumes", lambda row: row.volumes, lambda row: row.volumes_a_node),
    _axis("over_volumes_a_node", lambda row: row.volumes_a_node, lambda row: row.nodes),
)


def fill_volumes(database: Database, *, nodes: int, volumes: int, in_use: int = 0) -> Iterator[int]:
    """The first volumes are in use, each with a claim and a pod. Yields the events written so far."""
    creations = [created_event("class/local", _class())]
    creations += [created_event(f"node/{_host(n)}", _node(n)) for n in range(nodes)]
    creations += [it for n in range(in_use) for it in _used_volume(n, nodes)]
    creations += [created_event(f"volume/{_name(n)}", _volume(n, nodes)) for n in range(in_use, volumes)]
    for name, size in ((FITS, "11Gi"), (TOO_LARGE, "100Gi")):
        creations += [
            created_event(f"claim/default/{name}", _claim(name, size)),
            created_event(f"pod/default/{name}", _pod(name)),
        ]
    for start in range(0, len(creations), PER_COMMIT):
        events = tuple(creations[start : start + PER_COMMIT])
        streams = tuple(it.stream for it in events)
        command = Command(actor="cli/apply/bench", streams=streams, decide=_always(Decision(events=events)))
        must(execute(database, [command], now=start * SECOND, react=lambda _, __: NOTHING))
        yield start + len(events)


def bench_reads(
    database: Database, *, nodes: int, volumes: int, cpu: Callable[[], float], in_use: int = 0
) -> Iterator[ReadRow]:
    """`cpu` counts the processor time of this process and of those that it has waited for."""

    def measure(what: str, ask: Callable[[], object]) -> ReadRow:
        # Garbage of the previous question is not charged to this one.
        gc.collect()
        began = cpu()
        ask()
        engine = database.engine.dialect.name
        seconds = cpu() - began
        return ReadRow(what=what, engine=engine, nodes=nodes, volumes=volumes, in_use=in_use, seconds=seconds)

    yield measure("start of a scheduler", lambda: _start(database))
    yield measure("explain, a pod that fits", lambda: _explain(database, FITS))
    yield measure("explain, a pod that fits nowhere", lambda: _explain(database, TOO_LARGE))
    yield measure(
        "explain, a pod that is not there, whole command", lambda: _ask(database, 3, "explain", "pod", "nobody")
    )
    yield measure("get pv, rows", lambda: _rows(database))
    yield measure("get pv, whole command", lambda: _ask(database, 0, "get", "pv"))
    yield measure("get pv NAME, whole command", lambda: _ask(database, 0, "get", "pv", _name(0)))
    yield measure("verify", lambda: verify(database))
    # The last, because taking the lead writes to the store.
    resync = _rested(database)
    yield measure(f"periodic resync, one of every {RESYNC // SECOND} s", resync)


def _start(database: Database) -> None:
    world = World(database)
    picture = Picture(world)
    picture.update(world.catch_up())
    picture.index.decide(picture.index.snapshot.pods[f"default/{FITS}"])


def _explain(database: Database, pod: str) -> None:
    context = QuestionContext(store=database, now=0, profile=VOLSCHED)
    explain(context, ExplainParameters(name=pod, namespace="default", manifests=[]))


def _rows(database: Database) -> None:
    with database.read() as connection, collector_resting():
        view = view_at_head(connection)
        for row in state_rows("volume", view.every("volume"), now=0, view=view):
            row.cells()


def _ask(database: Database, exit_code: int, *words: str) -> None:
    """A command as it is typed, with the start of its process."""
    url = database.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "volsched", *words, "--db", url]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != exit_code:
        raise RuntimeError(f"volsched {' '.join(words)} ended with {run.returncode}: {run.stderr.strip()}")


def _rested(database: Database) -> Callable[[], object]:
    """The next resync of a controller that has synced everything once and has nothing to do."""
    world = World(database)
    controller = Controller(database, world, "bench")
    controller.update(world.catch_up(), 0)
    while controller.step(0):
        controller.update(world.catch_up(), 0)

    def resync() -> None:
        while controller.step(RESYNC):
            controller.update(world.catch_up(), RESYNC)

    return resync


def _always(decision: Decision) -> Callable[[object], Decision]:
    return lambda _: decision


def _host(number: int) -> str:
    return f"node-{number:05}"


def _name(number: int) -> str:
    return f"pv-{number:06}"


def _object(kind: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": f"uid-{kind}-{name}"}, **rest}


def _class() -> dict[str, Any]:
    maker, mode = NO_PROVISIONER, "WaitForFirstConsumer"
    return _object("StorageClass", "local", provisioner=maker, volumeBindingMode=mode)


def _node(number: int) -> dict[str, Any]:
    host = _host(number)
    return _object("Node", host) | {"metadata": {"name": host, "uid": host, "labels": {HOSTNAME: host}}}


def _volume(number: int, nodes: int) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [_host(number % nodes)]}]}
    spec = {
        "capacity": {"storage": f"{SMALLEST + number % SIZES}Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "local",
        "local": {"path": f"/mnt/{number}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return _object("PersistentVolume", _name(number), spec=spec, status={"phase": "Available"})


def _used_volume(number: int, nodes: int) -> Iterator[NewEvent]:
    """Bound to the claim of a pod that runs where the volume is."""
    name, volume_name = f"user-{number:06}", _name(number)
    claim, volume, pod = _claim(name, f"{SMALLEST}Gi"), _volume(number, nodes), _pod(name)
    claim["metadata"]["annotations"] = {BIND_COMPLETED: "yes"}
    claim["spec"]["volumeName"], claim["status"] = volume_name, {"phase": "Bound"}
    named = {it: claim["metadata"][it] for it in ("namespace", "name", "uid")}
    volume["spec"]["claimRef"], volume["status"] = named, {"phase": "Bound"}
    pod["spec"]["nodeName"], pod["status"] = _host(number % nodes), {"phase": "Running"}
    yield created_event(f"volume/{volume_name}", volume)
    yield created_event(f"claim/default/{name}", claim)
    yield created_event(f"pod/default/{name}", pod)


def _claim(name: str, size: str) -> dict[str, Any]:
    resources = {"resources": {"requests": {"storage": size}}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", **resources}
    claim = _object("PersistentVolumeClaim", name, spec=spec, status={"phase": "Pending"})
    return claim | {"metadata": claim["metadata"] | {"namespace": "default"}}


def _pod(name: str) -> dict[str, Any]:
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    pod = _object("Pod", name, spec={"containers": [{"name": "c"}], "volumes": [mount]})
    return pod | {"metadata": pod["metadata"] | {"namespace": "default"}}
