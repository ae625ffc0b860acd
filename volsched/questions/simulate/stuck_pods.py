"""Why a pod that lost its node finds no other: the volumes that prevent it, or the missing storage."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from volsched.kube.display_text import affinity_text
from volsched.kube.manifest import reaches
from volsched.kube.meta import HOSTNAME, TOPOLOGY_LABELS, zone_key
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.questions.explain.remedies import trial
from volsched.questions.explain.survey import NodeSurroundings, near_nodes
from volsched.questions.simulate.changes import ChangeKind, ClusterChange
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import VOLUME_BINDING
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.reasons import NODE_AFFINITY_MISMATCH
from volsched.scheduling.rules.snapshot import Snapshot

ANYWHERE = "anywhere"
OUT_OF_REACH = "out of reach"
MISSING = "missing"
GONE = "gone"
NODES_TRIED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A claim that prevents a pod from finding a node."""

    claim: str
    class_name: str
    volume: str | None
    """The claim's volume; None: it has none."""
    domain: str
    """The place of the volume, or where one would be needed."""
    size: int
    why: str
    reached_from: tuple[str, ...] = ()
    """Nodes that reach the volume, though they do not accept the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranded:
    pod: str
    before: str
    message: str
    holding: tuple[Holding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    class_name: str
    domain: str
    why: str
    claims: int
    size: int


def strand(index: Index, pod: Pod, *, before: str, message: str) -> Stranded:
    """Test whether the pod's volumes are the reason: if every node reached them, the pod would find one."""
    bound = [claim for claim in _claims(index.snapshot, pod) if is_fully_bound(claim)]
    with_volume = [claim for claim in bound if claim.volume_name in index.snapshot.stored_volumes]
    lost = [_with_lost_volume(claim) for claim in bound if claim not in with_volume]
    refused = NODE_AFFINITY_MISMATCH in message
    holding = lost or [*_out_of_reach(index, pod, with_volume, refused=refused)] or [*_without_volume(index, pod)]
    return Stranded(pod=pod.key, before=before, message=message, holding=tuple(holding))


def shortages(stranded: Iterable[Stranded]) -> list[Shortage]:
    """The storage that stranded pods lack, per class and domain. A claim that pods share counts once."""
    sizes: Counter[tuple[str, str, str]] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()
    counted: set[str] = set()
    for holding in (it for entry in stranded for it in entry.holding):
        if holding.claim not in counted:
            counted.add(holding.claim)
            sizes[holding.class_name, holding.domain, holding.why] += holding.size
            counts[holding.class_name, holding.domain, holding.why] += 1
    return [
        Shortage(class_name=name, domain=domain, why=why, claims=counts[name, domain, why], size=size)
        for (name, domain, why), size in sorted(sizes.items())
    ]


def _claims(snapshot: Snapshot, pod: Pod) -> list[Claim]:
    claims = (snapshot.claim(key) for key in dict.fromkeys(use.key for use in claim_uses(pod)))
    return [claim for claim in claims if claim is not None]


def _with_lost_volume(claim: Claim) -> Holding:
    return Holding(
        claim=claim.key,
        class_name=claim.class_name,
        volume=claim.volume_name,
        domain=ANYWHERE,
        size=claim.size.value(),
        why=GONE,
    )


def _out_of_reach(index: Index, pod: Pod, bound: list[Claim], *, refused: bool) -> Iterator[Holding]:
    """The pod's volumes out of reach. `refused`: some nodes refused the pod because they do not reach them."""
    snapshot = index.snapshot
    volumes = {claim.key: snapshot.stored_volumes[claim.volume_name] for claim in bound}
    everywhere = tuple(_reachable_everywhere(volume) for volume in volumes.values())
    change = ClusterChange(kind=ChangeKind.RELAX, text="volumes that every node reaches", touched=everywhere)
    chosen = trial(index, pod, [change]).chosen if everywhere else None
    for claim in bound:
        volume = volumes[claim.key]
        reached = tuple(sorted(it.name for it in snapshot.nodes.values() if _is_reached_from(volume, it)))
        if chosen is None:
            # Nodes refuse the pod for other reasons too, but a volume out of their reach also excludes it.
            is_holding = not reached or (refused and len(reached) < len(snapshot.nodes))
        else:
            is_holding = chosen.node not in reached
        if is_holding:
            yield Holding(
                claim=claim.key,
                class_name=claim.class_name,
                volume=volume.name,
                domain=_domain_of(volume),
                size=claim.size.value(),
                why=OUT_OF_REACH,
                reached_from=reached,
            )


def _reachable_everywhere(volume: Volume) -> Volume:
    labels = {key: value for key, value in volume.meta.labels.items() if key not in TOPOLOGY_LABELS}
    return replace(volume, node_affinity=None, meta=replace(volume.meta, labels=labels))


def _is_reached_from(volume: Volume, node: Node) -> bool:
    """Whether the node reaches the volume, by its node affinity and by the older zone labels."""
    labels = volume.meta.labels
    in_zone = all(node.labels.get(key, labels[key]) == labels[key] for key in TOPOLOGY_LABELS if key in labels)
    return reaches(volume, node) and in_zone


def _domain_of(volume: Volume) -> str:
    affinity = volume.node_affinity
    if affinity is None or affinity.required is None:
        labels = [f"{key}={volume.meta.labels[key]}" for key in TOPOLOGY_LABELS if key in volume.meta.labels]
        return ", ".join(labels) or ANYWHERE
    (first, *more) = affinity.required.node_selector_terms or (None,)
    parts = () if first is None or more else first.match_expressions
    if parts and all(it.operator == "In" and len(it.values) == 1 for it in parts):
        return ", ".join(f"{it.key}={it.values[0]}" for it in parts)
    return affinity_text(volume)


def _without_volume(index: Index, pod: Pod) -> Iterator[Holding]:
    """The claims without a volume, on the node where the least storage is missing."""
    surroundings = NodeSurroundings(index.snapshot, pod, index.profile)
    if not surroundings.unbound_claims():
        return
    names = dict.fromkeys([*near_nodes(surroundings), *sorted(index.snapshot.nodes)[:NODES_TRIED]])
    least: tuple[int, str, list[Claim]] | None = None
    for name in names:
        verdicts = surroundings.judge(name).verdicts
        rejections = verdicts[0].status.rejections if verdicts and verdicts[0].plugin == VOLUME_BINDING else ()
        unserved = [it for it in surroundings.unbound_claims() if any(part.claim == it.key for part in rejections)]
        lacking = sum(claim.size.value() for claim in unserved), name, unserved
        if unserved and (least is None or lacking[:2] < least[:2]):
            least = lacking
    if least is None:
        return
    labels = index.snapshot.nodes[least[1]].labels
    key = zone_key(labels) or (HOSTNAME if HOSTNAME in labels else None)
    for claim in least[2]:
        yield Holding(
            claim=claim.key,
            class_name=claim.class_name,
            volume=None,
            domain=ANYWHERE if key is None else f"{key}={labels[key]}",
            size=claim.size.value(),
            why=MISSING,
        )
