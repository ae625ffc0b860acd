"""Accessors of manifests: spec, status, metadata, and what a claim and a volume say of each other.

A part that is missing, or is not what it should be, reads as empty: foreign objects are read as they are.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from pydantic import TypeAdapter

from volsched.kube.meta import BIND_COMPLETED
from volsched.kube.selectors import NodeSelector, node_selector_matches

Manifest = Mapping[str, Any]


def metadata(manifest: Manifest) -> Manifest:
    return _part(manifest, "metadata")


def spec(manifest: Manifest) -> Manifest:
    return _part(manifest, "spec")


def status(manifest: Manifest) -> Manifest:
    return _part(manifest, "status")


def annotations(manifest: Manifest) -> Manifest:
    return _part(metadata(manifest), "annotations")


def _part(manifest: Manifest, name: str) -> Manifest:
    """Nothing where it is missing, or is not what it should be: foreign objects are seen as they are."""
    found = manifest.get(name)
    return found if isinstance(found, dict) else {}


def uid(manifest: Manifest) -> str:
    return str(metadata(manifest).get("uid", ""))


def is_being_deleted(manifest: Manifest) -> bool:
    return "deletionTimestamp" in metadata(manifest)


def claim_is_bound(claim: Manifest) -> bool:
    """As the scheduler sees it: the phase is not consulted."""
    return bool(spec(claim).get("volumeName")) and BIND_COMPLETED in annotations(claim)


def claim_of(volume: Manifest) -> Manifest | None:
    """What the volume's claimRef says."""
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
    """Read once per selector, not once per look: the volumes of a node share theirs."""
    return _SELECTORS.validate_json(required)


_SELECTORS = TypeAdapter(NodeSelector)
