"""How a volume and a claim point at each other."""

from collections.abc import Mapping
from dataclasses import replace

from volsched.kube.meta import BOUND_BY_CONTROLLER, ObjectReference
from volsched.kube.selectors import node_selector_matches
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node

YES = "yes"


def is_bound_to(volume: Volume, claim: Claim) -> bool:
    """The volume names this claim; an empty uid stands for any claim of that name."""
    ref = volume.claim_ref
    return (
        ref is not None
        and ref.name == claim.name
        and ref.namespace == claim.meta.namespace
        and ref.uid in ("", claim.meta.uid)
    )


def bind_volume(volume: Volume, claim: Claim) -> tuple[Volume, bool]:
    """The volume as it will be written for the claim, and whether that differs from what it is."""
    found_by_us = not is_bound_to(volume, claim)
    ref = volume.claim_ref
    bound = volume
    if ref is None or (ref.namespace, ref.name, ref.uid) != (claim.meta.namespace, claim.name, claim.meta.uid):
        bound = replace(bound, claim_ref=reference_to(claim))
    if found_by_us and BOUND_BY_CONTROLLER not in volume.meta.annotations:
        bound = replace(bound, meta=replace(bound.meta, annotations=_marked(volume.meta.annotations)))
    return bound, bound is not volume


def reference_to(claim: Claim) -> ObjectReference:
    return ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=claim.meta.namespace,
        name=claim.name,
        uid=claim.meta.uid,
        resource_version=claim.meta.resource_version,
    )


def reaches(volume: Volume, node: Node, *, enforce_match_fields: bool = False) -> bool:
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
