"""Pods that do not exist yet, as their StatefulSet would create them: explained before they are applied."""

from collections.abc import Callable, Container, Iterable

from volsched.kube.kinds import KINDS
from volsched.kube.manifest_reader import read_manifest
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod, StatefulSet
from volsched.log.events.fold import ObjectState, State
from volsched.workloads.rules.statefulsets import ordinals, planned_replica, pod_name, set_and_ordinal

SetOf = Callable[[str], StatefulSet | None]
"""Returns the StatefulSet with a key, or None."""


def planning_set(key: str, set_of: SetOf) -> StatefulSet | None:
    """The set that would create the pod; None: it does not exist, or has too few replicas."""
    namespace, _, name = key.rpartition("/")
    parts = set_and_ordinal(name)
    if parts is None:
        return None
    set_name, ordinal = parts
    set_ = set_of(f"{namespace}/{set_name}")
    return set_ if set_ is not None and ordinal in ordinals(set_) else None


def planned_keys(set_: StatefulSet, *, most: int) -> list[str]:
    return [f"{set_.meta.namespace}/{pod_name(set_, ordinal)}" for ordinal in ordinals(set_)[:most]]


def planned_objects(set_: StatefulSet, key: str, claims: Container[str]) -> list[Object]:
    """The pod and its claims that do not exist, with the defaults that they would get."""
    parts = set_and_ordinal(key.rpartition("/")[2])
    assert parts is not None
    replica = planned_replica(set_, parts[1])
    values = [read_manifest(KINDS["PersistentVolumeClaim"], it)[1] for it in replica.claims]
    values += [read_manifest(KINDS["Pod"], it)[1] for it in (replica.pod,) if it is not None]
    return [it for it in values if it is not None and (isinstance(it, Pod) or it.meta.key not in claims)]


def set_among(objects: Iterable[Object], key: str) -> StatefulSet | None:
    return next((it for it in objects if isinstance(it, StatefulSet) and it.meta.key == key), None)


def stored_set(state: State | None) -> StatefulSet | None:
    manifest = state.manifest if isinstance(state, ObjectState) else None
    value = None if manifest is None else KINDS["StatefulSet"].read(manifest)
    return value if isinstance(value, StatefulSet) else None
