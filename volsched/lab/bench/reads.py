"""What reading a store costs as it grows: a scheduler's start, `explain`, `get pv`, `verify`; with the exponents.

Processor time of this process. The store has local volumes on some nodes, all free, and two pods: one that fits,
and one whose claim is too large for every volume.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from volsched.kube.meta import HOSTNAME
from volsched.kube.storage import NO_PROVISIONER
from volsched.lab.bench.log import must
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision
from volsched.log.garbage_pause import collector_resting
from volsched.log.integrity.verify import verify
from volsched.log.reads.as_of import look_at_head
from volsched.log.transaction import execute
from volsched.questions.context import QuestionContext
from volsched.questions.explain.handlers import explain
from volsched.questions.explain.parameters import ExplainParameters
from volsched.questions.get.object_rows import state_rows
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.rules.profile import VOLSCHED

PER_COMMIT = 500
SECOND = 1_000_000
SIZES = 7
FITS, TOO_LARGE = "fits", "too-large"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow:
    what: str
    nodes: int
    volumes: int
    seconds: float
    """Of processor time."""
    exponent: float | None
    """How the time grows with the volumes, from the row before: 1 is in proportion."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def fill_volumes(database: Database, *, nodes: int, volumes: int) -> Iterator[int]:
    """Yields the events written so far."""
    made = [_made("class", "local", _class()), *(_made("node", _host(n), _node(n)) for n in range(nodes))]
    made += [_made("volume", f"pv-{n:06}", _volume(n, nodes)) for n in range(volumes)]
    for name, size in ((FITS, "11Gi"), (TOO_LARGE, "100Gi")):
        made += [
            _made("claim", f"default/{name}", _claim(name, size)),
            _made("pod", f"default/{name}", _pod(name)),
        ]
    for start in range(0, len(made), PER_COMMIT):
        events = tuple(made[start : start + PER_COMMIT])
        streams = tuple(it.stream for it in events)
        command = Command(actor="cli/apply/bench", streams=streams, decide=_always(Decision(events=events)))
        must(execute(database, [command], now=start * SECOND, react=lambda _, __: NOTHING))
        yield start + len(events)


def bench_reads(database: Database, *, nodes: int, volumes: int, cpu: Callable[[], float]) -> list[ReadRow]:
    cases: list[tuple[str, Callable[[], object]]] = [
        ("start of a scheduler", lambda: _start(database)),
        ("explain, a pod that fits", lambda: _explain(database, FITS)),
        ("explain, a pod that fits nowhere", lambda: _explain(database, TOO_LARGE)),
        ("get pv, rows", lambda: _rows(database)),
        ("verify", lambda: verify(database)),
    ]
    rows = []
    for what, ask in cases:
        began = cpu()
        ask()
        rows.append(ReadRow(what=what, nodes=nodes, volumes=volumes, seconds=cpu() - began, exponent=None))
    return rows


def with_exponents(rows: Sequence[ReadRow]) -> list[ReadRow]:
    """Rows of several sizes, the smallest first, each with its growth from the one before."""
    known: dict[str, ReadRow] = {}
    found = []
    for row in rows:
        before = known.get(row.what)
        exponent = None
        if before is not None and before.seconds > 0 and before.volumes < row.volumes:
            exponent = math.log(row.seconds / before.seconds) / math.log(row.volumes / before.volumes)
        known[row.what] = row
        found.append(
            ReadRow(what=row.what, nodes=row.nodes, volumes=row.volumes, seconds=row.seconds, exponent=exponent)
        )
    return found


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
        look = look_at_head(connection)
        for row in state_rows("volume", look.every("volume"), now=0, look=look):
            row.cells()


def _always(decision: Decision) -> Callable[[object], Decision]:
    return lambda _: decision


def _made(noun: str, key: str, manifest: dict[str, Any]) -> NewEvent:
    return NewEvent(stream=f"{noun}/{key}", type=f"{noun.capitalize()}Created", data={"patch": manifest})


def _host(number: int) -> str:
    return f"node-{number:05}"


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
        "capacity": {"storage": f"{10 + number % SIZES}Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "local",
        "local": {"path": f"/mnt/{number}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return _object("PersistentVolume", f"pv-{number:06}", spec=spec, status={"phase": "Available"})


def _claim(name: str, size: str) -> dict[str, Any]:
    asked = {"resources": {"requests": {"storage": size}}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", **asked}
    claim = _object("PersistentVolumeClaim", name, spec=spec, status={"phase": "Pending"})
    return claim | {"metadata": claim["metadata"] | {"namespace": "default"}}


def _pod(name: str) -> dict[str, Any]:
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    pod = _object("Pod", name, spec={"containers": [{"name": "c"}], "volumes": [mount]})
    return pod | {"metadata": pod["metadata"] | {"namespace": "default"}}
