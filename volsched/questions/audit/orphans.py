"""Orphans: left-over or missing objects, also in a cluster that is taken over. Reported, never changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from sqlalchemy import Connection

from volsched.kube.manifest import Manifest, affinity_of, claim_is_bound, claim_of, metadata, spec, status, uid
from volsched.kube.manifest_reader import Loaded
from volsched.kube.storage import LOST, Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.log.events.fold import ObjectState, State
from volsched.log.observed_cluster import attached_cluster
from volsched.log.reads.as_of import view_at_head
from volsched.log.reads.event_audit import last_written
from volsched.pv_controller.rules.reasons import RELEASED
from volsched.pv_controller.rules.rollback import claim_stream
from volsched.questions.audit.answers import Answer, time_text
from volsched.questions.audit.parameters import Orphans
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import duration_of
from volsched.scheduling.index.domains import Domains, places_of_selector
from volsched.scheduling.index.node_sets import Nodes
from volsched.workloads.rules.repairs import labelled_node, promised_node

PROVISIONED = "pvc-"
LOOKED_AT = ("node", "volume", "claim")


class OrphanKind(StrEnum):
    RELEASED = "released"
    CLAIM_GONE = "claim-gone"
    NODE_GONE = "node-gone"
    UNREACHABLE = "unreachable"
    LOST = "lost"


REMEDIES = {
    OrphanKind.RELEASED: "look at the data, then: volsched release PV --reason TEXT, or delete the volume",
    OrphanKind.CLAIM_GONE: "look at the data, then delete the volume, or release it",
    OrphanKind.NODE_GONE: "goes away after a minute while volsched runs; or create the node again",
    OrphanKind.UNREACHABLE: "add a node with these labels, or delete the volume if its machine is gone for good",
    OrphanKind.LOST: "restore the volume with the claim's uid in its claimRef, or delete the claim",
}
REMEDIES_ELSEWHERE = REMEDIES | {
    OrphanKind.RELEASED: "look at the data, then remove its claimRef (kubectl edit pv), or delete the volume",
    OrphanKind.CLAIM_GONE: "look at the data, then delete the volume, or remove its claimRef (kubectl edit pv)",
    OrphanKind.NODE_GONE: "remove the claim's volume.kubernetes.io/selected-node, or create the node again",
}
"""Remedies in an observed cluster: volsched writes nothing there, and nothing there removes such an annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    kind: OrphanKind
    object: str
    """`volume/NAME` or `claim/NAMESPACE/NAME`."""
    detail: str
    since: int | None = None
    """The time in microseconds; None: not recorded."""


def orphans(context: QuestionContext, parameters: Orphans) -> Answer:
    age = duration_of(parameters.older_than)
    with context.database.read() as connection:
        orphans = orphans_of(connection, now=context.now, older_than=age)
        remedies = REMEDIES if attached_cluster(connection) is None else REMEDIES_ELSEWHERE
    return Answer(
        items=[asdict(it) | {"since": time_text(it.since), "remedy": remedies[it.kind]} for it in orphans]
    )


def orphans_of(connection: Connection, *, now: int, older_than: int = 0) -> list[Orphan]:
    """The orphans in a store."""
    view = view_at_head(connection)
    states: dict[str, State] = {f"{noun}/{key}": it for noun in LOOKED_AT for key, it in view.every(noun)}
    written = {it: last_written(connection, it, "status", "phase") for it in released_volumes(states)}
    times = {stream: it.at for stream, it in written.items() if it is not None}
    return find_orphans(states, released_at=times, now=now, older_than=older_than)


def find_orphans(
    states: Mapping[str, State], *, released_at: Mapping[str, int], now: int, older_than: int = 0
) -> list[Orphan]:
    """The orphans by kind, then by name; all times are in microseconds.

    `released_at` has the known times at which volumes (by stream) were released; with `older_than`, volumes
    released more recently are left out.
    """
    objects = {
        stream: state.manifest
        for stream, state in states.items()
        if isinstance(state, ObjectState) and state.manifest is not None
    }
    domains = Domains(Nodes())
    for stream, manifest in objects.items():
        if stream.startswith("node/"):
            domains.nodes.put(labelled_node(manifest))
    orphans: list[Orphan] = []
    for stream, manifest in objects.items():
        if stream.startswith("volume/"):
            since = released_at.get(stream)
            is_recent = since is not None and older_than > 0 and now - since < older_than
            orphans += _volume(stream, manifest, objects, domains, since=since, is_recent=is_recent)
        elif stream.startswith("claim/"):
            orphans += _claim(stream, manifest, objects)
    return sorted(orphans, key=lambda it: (list(OrphanKind).index(it.kind), it.object))


