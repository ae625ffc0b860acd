"""The map: volumes in groups of nodes, counted first, and one by one where there are few enough to look at.

A page that shows 50,000 volumes needs numbers for each rack and not each volume. So groups are always counted,
nodes and volumes are listed only up to a limit, and whoever wants to see more of them asks within a group.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.kube.manifest import Manifest, claim_of, is_being_deleted, spec, status
from volsched.kube.storage import LOST
from volsched.log.events.fold import ObjectState, State
from volsched.log.reads.tail import read_head
from volsched.log.reads.views import Look
from volsched.log.rows import class_name_of
from volsched.questions.audit.answers import time_text
from volsched.questions.claims.half_bound import claims_of_pod
from volsched.questions.context import QuestionContext
from volsched.questions.history.moments import look_in
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
from volsched.questions.status.storage_tally import NONE, TERMINATED, quantity_bytes

MOST_WAITING = 200
MOST_LEVELS = 4


def volume_map(context: QuestionContext, asked: MapParameters) -> VolumeMap:
    keys = [it.strip() for it in asked.by.split(",") if it.strip()]
    if len(keys) > MOST_LEVELS:
        raise QuestionError(f"by: {len(keys)} labels; nodes are grouped by {MOST_LEVELS} at most")
    with context.database.read() as connection:
        look, moment = look_in(connection, asked.as_of, now=context.now)
        survey = MapSurvey(asked, MapPlaces(keys))
        survey.take(look)
        head = read_head(connection)
        at = head.at if asked.as_of is None else moment
        return survey.document(position=look.position, head=head.position, at=at)


@dataclass(slots=True)
class ClaimOnMap:
    requested: int
    data: str | None
    pods: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MapSurvey:
    """Everything that is in the picture, counted."""

    asked: MapParameters
    places: MapPlaces
    claims: dict[str, ClaimOnMap] = field(default_factory=dict)
    volumes: list[MapVolume] = field(default_factory=list)
    waiting: list[WaitingPod] = field(default_factory=list)
    waiting_pods: int = 0
    _pods_on: dict[str, int] = field(default_factory=dict)
    _schedulable: dict[str, bool] = field(default_factory=dict)

    def take(self, look: Look) -> None:
        for name, node in _objects(look.every("node")):
            self.places.put(name, node.manifest or {})
            self._schedulable[name] = not spec(node.manifest or {}).get("unschedulable")
        lost = dict(self._take_claims(look))
        for key, state in _objects(look.every("pod")):
            if self._is_within(key):
                self._take_pod(key, state)
        for name, state in _objects(look.every("volume")):
            lost.pop(name, None)
            self._take_volume(name, state)
        for name, (claim, class_name) in lost.items():
            self._add(
                _lost(name, claim, class_name, self.claims[claim].requested), MapPlace((), None, reached=False)
            )

    def document(self, *, position: int, head: int, at: int) -> VolumeMap:
        nodes = self._nodes()
        listed = len(self.volumes) <= self.asked.detail
        return {
            "apiVersion": API_VERSION,
            "kind": "VolumeMap",
            "position": position,
            "head": head,
            "at": time_text(at),
            "by": list(self.places.keys),
            "labels": self.places.label_keys(),
            "classes": self._classes(),
            "groups": self._groups(nodes),
            "nodes": nodes if len(nodes) <= max(self.asked.detail, 1) * 2 else None,
            "volumes": self.volumes if listed else None,
            "waiting": self.waiting,
            "waitingPods": self.waiting_pods,
        }

    def _take_claims(self, look: Look) -> Iterator[tuple[str, tuple[str, str]]]:
        """The volumes that claims are bound to and that may not be there → the claim, and its class."""
        for key, state in _objects(look.every("claim")):
            claim = state.manifest or {}
            requests = (spec(claim).get("resources") or {}).get("requests") or {}
            data = status(claim).get("dataState")
            self.claims[key] = ClaimOnMap(
                quantity_bytes(requests.get("storage")), None if data is None else str(data)
            )
            volume = spec(claim).get("volumeName")
            if status(claim).get("phase") == LOST and volume and self._is_within(key):
                yield str(volume), (key, class_name_of(claim) or NONE)

    def _take_pod(self, key: str, state: ObjectState) -> None:
        pod = state.manifest or {}
        used = list(claims_of_pod(pod))
        for claim in used:
            if claim in self.claims:
                self.claims[claim].pods.append(key)
        node = spec(pod).get("nodeName")
        if status(pod).get("phase") in TERMINATED:
            return
        if node:
            self._pods_on[node] = self._pods_on.get(node, 0) + 1
        elif not is_being_deleted(pod):
            self.waiting_pods += 1
            if len(self.waiting) < MOST_WAITING:
                reason = pending_reason(pod, in_flight=state.assumed is not None)
                self.waiting.append({"pod": key, "reason": reason, "claims": used})

    def _take_volume(self, name: str, state: ObjectState) -> None:
        volume = state.manifest or {}
        assumed = state.assumed if state.assumed is not None and state.assumed.rv == state.rv else None
        claim = _claim_key(volume) or (None if assumed is None else _claim_key(assumed.patch))
        if self.asked.namespace is not None and (claim is None or not self._is_within(claim)):
            return
        claimed = None if claim is None else self.claims.get(claim)
        place = self.places.of(volume)
        entry: MapVolume = {
            "name": name,
            "path": list(place.path),
            "node": place.node,
            "state": volume_state(state).value,
            "bytes": quantity_bytes((spec(volume).get("capacity") or {}).get("storage")),
            "storageClass": class_name_of(volume) or NONE,
            "claim": claim,
            "pods": [] if claimed is None else claimed.pods,
            "data": None if claimed is None else claimed.data,
            "binding": None if assumed is None else assumed.binding,
            "reached": place.reached,
        }
        self._add(entry, place)

    def _add(self, volume: MapVolume, place: MapPlace) -> None:
        asked = self.asked
        if asked.class_name is not None and volume["storageClass"] != asked.class_name:
            return
        if asked.state is not None and volume["state"] != asked.state:
            return
        if not self._is_inside(place.path, place.node):
            return
        words = (volume["name"], volume["claim"] or "", volume["node"] or "")
        if asked.text and not any(asked.text.lower() in it.lower() for it in words):
            return
        self.volumes.append(volume)

    def _is_within(self, key: str) -> bool:
        return self.asked.namespace is None or key.startswith(f"{self.asked.namespace}/")

    def _is_inside(self, path: Path, node: str | None) -> bool:
        if self.asked.node:
            return node == self.asked.node
        inside = tuple(it for it in self.asked.within.split("/") if it)
        return path[: len(inside)] == inside

    def _nodes(self) -> list[MapNode]:
        """Of a namespace, a class or a search only those that have something of it."""
        states: dict[str, Counts] = {}
        for volume in self.volumes:
            if volume["node"] is not None:
                _count(states.setdefault(volume["node"], {}), volume)
        asked = self.asked
        sparse = (
            asked.namespace is not None or asked.text or asked.state is not None or asked.class_name is not None
        )
        named = asked.text.lower()
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
                or (asked.namespace is not None and name in self._pods_on and not named)
                or (named and asked.namespace is None and named in name.lower())
            )
        ]

    def _groups(self, nodes: list[MapNode]) -> list[MapGroup]:
        found: dict[Path, MapGroup] = {}

        def group(path: Path) -> MapGroup:
            if path not in found:
                found[path] = {"path": list(path), "nodes": 0, "pods": 0, "states": {}, "own": {}}
            return found[path]

        group(())
        for node in nodes:
            for path in _above(node["path"]):
                it = group(path)
                it["nodes"] += 1
                it["pods"] += node["pods"]
        for volume in self.volumes:
            paths = list(_above(volume["path"]))
            for path in paths:
                _count(group(path)["states"], volume)
            if volume["node"] is None:
                _count(group(paths[-1])["own"], volume)
        return [found[path] for path in sorted(found)]

    def _classes(self) -> list[MapClass]:
        rows: dict[tuple[str, str], MapClass] = {}
        for volume in self.volumes:
            key = volume["storageClass"], volume["path"][0] if volume["path"] else NONE
            if key not in rows:
                rows[key] = {"storageClass": key[0], "group": key[1], "states": {}, "requested": 0}
            _count(rows[key]["states"], volume)
            claimed = self.claims.get(volume["claim"] or "")
            rows[key]["requested"] += 0 if claimed is None else claimed.requested
        return [rows[key] for key in sorted(rows)]


def _objects(found: Iterable[tuple[str, State]]) -> Iterator[tuple[str, ObjectState]]:
    return ((key, state) for key, state in found if isinstance(state, ObjectState))


def _above(path: list[str]) -> Iterator[Path]:
    return (tuple(path[:depth]) for depth in range(len(path) + 1))


def _count(counts: Counts, volume: MapVolume) -> None:
    entry: StateCount = counts.setdefault(volume["state"], {"volumes": 0, "bytes": 0})
    entry["volumes"] += 1
    entry["bytes"] += volume["bytes"]


def _claim_key(volume: Manifest | Mapping[str, Any]) -> str | None:
    reference = claim_of(volume)
    return None if not reference else f"{reference.get('namespace')}/{reference.get('name')}"


def _lost(name: str, claim: str, class_name: str, size: int) -> MapVolume:
    """What a claim is bound to and is not there; it had the size that the claim asks for, at least."""
    return {
        "name": name,
        "path": [],
        "node": None,
        "state": VolumeState.LOST.value,
        "bytes": size,
        "storageClass": class_name,
        "claim": claim,
        "pods": [],
        "data": None,
        "binding": None,
        "reached": False,
    }
