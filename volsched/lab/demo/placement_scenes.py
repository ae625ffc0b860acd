"""Scenes of placing: the cluster, a pod with three claims, and one that comes too late for its disk."""

from collections.abc import Iterator

from volsched.binding.rules.phases import Phase
from volsched.kube.meta import ZONE
from volsched.lab.demo.objects import CLUSTER, CONTENDER, DATABASE, LATENCY_SECONDS, SHOP, Manifest, disk
from volsched.lab.demo.stage import Rows, SceneError, Stage, Told, check
from volsched.questions.explain.explain import explain_pod
from volsched.questions.simulate.changes import ChangeKind
from volsched.scheduling.rules.rejection import Rule

DB, ANALYTICS = f"{SHOP}/db-0", f"{SHOP}/analytics-0"
REMEDIES_SHOWN = 2


def cluster(stage: Stage) -> Iterator[Told]:
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
    yield "Local disks are there already; zonal volumes are made on demand by a simulated provisioner."


def three_claims(stage: Stage) -> Iterator[Told]:
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
        made = "made for it" if leg.dynamic else "was there"
        rows.append((leg.claim, asked, volume["metadata"]["name"], volume["spec"]["capacity"]["storage"], made))
    check(sorted(row[-1] for row in rows) == ["made for it", "was there", "was there"], "another mix of volumes")
    yield Rows(("claim", "asks for", "volume", "size", ""), rows)
    yield (
        f"One transaction of three legs: {stage.position - before} events in {seconds:.2f} s, of which the "
        f"provisioner took {LATENCY_SECONDS} s."
    )


def contended(stage: Stage) -> Iterator[Told]:
    stage.apply(CONTENDER)
    with stage.system() as system:
        stage.settle(system)
        check(stage.node_of(ANALYTICS) is None, f"{ANALYTICS} found a node")
        told = explain_pod(system.picture.index, system.picture.index.snapshot.pods[ANALYTICS])
    check(not told["fits"], f"{ANALYTICS} would fit")
    yield f"pod {ANALYTICS} waits: {told['message']}"
    rows = [_nearest(it["node"], claim) for it in _details(told) for claim in it["rejections"]]
    yield Rows(("node", "claim", "nearest", "wanted", "got"), rows)
    yield "Any one of these would help; each was tried on a copy, the smallest first:"
    for number, remedy in enumerate(told["remedies"][:REMEDIES_SHOWN], start=1):
        changes = " and ".join(it["text"] for it in remedy["changes"])
        yield f"  {number}. {changes} → {remedy['node']}"
    node = _node_for_a_disk(told["remedies"])
    stage.apply([disk(f"hdd-{node}", "150Gi", node, tier="hdd")], reason=f"explain {ANALYTICS} said so")
    stage.run()
    check(stage.node_of(ANALYTICS) == node, f"with the disk it did not go to {node}")
    yield f"So a disk of 150Gi was added on {node}, and the pod went there."


def _disks(volumes: list[Manifest], node: str) -> str:
    """All volumes of the cluster are disks of one node."""
    found = []
    for it in volumes:
        (term,) = it["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        if term["matchExpressions"][0]["values"] == [node]:
            found.append(f"{it['metadata']['name']} {it['spec']['capacity']['storage']}")
    return ", ".join(found)


def _details(told: Manifest) -> Iterator[Manifest]:
    for group in told["refused"]:
        yield from group["details"]


def _nearest(node: str, rejection: Manifest) -> tuple[str, ...]:
    """What came nearest to serving a claim on a node: room, or else a volume."""
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
