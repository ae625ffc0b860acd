"""The cost of the console's map on a large cluster: the questions behind it, and the frames of the page."""

import json
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from volsched import console
from volsched.kube.meta import HOSTNAME, ZONE
from volsched.lab.bench.log import must
from volsched.log.commands import Command
from volsched.log.database import Database
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import NOTHING, Decision, States
from volsched.log.reads.as_of import view_at_head
from volsched.log.transaction import execute
from volsched.objects.rules.object_events import created_event
from volsched.questions.context import QuestionContext
from volsched.questions.registry import ask, model_of, question

SECOND = 1_000_000
NODES_IN_RACK, ZONES = 20, 5
PER_COMMIT = 500
BOUND_OF_TEN = 8
RACK = "topology.example.com/rack"
TIMES = 3
FRAMES = Path(console.__file__).parent / "web" / "bench" / "frames.mjs"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    case: str
    milliseconds: float
    """The median processor time; for frames, their time on the screen."""
    ratio: float | None
    """The ratio to reading and parsing the volumes alone."""
    kilobytes: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def fill_map(database: Database, *, nodes: int, volumes: int) -> Iterator[int]:
    """A cluster of local volumes, eight of ten of them bound to a claim that a pod uses; yields events written."""
    creations = [_node(n) for n in range(nodes)]
    for number in range(volumes):
        creations += _volume(number, nodes)
    for start in range(0, len(creations), PER_COMMIT):
        events = creations[start : start + PER_COMMIT]
        must(execute(database, [_writing(events)], now=start * SECOND, react=lambda _, __: NOTHING))
        yield start + len(events)


def bench_map(database: Database, *, clock: Callable[[], float], now: int) -> list[MapRow]:
    with database.read() as connection:
        look = view_at_head(connection)
        baseline = _median(lambda: len(list(look.every("volume"))), clock)
    rows = [MapRow(case="read and parse the volumes", milliseconds=baseline * 1000, ratio=1.0)]
    context = QuestionContext(store=database, now=now)
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("map, counted by rack", "map", {"by": f"{ZONE},{RACK}"}),
        ("map of one rack", "map", {"by": f"{ZONE},{RACK}", "within": "zone-0/rack-0"}),
        ("map as of the middle", "map", {"as_of": str(look.position // 2)}),
        ("timeline", "timeline", {}),
    ]
    for case, name, parameters in cases:
        declaration = question(name)
        checked = model_of(declaration)(**parameters)
        answers: list[bytes] = []
        spent = _median(lambda: answers.append(orjson.dumps(ask(declaration, context, checked))), clock)  # noqa: B023
        rows.append(
            MapRow(case=case, milliseconds=spent * 1000, ratio=spent / baseline, kilobytes=len(answers[-1]) / 1000)
        )
    return rows


def bench_frames(url: str) -> list[MapRow]:
    """The page in a real browser: until the first picture, and frames while it scrolls; none without one."""
    node = shutil.which("node")
    if node is None or not (FRAMES.parents[1] / "node_modules").is_dir():
        return []
    ran = subprocess.run([node, FRAMES, url], capture_output=True, text=True, check=True)
    return [MapRow(case=case, milliseconds=value, ratio=None) for case, value in json.loads(ran.stdout).items()]


def _median(call: Callable[[], object], clock: Callable[[], float]) -> float:
    spent = []
    for _ in range(TIMES):
        begun = clock()
        call()
        spent.append(clock() - begun)
    return statistics.median(spent)


def _node(number: int) -> NewEvent:
    name = f"node-{number:05}"
    rack = number // NODES_IN_RACK
    labels = {HOSTNAME: name, ZONE: f"zone-{rack % ZONES}", RACK: f"rack-{rack}"}
    return created_event(
        f"node/{name}", {"kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels}}
    )


def _volume(number: int, nodes: int) -> list[NewEvent]:
    name, host = f"volume-{number:06}", f"node-{number % nodes:05}"
    is_bound = number % 10 < BOUND_OF_TEN
    claim = {"namespace": "bench", "name": name, "uid": f"claim-{name}"}
    term = {"key": HOSTNAME, "operator": "In", "values": [host]}
    spec: dict[str, Any] = {
        "capacity": {"storage": f"{10 * (1 + number % 7)}Gi"},
        "storageClassName": ("fast", "slow")[number % 2],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    status = {"phase": "Bound" if is_bound else "Available"}
    whole = {"kind": "PersistentVolume", "metadata": {"name": name, "uid": name}, "spec": spec, "status": status}
    if not is_bound:
        return [created_event(f"volume/{name}", whole)]
    spec["claimRef"] = claim
    meta = {"namespace": "bench", "name": name}
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    return [
        created_event(f"volume/{name}", whole),
        created_event(
            f"claim/bench/{name}",
            {
                "kind": "PersistentVolumeClaim",
                "metadata": meta | {"uid": f"claim-{name}"},
                "spec": {"volumeName": name, "resources": {"requests": {"storage": "10Gi"}}},
                "status": {"phase": "Bound", "dataState": "Dirty"},
            },
        ),
        created_event(
            f"pod/bench/{name}",
            {
                "kind": "Pod",
                "metadata": meta | {"uid": f"pod-{name}"},
                "spec": {"nodeName": host, "volumes": [mount]},
                "status": {"phase": "Running"},
            },
        ),
    ]


def _writing(events: list[NewEvent]) -> Command:
    def decide(_: States) -> Decision:
        return Decision(events=tuple(events))

    return Command(actor="cli/apply/bench", streams=tuple(it.stream for it in events), decide=decide)