def released_volumes(states: Mapping[str, State]) -> list[str]:
    """Streams of the released volumes, whose time of release is needed."""
    return [
        stream
        for stream, state in states.items()
        if stream.startswith("volume/")
        and isinstance(state, ObjectState)
        and status(state.manifest or {}).get("phase") == RELEASED
    ]


def _volume(
    stream: str,
    volume: Manifest,
    objects: Mapping[str, Manifest],
    domains: Domains,
    *,
    since: int | None,
    is_recent: bool,
) -> Iterator[Orphan]:
    ref = claim_of(volume) or {}
    claim = f"{ref.get('namespace')}/{ref.get('name')}" if ref else "nobody"
    if status(volume).get("phase") == RELEASED and not is_recent:
        policy = spec(volume).get("persistentVolumeReclaimPolicy")
        yield Orphan(kind=OrphanKind.RELEASED, object=stream, detail=f"held {claim}, policy {policy}", since=since)
    if str(metadata(volume).get("name", "")).startswith(PROVISIONED) and _claim_is_gone(volume, objects):
        yield Orphan(
            kind=OrphanKind.CLAIM_GONE, object=stream, detail=f"created for {claim}, which is gone", since=since
        )
    if not _is_reachable(stream, volume, domains):
        yield Orphan(
            kind=OrphanKind.UNREACHABLE, object=stream, detail="its node affinity matches none of the nodes"
        )


def _is_reachable(stream: str, volume: Manifest, domains: Domains) -> bool:
    """Whether some node is in the volume's domain; volumes of one place share a domain, which is computed once."""
    affinity = affinity_of(volume)
    return domains.join(affinity, lambda: places_of_selector(affinity, False), stream).mask != 0


def _claim_is_gone(volume: Manifest, objects: Mapping[str, Manifest]) -> bool:
    made_for = str(metadata(volume)["name"]).removeprefix(PROVISIONED)
    claim = objects.get(claim_stream(volume) or "")
    return claim is None or uid(claim) not in (made_for, (claim_of(volume) or {}).get("uid"))


def _claim(stream: str, claim: Manifest, objects: Mapping[str, Manifest]) -> Iterator[Orphan]:
    node = promised_node(claim)
    if node is not None and f"node/{node}" not in objects:
        yield Orphan(kind=OrphanKind.NODE_GONE, object=stream, detail=f'selected node "{node}" does not exist')
    if status(claim).get("phase") == LOST:
        yield Orphan(
            kind=OrphanKind.LOST, object=stream, detail=f'lost its volume "{spec(claim).get("volumeName", "")}"'
        )


# Warnings about a cluster that is taken over: objects missing from its dump.

NAMES_SHOWN = 3


def adoption_warnings(loaded: Sequence[Loaded]) -> Iterator[str]:
    values = [entry.value for entry in loaded]
    volumes = {it.name for it in values if isinstance(it, Volume)}
    nodes = {it.name for it in values if isinstance(it, Node)}
    lost = [
        entry.key
        for entry in loaded
        if isinstance(entry.value, Claim)
        and claim_is_bound(entry.manifest)
        and entry.value.volume_name not in volumes
    ]
    if lost:
        names = _names_text(lost)
        yield f"{names} bound to volumes that are not in the dump, and will be Lost; add: kubectl get pv"
    nodeless = [it.key for it in values if isinstance(it, Pod) and it.node_name and it.node_name not in nodes]
    if nodeless:
        yield f"{_names_text(nodeless)} on nodes that are not in the dump; add: kubectl get nodes"


def _names_text(keys: list[str]) -> str:
    more = f" and {len(keys) - NAMES_SHOWN} more" if len(keys) > NAMES_SHOWN else ""
    return f"{', '.join(keys[:NAMES_SHOWN])}{more} {'are' if len(keys) > 1 else 'is'}"
