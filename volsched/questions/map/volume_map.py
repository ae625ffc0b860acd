"""The map: volumes counted in groups of nodes, and listed one by one if they are few.

A page with 50,000 volumes needs the numbers of each rack, not each volume. So groups are always counted, nodes and
volumes are listed only up to a limit, and beyond it a client asks within a group.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from volsched.kube.manifest import claim_of
from volsched.kube.storage import LOST
from volsched.kube.workloads import TERMINATED
from volsched.log.events.fold import ObjectState
from volsched.log.reads.storage_lines import ClaimLine, PodLine, StorageLines, VolumeCount, VolumeLine
from volsched.log.reads.tail import read_head
from volsched.log.reads.views import StoreView
from volsched.questions.audit.answers import time_text
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import view_in
from volsched.questions.map.answers import (
    Counts,
    MapClass,
    MapGroup,
    MapNode,
    MapVolume,
    StateCount,
    VolumeMap,
    WaitingPod,
)
from volsched.questions.map.parameters import MapParameters
from volsched.questions.map.places import MapPlace, MapPlaces, Path
from volsched.questions.map.volume_state import VolumeState, volume_state
from volsched.questions.refusals import QuestionError
from volsched.questions.registry import API_VERSION
from volsched.questions.status.pending_reasons import pending_reason
from volsched.questions.status.storage_tally import NONE

MOST_WAITING = 200
MOST_LEVELS = 4


def volume_map(context: QuestionContext, parameters: MapParameters) -> VolumeMap:
    keys = [it.strip() for it in parameters.by.split(",") if it.strip()]
    if len(keys) > MOST_LEVELS:
        raise QuestionError(f"by: {len(keys)} labels; nodes are grouped by {MOST_LEVELS} at most")
    with context.database.read() as connection:
        view, moment = view_in(connection, parameters.as_of, now=context.now)
        survey = MapSurvey(parameters, MapPlaces(keys))
        survey.take(StorageLines(connection, view))
        head = read_head(connection)
        at = head.at if parameters.as_of is None else moment
        return survey.document(position=view.position, head=head.position, at=at)


class VolumeOnMap(NamedTuple):
    name: str
    place: MapPlace
    state: str
    bytes: int
    class_name: str
    claim: str | None
    binding: str | None


@dataclass(slots=True)
class MapSurvey:
    """Counts of all selected objects, and the listed volumes."""

    parameters: MapParameters
    places: MapPlaces
    claims: dict[str, ClaimLine] = field(default_factory=dict)
    waiting: list[WaitingPod] = field(default_factory=list)
    waiting_pods: int = 0
    _listed: list[VolumeOnMap] = field(default_factory=list)
    """The listed volumes: complete while at most `detail` are selected."""
    _volumes: int = 0
    _counts: dict[MapPlace, Counts] = field(default_factory=dict)
    _classes: dict[tuple[str, str], MapClass] = field(default_factory=dict)
    _pods_on: dict[str, int] = field(default_factory=dict)
    _pods_of: dict[str, list[str]] = field(default_factory=dict)
    """Claim of a listed volume → its pods."""
    _schedulable: dict[str, bool] = field(default_factory=dict)
    _inside: Path = ()

    def take(self, lines: StorageLines) -> None:
        parameters = self.parameters
        self._inside = tuple(it for it in parameters.within.split("/") if it)
        for node in sorted(lines.nodes()):
            self.places.put(node.key, node.labels)
            self._schedulable[node.key] = not node.unschedulable
        is_whole = parameters.as_of is None and parameters.namespace is None and not parameters.text
        if is_whole and lines.volume_total() > parameters.detail:
            self._take_counts(lines)
        else:
            self._take_lines(lines)

    def _take_lines(self, lines: StorageLines) -> None:
        """Read every volume: for a time in the past, a namespace, a search, or few volumes."""
        self.claims = {it.key: it for it in lines.claims()}
        lost = {it.volume: it for it in self.claims.values() if it.phase == LOST and self._is_within(it.key)}
        for volume in lines.volumes():
            lost.pop(volume.key, None)
            self._take_volume(volume)
        self._take_lost(lost.values())
        listed, waiting = self._listed_claims(), []
        for pod in lines.pods():
            if not self._is_within(pod.key):
                continue
            if listed:
                self._take_mounts(pod, listed)
            if pod.phase in TERMINATED:
                continue
            if pod.node:
                self._pods_on[pod.node] = self._pods_on.get(pod.node, 0) + 1
            elif not pod.deleting:
                waiting.append(pod.key)
        self._take_waiting(lines.view, sorted(waiting)[:MOST_WAITING], len(waiting))

    def _take_counts(self, lines: StorageLines) -> None:
        """Let the database count, and read single volumes only if few are selected."""
        affinities: set[str | None] = set()
        for group in lines.volume_counts():
            if self._take_group(group):
                affinities.add(group.affinity)
        odd = list(lines.odd_volumes())
        self._take_volumes(lines, odd)
        if self._is_listed():
            self._forget_volumes()
            affinities |= {it.affinity for it in odd}
            self._take_volumes(lines, list(lines.volumes_with(affinities)))
        lost = {it.volume: it for it in lines.claims_in(LOST)}
        self._take_lost(it for it in lost.values() if lines.view.one("volume", it.volume or "") is None)
        listed = self._listed_claims()
        if listed:
            nodes = {it.place.node for it in self._listed}
            for pod in lines.pods_with_claims(None if None in nodes else {it for it in nodes if it is not None}):
                self._take_mounts(pod, listed)
        waiting = 0
        for node, pods in lines.pod_counts(ended=TERMINATED):
            if node:
                self._pods_on[node] = self._pods_on.get(node, 0) + pods
            else:
                waiting += pods
        self._take_waiting(lines.view, lines.pods_without_node(ended=TERMINATED, most=MOST_WAITING), waiting)

    def _take_group(self, group: VolumeCount) -> bool:
        """Count a group of equal volumes; returns whether it is selected."""
        place = self.places.of(group.affinity, group.labels)
        state = volume_state(group.phase, taken=group.claimed).value
        class_name = group.class_name or NONE
        if not self._is_selected(place, state, class_name):
            return False
        self._count(place, state, class_name, group.volumes, group.bytes, group.requested)
        return True

    def _take_volumes(self, lines: StorageLines, volumes: list[VolumeLine]) -> None:
        claims = {it for it in map(_claim_of, volumes) if it is not None}
        self.claims |= {it.key: it for it in lines.claims_named(claims)}
        for volume in volumes:
            self._take_volume(volume)

    def _forget_volumes(self) -> None:
        self._volumes = 0
        for counted in (self._listed, self._counts, self._classes):
            counted.clear()

    def document(self, *, position: int, head: int, at: int) -> VolumeMap:
        nodes = self._nodes()
        return {
            "apiVersion": API_VERSION,
            "kind": "VolumeMap",
            "position": position,
            "head": head,
            "at": time_text(at),
            "by": list(self.places.keys),
            "labels": self.places.label_keys(),
            "classes": [self._classes[key] for key in sorted(self._classes)],
            "groups": self._groups(nodes),
            "nodes": nodes if len(nodes) <= max(self.parameters.detail, 1) * 2 else None,
            "volumes": [self._entry(it) for it in sorted(self._listed)] if self._is_listed() else None,
            "waiting": self.waiting,
            "waitingPods": self.waiting_pods,
        }

    def _is_listed(self) -> bool:
        return self._volumes <= self.parameters.detail

    def _take_volume(self, volume: VolumeLine) -> None:
        claim, assumed = _claim_of(volume), _is_assumed(volume)
        if self.parameters.namespace is not None and (claim is None or not self._is_within(claim)):
            return
        place = self.places.of(volume.affinity, volume.labels)
        state = volume_state(volume.phase, taken=assumed or volume.claim is not None).value
        binding = volume.assumed_binding if assumed else None
        size, class_name = volume.bytes or 0, volume.class_name or NONE
        self._add(VolumeOnMap(volume.key, place, state, size, class_name, claim, binding))

    def _take_lost(self, claims: Iterable[ClaimLine]) -> None:
        for claim in claims:
            if claim.volume:
                self.claims[claim.key] = claim
                self._add(_missing_volume(claim.volume, claim))

    def _add(self, volume: VolumeOnMap) -> None:
        if not self._is_selected(volume.place, volume.state, volume.class_name):
            return
        words = (volume.name, volume.claim or "", volume.place.node or "")
        if self.parameters.text and not any(self.parameters.text.lower() in it.lower() for it in words):
            return
        claim = None if volume.claim is None else self.claims.get(volume.claim)
        requested = 0 if claim is None else claim.bytes or 0
        self._count(volume.place, volume.state, volume.class_name, 1, volume.bytes, requested)
        if self._is_listed():
            self._listed.append(volume)

    def _is_selected(self, place: MapPlace, state: str, class_name: str) -> bool:
        parameters = self.parameters
        return (
            (parameters.class_name is None or class_name == parameters.class_name)
            and (parameters.state is None or state == parameters.state)
            and self._is_inside(place.path, place.node)
        )

    def _count(
        self, place: MapPlace, state: str, class_name: str, volumes: int, size: int, requested: int
    ) -> None:
        self._volumes += volumes
        _count(self._counts.setdefault(place, {}), state, volumes, size)
        key = class_name, place.path[0] if place.path else NONE
        row = self._classes.get(key)
        if row is None:
            row = self._classes[key] = {"storageClass": key[0], "group": key[1], "states": {}, "requested": 0}
        _count(row["states"], state, volumes, size)
        row["requested"] += requested

    def _listed_claims(self) -> set[str]:
        return {it.claim for it in self._listed if it.claim is not None} if self._is_listed() else set()

    def _take_mounts(self, pod: PodLine, listed: set[str]) -> None:
        for claim in _claims(pod):
            if claim in listed:
                self._pods_of.setdefault(claim, []).append(pod.key)

    def _take_waiting(self, view: StoreView, pods: list[str], count: int) -> None:
        self.waiting_pods = count
        for key in pods:
            state = view.one("pod", key)
            if isinstance(state, ObjectState) and state.manifest is not None:
                reason = pending_reason(state.manifest, in_flight=state.assumed is not None)
                claims = list(claims_of_pod(state.manifest))
                self.waiting.append({"pod": key, "reason": reason, "claims": claims})

    def _entry(self, volume: VolumeOnMap) -> MapVolume:
        claim = None if volume.claim is None else self.claims.get(volume.claim)
        return {
            "name": volume.name,
            "path": list(volume.place.path),
            "node": volume.place.node,
            "state": volume.state,
            "bytes": volume.bytes,
            "storageClass": volume.class_name,
            "claim": volume.claim,
            "pods": sorted(self._pods_of.get(volume.claim or "", ())),
            "data": None if claim is None else claim.data,
            "binding": volume.binding,
            "reached": volume.place.reached,
        }

    def _is_within(self, key: str) -> bool:
        return self.parameters.namespace is None or key.startswith(f"{self.parameters.namespace}/")

    def _is_inside(self, path: Path, node: str | None) -> bool:
        if self.parameters.node:
            return node == self.parameters.node
        return path[: len(self._inside)] == self._inside

    def _nodes(self) -> list[MapNode]:
        """All nodes; for a namespace, a class, a state or a search, only those that match or have a match."""
        states = {place.node: counts for place, counts in self._counts.items() if place.node is not None}
        parameters = self.parameters
        sparse = (
            parameters.namespace is not None
            or parameters.text
            or parameters.state is not None
            or parameters.class_name is not None
        )
        search = parameters.text.lower()
        return [
            {
                "name": name,
                "path": list(path),
                "pods": self._pods_on.get(name, 0),
                "schedulable": self._schedulable[name],
                "states": states.get(name, {}),
            }
            for name, path in self.places.paths.items()
            if self._is_inside(path, name)
            and (
                not sparse
                or name in states
                or (parameters.namespace is not None and name in self._pods_on and not search)
                or (search and parameters.namespace is None and search in name.lower())
            )
        ]

    def _groups(self, nodes: list[MapNode]) -> list[MapGroup]:
        groups: dict[Path, MapGroup] = {}

        def group(path: Path) -> MapGroup:
            if path not in groups:
                groups[path] = {"path": list(path), "nodes": 0, "pods": 0, "states": {}, "own": {}}
            return groups[path]

        group(())
        for node in nodes:
            row = group(tuple(node["path"]))
            row["nodes"] += 1
            row["pods"] += node["pods"]
        for place, counts in self._counts.items():
            row = group(place.path)
            _count_all(row["states"], counts)
            if place.node is None:
                _count_all(row["own"], counts)
        # There are fewer groups than nodes: each group is added once to every group that contains it.
        for path in list(groups):
            for depth in range(len(path)):
                group(path[:depth])
        for path in sorted(groups, key=len, reverse=True):
            if path:
                inner, outer = groups[path], groups[path[:-1]]
                outer["nodes"] += inner["nodes"]
                outer["pods"] += inner["pods"]
                _count_all(outer["states"], inner["states"])
        return [groups[path] for path in sorted(groups)]


def _count(counts: Counts, state: str, volumes: int, size: int) -> None:
    entry: StateCount | None = counts.get(state)
    if entry is None:
        counts[state] = {"volumes": volumes, "bytes": size}
    else:
        entry["volumes"] += volumes
        entry["bytes"] += size


def _count_all(counts: Counts, more: Counts) -> None:
    for state, entry in more.items():
        _count(counts, state, entry["volumes"], entry["bytes"])


def _is_assumed(volume: VolumeLine) -> bool:
    return volume.assumed_binding is not None and volume.assumed_rv == volume.rv


def _claim_of(volume: VolumeLine) -> str | None:
    """The claim that the volume names, or that a binding has assumed for it."""
    if volume.claim or not _is_assumed(volume):
        return volume.claim
    reference = None if volume.assumed_patch is None else claim_of(orjson.loads(volume.assumed_patch))
    return None if not reference else f"{reference.get('namespace')}/{reference.get('name')}"


def _claims(pod: PodLine) -> Iterator[str]:
    if pod.volumes is None:
        return iter(())
    namespace, _, name = pod.key.partition("/")
    names = {"namespace": namespace, "name": name}
    return claims_of_pod({"metadata": names, "spec": {"volumes": orjson.loads(pod.volumes)}})


def _missing_volume(name: str, claim: ClaimLine) -> VolumeOnMap:
    """A missing volume of a bound claim; its size was at least the claim's request."""
    place = MapPlace((), None, reached=False)
    class_name = claim.class_name or NONE
    return VolumeOnMap(name, place, VolumeState.LOST.value, claim.bytes or 0, class_name, claim.key, None)
