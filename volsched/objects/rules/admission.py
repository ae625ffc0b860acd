"""What Kubernetes' admission says of a request: the object itself is sound, but its surroundings do not allow it.

Namespaces that are not there or are being deleted, priorities that nobody defined, volumes of claims that nobody
knows, and claims that want to grow. `admission_chain` says who is asked what, and in which order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from volsched.kube.kinds import KINDS
from volsched.kube.merge_patch import merged
from volsched.kube.meta import BETA_STORAGE_CLASS
from volsched.kube.problems import Defect
from volsched.kube.quantity import ZERO, Quantity
from volsched.kube.storage import StorageClass
from volsched.kube.validation.disruptions import PREEMPTS, SYSTEM_PRIORITIES
from volsched.kube.validation.fields import fields_at, number_at, quantity_of, text_at
from volsched.log.events.decision import States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import stream_of
from volsched.objects.rules.refusals import ForbiddenError, InvalidError, NotFoundError
from volsched.scheduling.rules.pod_claims import default_class

Manifest = Mapping[str, Any]

NAMESPACE = "Namespace"
POD = "Pod"
VOLUME = "PersistentVolume"
CLAIM = "PersistentVolumeClaim"
PRIORITY_CLASS = "PriorityClass"
SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Those that an API server makes itself when it starts."""
IMMORTAL_NAMESPACES = ("default", "kube-public", "kube-system")
_CANNOT_GROW = (
    "only dynamically provisioned pvc can be resized "
    "and the storageclass that provisions the pvc must support resize"
)
_CANNOT_GROW_YET = (
    "volume expansion is not supported yet; make a larger claim and copy the data, or keep the size that it has"
)


class NoNamespaceError(NotFoundError):
    """The object that is not there is the namespace of the one that was to be made."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f'namespaces "{namespace}" not found')
        self.namespace = namespace


class TerminatingError(ForbiddenError):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"unable to create new content in namespace {namespace} because it is being terminated")
        self.namespace = namespace


def namespace_stream(namespace: str) -> str:
    return stream_of(NAMESPACE, namespace)


def refuse_namespace(namespace: str, states: States) -> None:
    """Nothing is made in a namespace that is not there, or that is going. Those of the system always are."""
    if _living(states.get(namespace_stream(namespace))) is None and namespace not in SYSTEM_NAMESPACES:
        raise NoNamespaceError(namespace)
    refuse_terminating_namespace(namespace, states)


def refuse_terminating_namespace(namespace: str, states: States) -> None:
    found = _living(states.get(namespace_stream(namespace)))
    if found is None:
        return
    terminating = text_at(fields_at(found, "status"), "phase") == "Terminating"
    if terminating or fields_at(found, "metadata").get("deletionTimestamp"):
        raise TerminatingError(namespace)


def refuse_immortal_namespace(kind: str, key: str) -> None:
    if kind == NAMESPACE and key in IMMORTAL_NAMESPACES:
        raise ForbiddenError("this namespace may not be deleted")


def claim_uid(kind: str, manifest: Manifest) -> str | None:
    """The uid of the claim that a volume says it belongs to."""
    ref = fields_at(manifest, "spec", "claimRef") if kind == VOLUME else {}
    return text_at(ref, "uid") or None


def refuse_unknown_claim(kind: str, manifest: Manifest) -> None:
    """A claimRef with a uid names a claim of another store; here its volume would be released and reclaimed."""
    uid = claim_uid(kind, manifest)
    if uid:
        message = "names a claim that this store has never seen; leave the uid out to reserve the volume by name"
        raise InvalidError(
            f'PersistentVolume "{manifest["metadata"]["name"]}"',
            [Defect(("spec", "claimRef", "uid"), message, uid)],
        )


def priority_streams(kind: str, manifest: Manifest) -> tuple[str, ...]:
    """What must be known of before a pod's priority can be judged."""
    name = _priority_class(kind, manifest)
    if name is None or name in SYSTEM_PRIORITIES or PRIORITY_CLASS not in KINDS:
        return ()
    return (stream_of(PRIORITY_CLASS, name),)


