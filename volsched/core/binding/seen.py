"""Objects as a binding sees them: manifests in the states of their streams, ours or just read from a cluster."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from pydantic import TypeAdapter

from volsched.log.events.decision import States
from volsched.log.events.fold import BindingState, ObjectState
from volsched.model.meta import BIND_COMPLETED
from volsched.model.selectors import NodeSelector, node_selector_matches

Manifest = Mapping[str, Any]


def binding_stream(binding: str) -> str:
    return f"binding/{binding}"


def pod_stream(state: BindingState) -> str:
    return f"pod/{state.plan['pod']}"


def node_stream(state: BindingState) -> str:
    return f"node/{state.plan['node']}"


def living(states: States, stream: str) -> ObjectState | None:
    """The object of a stream, unless it never was or is deleted."""
    state = states.get(stream)
    return state if isinstance(state, ObjectState) and state.manifest is not None else None


def manifest_of(states: States, stream: str) -> Manifest | None:
    state = living(states, stream)
    return None if state is None else state.manifest


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


def origin_version(state: ObjectState) -> str | None:
    """The version that a foreign cluster gave the object; None where the object lives in our log."""
    found = metadata(state.manifest or {}).get("resourceVersion")
    return None if found is None else str(found)


def version(state: ObjectState) -> str:
    """What the object's next write must be conditional on."""
    return origin_version(state) or str(state.rv)


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
