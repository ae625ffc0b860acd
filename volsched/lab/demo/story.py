"""The demo as a whole: scenes of placement, of failure and of proof, in order."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from volsched.binding.recovery import Recovered, recover
from volsched.binding.rules.effects import PREBIND
from volsched.binding.rules.phases import LegPhase, Phase
from volsched.kube.meta import ZONE
from volsched.lab.demo.stage import (
    CLUSTER,
    CONTENDER,
    DATABASE,
    LATENCY_SECONDS,
    LEDGER,
    QUEUE,
    RACK,
    SHOP,
    DemoScene,
    Manifest,
    Rows,
    SceneError,
    Stage,
    StageLine,
    check,
    disk,
    new_id,
)
from volsched.lab.demo.worker import LEASE_SECONDS
from volsched.log.events.fold import BindingState
from volsched.log.events.streams import BINDING
from volsched.log.integrity.verify import verify
from volsched.log.reads.event_audit import EVERYTHING, stream_page
from volsched.log.store import migrate_store, open_store
from volsched.questions.audit.answers import Item
from volsched.questions.explain.explain import explain_pod
from volsched.questions.history.history import binding_history, changes
from volsched.questions.invariants import violations
from volsched.questions.simulate.changes import ChangeKind
from volsched.runtime.clock import system_clock
from volsched.runtime.system import System
from volsched.scheduling.rules.status import Rule

# Scenes of failure: a worker that is killed between two writes, and a volume that another claim takes.

LEDGER_POD, QUEUE_POD = f"{SHOP}/ledger-0", f"{SHOP}/queue-0"
STOLEN, SOMEBODY = "n1-large", "somebody-else"
SECOND_CLAIMED = "executor.claimed*2:kill"
"""By then the first volume is written, and the worker has claimed the second write, which it never makes."""
PAGE = 100


def killed(stage: Stage) -> Iterator[StageLine]:
    stage.apply(LEDGER)
    with stage.system() as system:
        _plan(system)
    binding, planned = stage.last_binding(LEDGER_POD)
    yield f"pod {LEDGER_POD} is planned on {planned.plan['node']}; a worker process has two volumes to write."
    code = stage.run_worker(fault=SECOND_CLAIMED)
    check(code == -signal.SIGKILL, f"the worker ended with {code}, not by SIGKILL")
    _, left = stage.last_binding(LEDGER_POD)
    check(
        [leg.state for leg in left.legs] == [LegPhase.WRITTEN, LegPhase.ASSUMED], "it left unexpected legs behind"
    )
    yield f"The worker was killed (SIGKILL) between the two. What it left, binding {binding} ({left.state}):"
    yield _legs(left)
    report = recover(stage.database, owner=new_id(), now=system_clock(), dry_run=True)
    check([it.outcome for it in report.bindings] == [Recovered.RESUMED], "recovery would not resume it")
    seconds = stage.run()
    _, ended = stage.last_binding(LEDGER_POD)
    check(
        (ended.state, stage.node_of(LEDGER_POD)) == (Phase.COMMITTED, ended.plan["node"]), f"it is {ended.state}"
    )
    yield f"Recovered {seconds:.1f} s later, when the dead worker's lease of {LEASE_SECONDS} s had run out:"
    yield _legs(ended)
    writes = [_times_given(stage, leg.volume or "") for leg in ended.legs]
    check(writes == [1, 1], f"the volumes were written {writes} times")
    yield f"The binding is {ended.state}, the pod on {ended.plan['node']}; each volume was written exactly once."


def stolen(stage: Stage) -> Iterator[StageLine]:
    stage.apply(RACK)
    stage.run()
    stage.apply(QUEUE)
    with stage.system() as system:
        # One effect at a time, so that there is a moment between the two writes.
        system.executor = replace(system.executor, batch=1)
        _plan(system)
        system.executor.step(PREBIND, system_clock())
        binding, half = stage.last_binding(QUEUE_POD)
        yield f"pod {QUEUE_POD} asks for 2Gi and 6Gi; the closest fit is {half.plan['node']}. Half way:"
        yield _legs(half)
        check([leg.state for leg in half.legs] == [LegPhase.WRITTEN, LegPhase.ASSUMED], "it is not half way")
        _take(stage, STOLEN)
        yield f"Now another user gives {STOLEN} to a claim of their own."
        seconds = stage.settle(system)
    second, done = stage.last_binding(QUEUE_POD, of=2)
    first, undone = stage.bindings_of(QUEUE_POD)[0]
    check(
        (first, undone.state, done.state) == (binding, Phase.ROLLED_BACK, Phase.COMMITTED),
        "the bindings ended otherwise",
    )
    yield f"binding {first} is {undone.state}: {undone.reason}"
    yield _legs(undone)
    check([leg.state for leg in undone.legs] == [LegPhase.RELEASED, LegPhase.VOIDED], "a leg was not undone")
    check("claimRef" not in stage.get("volume", "n1-small")["spec"], "n1-small was not freed")
    check(stage.node_of(QUEUE_POD) == done.plan["node"] == "node-0", f"the pod is on {stage.node_of(QUEUE_POD)}")
    yield f"n1-small is free again, and binding {second} is {done.state} ({seconds:.1f} s in all):"
    yield _legs(done)
    yield f"The pod is on {done.plan['node']}."


def _plan(system: System) -> None:
    """Only the scheduler runs: it decides, and queues the writes."""
    now = system_clock()
    system.catch_up(now)
    system.scheduler.step(now)


def _take(stage: Stage, volume: str) -> None:
    found = stage.get("volume", volume)
    owner = {"kind": "PersistentVolumeClaim", "namespace": "elsewhere", "name": "report"}
    taken = {**found, "spec": {**found["spec"], "claimRef": owner}}
    stage.apply([taken], actor=SOMEBODY, reason="we need it more")


def _legs(state: BindingState) -> Rows:
    return Rows(("claim", "volume", "state"), [(leg.claim, leg.volume or "-", leg.state) for leg in state.legs])


def _times_given(stage: Stage, volume: str) -> int:
    """How often an executed write gave the volume to a claim, without assumptions."""
    with stage.database.read() as connection:
        events = stream_page(connection, f"volume/{volume}", EVERYTHING, limit=PAGE)
    return sum(it.type == "VolumeChanged" and '"claimRef":{' in it.data for it in events)


# Scenes of placement: the cluster, a pod with three claims, and one whose disk is taken already.

DB, ANALYTICS = f"{SHOP}/db-0", f"{SHOP}/analytics-0"
REMEDIES_SHOWN = 2


def cluster(stage: Stage) -> Iterator[StageLine]:
    stage.apply(CLUSTER, reason="the demo's cluster")
    stage.run()
    volumes = list(stage.objects("volume"))
    check(all(it["status"]["phase"] == "Available" for it in volumes), "a disk did not become Available")
    rooms = {
        it["nodeTopology"]["matchLabels"][ZONE]: it["capacity"]
        for it in stage.objects("capacity")
        if it["storageClassName"] == "zonal"
    }
    nodes = list(stage.objects("node"))
    zones = {it["metadata"]["labels"][ZONE] for it in nodes}
    check(rooms.keys() == zones, "the provisioner did not publish its room in every zone")
    rows = []
    for it in nodes:
        name, zone = it["metadata"]["name"], it["metadata"]["labels"][ZONE]
        rows.append((name, zone, _disks(volumes, name), rooms[zone]))
    yield Rows(("node", "zone", "local disks", "room for zonal volumes"), rows)
    yield "Local disks are there already; zonal volumes are created on demand by a simulated provisioner."


def three_claims(stage: Stage) -> Iterator[StageLine]:
    stage.apply(DATABASE)
    before = stage.position
    seconds = stage.run()
    node = stage.node_of(DB)
    binding, state = stage.last_binding(DB)
    check((node, state.state) == ("node-a1", Phase.COMMITTED), f"{DB} is on {node}, its binding {state.state}")
    yield f"pod {DB} is on {node}; binding {binding} is {state.state}"
    rows = []
    for leg in state.legs:
        claim = stage.get("claim", leg.claim)
        check(claim["status"]["phase"] == "Bound", f"claim {leg.claim} is not bound")
        volume = stage.get("volume", claim["spec"]["volumeName"])
        asked = claim["spec"]["resources"]["requests"]["storage"]
        created = "created for it" if leg.dynamic else "was there"
        rows.append((leg.claim, asked, volume["metadata"]["name"], volume["spec"]["capacity"]["storage"], created))
    mix = sorted(row[-1] for row in rows)
    check(mix == ["created for it", "was there", "was there"], "unexpected volumes")
    yield Rows(("claim", "asks for", "volume", "size", ""), rows)
    yield (
        f"One transaction of three legs: {stage.position - before} events in {seconds:.2f} s, of which the "
        f"provisioner took {LATENCY_SECONDS} s."
    )


def contended(stage: Stage) -> Iterator[StageLine]:
    stage.apply(CONTENDER)
    with stage.system() as system:
        stage.settle(system)
        check(stage.node_of(ANALYTICS) is None, f"{ANALYTICS} found a node")
        explanation = explain_pod(system.picture.index, system.picture.index.snapshot.pods[ANALYTICS])
    check(not explanation["fits"], f"{ANALYTICS} would fit")
    yield f"pod {ANALYTICS} waits: {explanation['message']}"
    rows = [_nearest(it["node"], claim) for it in _details(explanation) for claim in it["rejections"]]
    yield Rows(("node", "claim", "nearest", "wanted", "got"), rows)
    yield "Any one of these would help; each was tried on a copy, the smallest first:"
    for number, remedy in enumerate(explanation["remedies"][:REMEDIES_SHOWN], start=1):
        changes = " and ".join(it["text"] for it in remedy["changes"])
        yield f"  {number}. {changes} → {remedy['node']}"
    node = _node_for_a_disk(explanation["remedies"])
    stage.apply([disk(f"hdd-{node}", "150Gi", node, tier="hdd")], reason=f"explain {ANALYTICS} said so")
    stage.run()
    check(stage.node_of(ANALYTICS) == node, f"with the disk it did not go to {node}")
    yield f"So a disk of 150Gi was added on {node}, and the pod went there."


def _disks(volumes: list[Manifest], node: str) -> str:
    """All volumes of the cluster are disks of one node."""
    disks = []
    for volume in volumes:
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        if term["matchExpressions"][0]["values"] == [node]:
            disks.append(f"{volume['metadata']['name']} {volume['spec']['capacity']['storage']}")
    return ", ".join(disks)


def _details(attempt: Manifest) -> Iterator[Manifest]:
    for group in attempt["refused"]:
        yield from group["details"]


def _nearest(node: str, rejection: Manifest) -> tuple[str, ...]:
    """The nearest candidate for a claim on a node: capacity for a new volume, or else a volume."""
    for it in rejection["failures"]:
        if it["rule"] == Rule.FREE_STORAGE:
            return node, rejection["claim"], "a new volume", it["wanted"], it["got"].rpartition(": ")[2]
    miss = rejection["misses"][0]
    failure = miss["failures"][0]
    return node, rejection["claim"], miss["volume"], failure["wanted"], failure["got"].partition(" (uid")[0]


def _node_for_a_disk(remedies: list[Manifest]) -> str:
    for remedy in remedies:
        if [it["kind"] for it in remedy["changes"]] == [ChangeKind.ADD_VOLUME]:
            return str(remedy["node"])
    raise SceneError("no remedy says that one more disk would do")


# Scenes of proof: the history of the transaction that was undone, and its verification.

CLOCK = slice(len("2025-11-16T"), len("2025-11-16T22:00:00.123"))
TELLING = frozenset({"BindingPlanned", "BindingMoved", "LegMoved", "VolumeChanged", "ClaimChanged"})

LEFT_OUT = ("annotation ", "pv.kubernetes.io/", "volsched.io/", f"{SHOP}/")


def audited(stage: Stage) -> Iterator[StageLine]:
    stage.last_binding(QUEUE_POD, of=2)
    binding, state = stage.bindings_of(QUEUE_POD)[0]
    with stage.database.read() as connection:
        items = binding_history(connection, binding, EVERYTHING, after=None, limit=PAGE).items
        written = changes(connection, f"volume/{STOLEN}", EVERYTHING, after=None, limit=PAGE).items
    steps = [it["what"] for it in items if it["type"] == "BindingMoved"]
    check(steps == ["binding compensating", f"binding {state.state}"], f"the history says {steps}")
    told = [it for it in items if it["type"] in TELLING]
    yield f"{len(told)} of the {len(items)} events of binding {binding}:"
    yield Rows(("position", "at", "who", "object", "what"), [_row(it) for it in told])
    theft = next((it for it in written if it["who"] == SOMEBODY), None)
    if theft is None:
        raise SceneError(f"the history of {STOLEN} does not say who took it")
    yield f"{STOLEN} was taken at position {theft['position']} by {theft['who']}, who said: {theft['reason']}"


def _row(event: Item) -> tuple[str, ...]:
    """An event in one short line; `volsched history` has all of it."""
    what, about = event["what"], event["object"]
    for prefix in LEFT_OUT:
        what, about = what.replace(prefix, ""), about.replace(prefix, "")
    if event["object"].startswith(f"{BINDING}/"):
        about = BINDING
    return str(event["position"]), event["at"][CLOCK], event["actor"].partition("/")[0], about, what


def verified(stage: Stage) -> Iterator[StageLine]:
    report = verify(stage.database)
    check(report.ok, f"{len(report.findings)} findings, the first: {next(iter(report.findings), '')}")
    proven = f"{report.head.position} events in {report.streams} streams"
    yield f"{proven}: positions dense, hash chain whole, views as the log says"
    yield f"last hash {report.head.hash.hex()}"
    with stage.database.read() as connection:
        found = violations(connection, at_rest=True)
    check(not found, f"{len(found)} invariants are broken, the first: {found[0].what if found else ''}")
    yield "no volume given twice, no binding left open, no pod out of reach of its data"


SCENES = (
    DemoScene("A cluster with local disks and zonal storage", cluster),
    DemoScene("A pod with three claims is placed", three_claims),
    DemoScene("A pod whose disk is taken is explained", contended),
    DemoScene("A worker is killed half way, and its work is resumed", killed),
    DemoScene("A volume is stolen half way, and the transaction is rolled back", stolen),
    DemoScene("Who did what: the history of that transaction", audited),
    DemoScene("The log and the invariants are verified", verified),
)


@contextmanager
def stage_in(directory: Path) -> Iterator[Stage]:
    """A new store in a directory."""
    url = f"sqlite:///{directory / 'demo.db'}"
    migrate_store(url)
    database = open_store(url)
    try:
        yield Stage(url, database)
    finally:
        database.close()


@contextmanager
def directory_for(*, keep: bool) -> Iterator[Path]:
    """The directory of the store; it is removed at the end, even after a failure, unless it is to be kept."""
    if keep:
        yield Path(tempfile.mkdtemp(prefix="volsched-demo-"))
        return
    with tempfile.TemporaryDirectory(prefix="volsched-demo-") as directory:
        yield Path(directory)
