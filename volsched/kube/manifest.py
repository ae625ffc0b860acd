"""Accessors of manifests: spec, status, metadata, the references between volume and claim, the dirty rule."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from volsched.kube.meta import BIND_COMPLETED, BINDING_STAMP, BOUND_BY_CONTROLLER, GATE, ObjectReference
from volsched.kube.selectors import NodeSelector, node_selector_matches

if TYPE_CHECKING:
    # Code that only reads manifests does not load the values.
    from pydantic import TypeAdapter

    from volsched.kube.storage import Claim, Volume
    from volsched.kube.workloads import Node

# A missing or malformed part reads as empty, because foreign objects are not validated. The three parts are read a
# hundred times per bound pod, so their accessors avoid a further call.

Manifest = Mapping[str, Any]


def metadata(manifest: Manifest) -> Manifest:
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else {}


def spec(manifest: Manifest) -> Manifest:
    found = manifest.get("spec")
    return found if isinstance(found, dict) else {}


def status(manifest: Manifest) -> Manifest:
    found = manifest.get("status")
    return found if isinstance(found, dict) else {}


def annotations(manifest: Manifest) -> Manifest:
    return _part(metadata(manifest), "annotations")


def _part(manifest: Manifest, name: str) -> Manifest:
    """The part; empty where it is missing or malformed, because foreign objects are not validated."""
    found = manifest.get(name)
    return found if isinstance(found, dict) else {}


def uid(manifest: Manifest) -> str:
    return str(metadata(manifest).get("uid", ""))


def is_being_deleted(manifest: Manifest) -> bool:
    return "deletionTimestamp" in metadata(manifest)


def claim_is_bound(claim: Manifest) -> bool:
    """Whether the claim is bound, as the scheduler sees it: the phase is not consulted."""
    return bool(spec(claim).get("volumeName")) and BIND_COMPLETED in annotations(claim)


def claim_of(volume: Manifest) -> Manifest | None:
    """The volume's claimRef."""
    found = spec(volume).get("claimRef")
    return found if isinstance(found, dict) else None


def affinity_of(volume: Manifest) -> NodeSelector | None:
    """The volume's required node affinity; only that part of the manifest is read."""
    required = _part(spec(volume), "nodeAffinity").get("required")
    return None if required is None else _selector(orjson.dumps(required))


def volume_reaches(volume: Manifest, node: Manifest) -> bool:
    """The volume's node affinity accepts the node."""
    affinity = affinity_of(volume)
    return affinity is None or node_selector_matches(affinity, _part(metadata(node), "labels"), name=None)


@lru_cache(maxsize=10_000)
def _selector(required: bytes) -> NodeSelector:
    """Parsed once per selector: the volumes of a node share theirs."""
    return _selectors().validate_json(required)


@cache
def _selectors() -> "TypeAdapter[NodeSelector]":
    from pydantic import TypeAdapter

    return TypeAdapter(NodeSelector)


# The references between a volume and a claim.

YES = "yes"


def is_bound_to(volume: "Volume", claim: "Claim") -> bool:
    """The volume names this claim; an empty uid stands for any claim of that name."""
    ref = volume.claim_ref
    return (
        ref is not None
        and ref.name == claim.name
        and ref.namespace == claim.meta.namespace
        and ref.uid in ("", claim.meta.uid)
    )


def names_claim(volume: Manifest, claim: str, claim_uid: str) -> bool:
    """`is_bound_to` for an unparsed volume: its claimRef names the claim, with this uid or without one."""
    ref = claim_of(volume) or {}
    return f"{ref.get('namespace')}/{ref.get('name')}" == claim and ref.get("uid", "") in ("", claim_uid)


BINDING_MARKS = (BOUND_BY_CONTROLLER, BINDING_STAMP)
"""Annotations of a volume that its next claim must not inherit."""


def reservation_of(volume: Manifest) -> Manifest | None:
    """The claimRef that remains when the volume is unbound.

    A volume that the system bound becomes free; one that a user reserved stays reserved for the claim's name.
    """
    reference = claim_of(volume)
    if reference is None or BOUND_BY_CONTROLLER in annotations(volume):
        return None
    return {key: value for key, value in reference.items() if key != "uid"}


def unbind_patch(volume: Manifest) -> Manifest:
    reference = None if reservation_of(volume) is None else {"uid": None}
    return {"spec": {"claimRef": reference}, "metadata": {"annotations": dict.fromkeys(BINDING_MARKS)}}


def bind_volume(volume: "Volume", claim: "Claim") -> tuple["Volume", bool]:
    """The volume as it will be written for the claim, and whether that differs from the present one."""
    found_by_us = not is_bound_to(volume, claim)
    ref = volume.claim_ref
    bound = volume
    if ref is None or (ref.namespace, ref.name, ref.uid) != (claim.meta.namespace, claim.name, claim.meta.uid):
        bound = replace(bound, claim_ref=reference_to(claim))
    if found_by_us and BOUND_BY_CONTROLLER not in volume.meta.annotations:
        bound = replace(bound, meta=replace(bound.meta, annotations=_marked(volume.meta.annotations)))
    return bound, bound is not volume


def reference_to(claim: "Claim") -> ObjectReference:
    return ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=claim.meta.namespace,
        name=claim.name,
        uid=claim.meta.uid,
        resource_version=claim.meta.resource_version,
    )


def reaches(volume: "Volume", node: "Node", *, enforce_match_fields: bool = False) -> bool:
    """The volume's node affinity accepts the node.

    The reference gives this check the node's labels only, so matchFields are ignored unless enforced.
    """
    affinity = volume.node_affinity
    if affinity is None or affinity.required is None:
        return True
    name = node.name if enforce_match_fields else None
    return node_selector_matches(affinity.required, node.labels, name=name)


def _marked(annotations: Mapping[str, str]) -> Mapping[str, str]:
    return {**annotations, BOUND_BY_CONTROLLER: YES}


# The rule for dirty volumes: whether a claim may hold data, by its `status.dataState`.
#
# The PV controller writes `Clean` when it binds an unused volume; the node agent writes `Dirty` before a pod gets
# access to the data. Absent means unknown, and an unknown volume is never given to another claim.

CLEAN = "Clean"
DIRTY = "Dirty"


def may_hold_data(data_state: str | None, *, bound: bool) -> bool:
    """A bound claim may hold data unless it is known to be clean, an unbound one only if known to be dirty."""
    return data_state != CLEAN if bound else data_state == DIRTY


def has_gate(pod: Manifest, gate: str = GATE) -> bool:
    """Whether the pod still waits behind this scheduling gate."""
    return any(it.get("name") == gate for it in spec(pod).get("schedulingGates") or ())
