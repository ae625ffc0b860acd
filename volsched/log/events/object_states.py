"""Object states by stream: the live object, its manifest and version, and the streams that a binding is about."""

from volsched.kube.manifest import Manifest, metadata
from volsched.log.events.decision import States
from volsched.log.events.fold import BindingState, ObjectState


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


def origin_version(state: ObjectState) -> str | None:
    """The version that a foreign cluster gave the object; None where the object lives in our log."""
    found = metadata(state.manifest or {}).get("resourceVersion")
    return None if found is None else str(found)


def version(state: ObjectState) -> str:
    """What the object's next write must be conditional on."""
    return origin_version(state) or str(state.rv)
