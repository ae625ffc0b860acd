"""Invariants of a foreign cluster with our scheduler attached, checked without reading our own store. Pure.

Some hold at any moment and need earlier states (a claim that was bound stays bound); others hold at rest only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volsched.binding.rules.saga import VOLUME_RETAINED
from volsched.kube.manifest import annotations, metadata, spec, status, volume_reaches
from volsched.kube.meta import ATTACHED_SCHEDULERS, BINDING_STAMP, SELECTED_NODE

Manifest = Mapping[str, Any]
Objects = Mapping[str, Manifest]
"""Name → object; all namespaced objects of a drill are in one namespace."""
TOLD = 15
"""The number of the invariant that only a foreign cluster has."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Read in this order, so that an object that is bound to another finds it: pods, claims, volumes."""

    pods: Objects
    claims: Objects
    volumes: Objects

    def ours(self) -> dict[str, Manifest]:
        return {name: it for name, it in self.pods.items() if spec(it).get("schedulerName") in ATTACHED_SCHEDULERS}

    def waiting(self) -> list[str]:
        """Names of our pods that have no node."""
        return [name for name, it in self.ours().items() if not spec(it).get("nodeName")]

    def half_bound(self) -> dict[str, str]:
        """Volume → its claim, where the claim is gone or does not name the volume."""
        half_bound = {}
        for name, it in self.volumes.items():
            reference = spec(it).get("claimRef") or {}
            held = self.claims.get(reference.get("name", ""), {})
            same = metadata(held).get("uid") == reference.get("uid")
            if reference and not (same and spec(held).get("volumeName") == name):
                half_bound[name] = reference["name"]
        return half_bound


def claims_of(pod: Manifest) -> list[str]:
    mounts = (it.get("persistentVolumeClaim") for it in spec(pod).get("volumes", ()))
    return [it["claimName"] for it in mounts if it]


@dataclass(slots=True)
class ClusterHistory:
    """Earlier facts that may not change, and every violation that was seen."""

    wrong: dict[str, None] = field(default_factory=dict)
    """Violations in the order in which they were first seen; each begins with the number of its invariant."""
    placed_claims: set[str] = field(default_factory=set)
    """Claims of pods that had a node: even if the pod is deleted later, they are not left over from a rollback."""
    _volume_of: dict[str, str] = field(default_factory=dict)
    _node_of: dict[str, str] = field(default_factory=dict)

    def see(self, look: ClusterSnapshot) -> None:
        for name, pod in look.pods.items():
            self._see_pod(name, pod, look)
        for name, claim in look.claims.items():
            self._see_claim(name, claim, look)

    def _see_pod(self, name: str, pod: Manifest, look: ClusterSnapshot) -> None:
        node = spec(pod).get("nodeName")
        uid = metadata(pod)["uid"]
        before = self._node_of.get(uid)
        if node is None:
            if before is not None:
                self._note(1, f"pod {name} was on {before} and has no node")
            return
        if before not in (None, node):
            self._note(1, f"pod {name} was on {before} and is on {node}")
        self._node_of[uid] = node
        for claim in claims_of(pod):
            held = look.claims.get(claim)
            volume = None if held is None else spec(held).get("volumeName")
            if volume is None:
                self._note(8, f"pod {name} is on {node}, and its claim {claim} has no volume")
            elif volume in look.volumes and not _reaches(look.volumes[volume], node):
                self._note(8, f"pod {name} is on {node}, which does not reach {volume} of its claim {claim}")
            self.placed_claims.add(claim)

    def _see_claim(self, name: str, claim: Manifest, look: ClusterSnapshot) -> None:
        uid, volume = metadata(claim)["uid"], spec(claim).get("volumeName")
        before = self._volume_of.get(uid)
        if status(claim).get("phase") == "Lost":
            self._note(1, f"claim {name} is Lost: {volume} was given to another")
        if before not in (None, volume):
            self._note(4, f"claim {name} was bound to {before} and is bound to {volume}")
        if volume is None:
            return
        self._volume_of[uid] = volume
        reference = spec(look.volumes[volume]).get("claimRef") if volume in look.volumes else None
        if reference is None:
            self._note(4, f"volume {volume} was taken from claim {name}, which is bound to it")
        elif reference.get("uid") != uid:
            self._note(1, f"volume {volume} is claim {name}'s and belongs to {reference.get('name')} too")

    def _note(self, number: int, text: str) -> None:
        self.wrong[f"{number}: {text}"] = None


def _reaches(volume: Manifest, node: str) -> bool:
    """Nodes of a drill have no other labels."""
    return volume_reaches(volume, {"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}})


def at_rest(look: ClusterSnapshot, history: ClusterHistory, events: Iterable[Manifest]) -> list[str]:
    """The violations when the cluster is at rest and every pod has had its chance."""
    return [*history.wrong, *_leaked(look), *_pods_without_node(look), *_untold(look, history, events)]


def _leaked(look: ClusterSnapshot) -> Iterable[str]:
    half = look.half_bound()
    for name, volume in look.volumes.items():
        ours = BINDING_STAMP in annotations(volume)
        if not ours:
            continue
        if name in half:
            freeable = ", which row S2 frees" if status(volume).get("phase") == "Available" else ""
            yield f"2: volume {name} is kept for claim {half[name]}, which does not have it{freeable}"
        elif not spec(volume).get("claimRef"):
            yield f"2: volume {name} is free and carries our stamp"
    wanted = {claim for pod in look.pods.values() for claim in claims_of(pod)}
    for name, claim in look.claims.items():
        marks = annotations(claim)
        if SELECTED_NODE in marks and BINDING_STAMP in marks and name not in wanted | _bound(look):
            yield f"2: claim {name} has our node selected, and no pod wants it"


def _bound(look: ClusterSnapshot) -> set[str]:
    return {name for name, it in look.claims.items() if spec(it).get("volumeName")}


def _pods_without_node(look: ClusterSnapshot) -> Iterable[str]:
    for name in look.waiting():
        yield f"3: pod {name} has no node"
        if status(look.pods[name]).get("nominatedNodeName"):
            yield f"3: pod {name} is nominated for a node, and nobody binds it"


def _untold(look: ClusterSnapshot, history: ClusterHistory, events: Iterable[Manifest]) -> Iterable[str]:
    """Claims that kept a volume of a binding which did not place its pod, without an event about it."""
    told_claims = {it["regarding"]["name"] for it in events if it.get("reason") == VOLUME_RETAINED}
    for name in _bound(look):
        volume = look.volumes.get(spec(look.claims[name])["volumeName"], {})
        by_us = BINDING_STAMP in annotations(volume) or BINDING_STAMP in annotations(look.claims[name])
        if by_us and name not in history.placed_claims and name not in told_claims:
            yield f"{TOLD}: claim {name} kept its volume after a rollback, and no event says so"