def refuse_priority(kind: str, manifest: Manifest, states: States) -> None:
    """A pod has the priority, and preempts, as its class says, which must be there; of none, it is 0."""
    if kind != POD:
        return
    spec = fields_at(manifest, "spec")
    given, given_policy = number_at(spec, "priority"), text_at(spec, "preemptionPolicy")
    priority = _priority(manifest, states)
    if given is not None and given != priority.value:
        raise ForbiddenError(
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
            f"controller computed {priority.value} from the given PriorityClass name"
        )
    if given_policy and given_policy != priority.policy:
        raise ForbiddenError(
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; priority "
            f"admission controller computed {priority.policy} from the given PriorityClass name"
        )


def with_priority(event: NewEvent, kind: str, manifest: Manifest, states: States) -> NewEvent:
    """The creation of a pod that names a class, with the priority that this stands for."""
    name = _priority_class(kind, manifest)
    if name is None:
        return event
    priority = _priority(manifest, states)
    given = {"spec": {"priority": priority.value, "preemptionPolicy": priority.policy}}
    return replace(event, data={**event.data, "patch": merged(event.data["patch"], given)})


class _Priority(NamedTuple):
    value: int
    policy: str = PREEMPTS


def _priority(pod: Manifest, states: States) -> _Priority:
    name = _priority_class(POD, pod)
    if name is None:
        return _Priority(0)
    if name in SYSTEM_PRIORITIES:
        return _Priority(SYSTEM_PRIORITIES[name])
    for stream in priority_streams(POD, pod):
        found = _living(states.get(stream))
        if found is not None:
            return _Priority(number_at(found, "value") or 0, text_at(found, "preemptionPolicy") or PREEMPTS)
    raise ForbiddenError(f"no PriorityClass with name {name} was found")


def _priority_class(kind: str, manifest: Manifest) -> str | None:
    return (text_at(fields_at(manifest, "spec"), "priorityClassName") or None) if kind == POD else None


def lacks_class(kind: str, manifest: Manifest) -> bool:
    """A claim that leaves its class to the cluster; an empty name means none."""
    noted = BETA_STORAGE_CLASS in fields_at(manifest, "metadata", "annotations")
    return kind == CLAIM and not noted and fields_at(manifest, "spec").get("storageClassName") is None


def with_default_class(claim: Manifest, classes: Iterable[StorageClass]) -> Manifest:
    """The claim, which lacks a class, with the one that is the default now. Where there is none, the volume
    controller gives it one as soon as there is."""
    default = default_class(classes)
    if default is None or not isinstance(claim.get("spec"), Mapping):
        return claim
    return {**claim, "spec": {**claim["spec"], "storageClassName": default.name}}


def refuse_expansion(claim: State | None, patch: Manifest, storage_class: Manifest | None) -> None:
    """A change of a claim that asks for more than it did; `storage_class` is its own, if there is one."""
    before = _living(claim)
    wanted = quantity_of(fields_at(patch, "spec", "resources", "requests").get("storage"))
    if before is None or wanted is None or wanted <= _size(before):
        return
    if storage_class is None or storage_class.get("allowVolumeExpansion") is not True:
        raise ForbiddenError(_CANNOT_GROW)
    raise ForbiddenError(_CANNOT_GROW_YET)


def class_of_claim(claim: Manifest) -> str:
    noted = fields_at(claim, "metadata", "annotations").get(BETA_STORAGE_CLASS)
    return noted if isinstance(noted, str) else text_at(fields_at(claim, "spec"), "storageClassName")


def _size(claim: Manifest) -> Quantity:
    return quantity_of(fields_at(claim, "spec", "resources", "requests").get("storage")) or ZERO


def _living(state: State | None) -> Manifest | None:
    return state.manifest if isinstance(state, ObjectState) else None
