"""StatefulSets: pods with a name, a number and claims of their own, made and removed one after the other.

A set is looked at as it is, never at what happened to it: `next_step` answers what to do now, and is asked again
when something has changed. Claims are kept whatever becomes of the pod and the set: they hold its data. A new
template counts for pods that are made from then on; a pod that exists is not replaced.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from volsched.kube.manifest import Manifest, annotations, is_being_deleted, metadata, spec, status
from volsched.kube.workloads import StatefulSet
from volsched.pv_controller.rules.claim_users import FINISHED
from volsched.workloads.rules.ownership import controlled_by, controller_of

PARALLEL = "Parallel"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
RUNNING = "Running"

CREATED = "SuccessfulCreate"
DELETED = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"

Ready = Callable[[Manifest], bool]


def pod_told(verb: str, pod: str, set_: str) -> str:
    return f"{verb} Pod {pod} in StatefulSet {set_} successful"


def claim_told(claim: str, pod: str, set_: str) -> str:
    return f"Create Claim {claim} Pod {pod} in StatefulSet {set_} success"


def not_made(pod: str, set_: str, why: str) -> str:
    return f"Create Pod {pod} in StatefulSet {set_} failed error: {why}"


def is_placed(pod: Manifest) -> bool:
    """Where no node agent runs nobody says more of a pod than its node."""
    return bool(spec(pod).get("nodeName"))


def is_running(pod: Manifest) -> bool:
    """What a node agent says: it runs, and is ready."""
    conditions = status(pod).get("conditions") or ()
    ready = any(it.get("type") == "Ready" and it.get("status") == "True" for it in conditions)
    return ready and status(pod).get("phase") == RUNNING


class SetPods(Protocol):
    """What there is of a set; names are within its namespace."""

    def pod(self, name: str, /) -> Manifest | None: ...

    def claim(self, name: str, /) -> Manifest | None: ...

    def owned(self) -> Iterable[Manifest]:
        """All pods whose controller the set is."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod to be made, or none where it is there already, and the claims to be made before it."""

    name: str
    pod: dict[str, Any] | None
    claims: tuple[dict[str, Any], ...]


@dataclass(slots=True)
class SetStep:
    make: list[Replica] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    """Names of pods."""
    blocked: list[str] = field(default_factory=list)
    """What stands in the way, for people."""
    status: dict[str, int] = field(default_factory=dict)

    @property
    def acts(self) -> int:
        return len(self.make) + len(self.remove)


def next_step(set_: StatefulSet, manifest: Manifest, found: SetPods, *, ready: Ready, most: int) -> SetStep:
    """At most `most` pods are made or removed in one step; one at a time unless the policy is Parallel."""
    step = SetStep(status=_status(found, ready))
    if set_.meta.being_deleted:
        # Its pods go with it.
        return step
    if _fill(set_, manifest, found, step, ready=ready, most=most):
        _shrink(set_, found, step, most=most)
    return step


def pod_name(set_: StatefulSet, ordinal: int) -> str:
    return f"{set_.meta.name}-{ordinal}"


def claim_name(template: Manifest, pod: str) -> str:
    return f"{metadata(template).get('name', '')}-{pod}"


def _fill(
    set_: StatefulSet, manifest: Manifest, found: SetPods, step: SetStep, *, ready: Ready, most: int
) -> bool:
    """Make what is missing, lowest ordinal first; False where something has to be waited for."""
    in_order = set_.pod_management_policy != PARALLEL
    for ordinal in _ordinals(set_):
        if step.acts >= most:
            return False
        complete = _fill_one(set_, manifest, ordinal, found, step, ready=ready)
        if in_order and not complete:
            return False
    return True


def _fill_one(
    set_: StatefulSet, manifest: Manifest, ordinal: int, found: SetPods, step: SetStep, *, ready: Ready
) -> bool:
    name = pod_name(set_, ordinal)
    pod = found.pod(name)
    if pod is None:
        _make(set_, manifest, ordinal, found, step)
        complete = False
    elif not _is_owned(pod, set_):
        step.blocked.append(
            f'pod "{name}" exists and does not belong to this set; delete it, or give the set another name'
        )
        complete = False
    elif is_being_deleted(pod):
        # Its name is not free before it is gone.
        complete = False
    elif status(pod).get("phase") in FINISHED:
        step.remove.append(name)
        complete = False
    elif not ready(pod):
        missing = () if is_placed(pod) else _claims_to_make(set_, name, found)
        if missing:
            # Somebody deleted a claim that the pod waits for.
            step.make.append(Replica(name, None, missing))
        complete = False
    else:
        complete = True
    return complete


def _make(set_: StatefulSet, manifest: Manifest, ordinal: int, found: SetPods, step: SetStep) -> None:
    name = pod_name(set_, ordinal)
    names = [claim_name(template, name) for template in set_.claim_templates]
    going = [it for it in names if (claim := found.claim(it)) is not None and is_being_deleted(claim)]
    if going:
        # A pod made now would hold the claim that somebody wants gone, or wait for it in vain.
        step.blocked.append(not_made(name, set_.meta.name, f"pvc {going[0]} is being deleted"))
    else:
        pod = _pod(set_, manifest, ordinal)
        step.make.append(Replica(name, pod, _claims_to_make(set_, name, found)))


def _shrink(set_: StatefulSet, found: SetPods, step: SetStep, *, most: int) -> None:
    """Remove pods beyond the ordinals of the set, the highest first. Their claims stay."""
    wanted = _ordinals(set_)
    numbered = [(ordinal, pod) for pod in found.owned() if (ordinal := _ordinal(set_, pod)) is not None]
    surplus = sorted(
        ((ordinal, pod) for ordinal, pod in numbered if ordinal not in wanted), key=_first, reverse=True
    )
    one_by_one = set_.pod_management_policy != PARALLEL
    for _, pod in surplus[:1] if one_by_one else surplus[: most - step.acts]:
        if not is_being_deleted(pod):
            step.remove.append(metadata(pod)["name"])


def _first(numbered: tuple[int, Manifest]) -> int:
    return numbered[0]


def _ordinals(set_: StatefulSet) -> range:
    return range(set_.first_ordinal, set_.first_ordinal + set_.replicas)


def _ordinal(set_: StatefulSet, pod: Manifest) -> int | None:
    parent, _, number = str(metadata(pod).get("name", "")).rpartition("-")
    # Another spelling of a number is another pod: none that this set has made.
    ours = parent == set_.meta.name and number.isdecimal() and str(int(number)) == number
    return int(number) if ours else None


def _is_owned(pod: Manifest, set_: StatefulSet) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.uid == set_.meta.uid


def _pod(set_: StatefulSet, manifest: Manifest, ordinal: int) -> dict[str, Any]:
    name, template = pod_name(set_, ordinal), set_.pod_template
    labels = {**metadata(template).get("labels", {}), POD_NAME_LABEL: name, POD_INDEX_LABEL: str(ordinal)}
    own = [
        {"name": metadata(it)["name"], "persistentVolumeClaim": {"claimName": claim_name(it, name)}}
        for it in set_.claim_templates
    ]
    names = {volume["name"] for volume in own}
    others = [volume for volume in spec(template).get("volumes", ()) if volume.get("name") not in names]
    wanted = {**spec(template), "hostname": name, "volumes": [*own, *others]}
    if set_.service_name:
        wanted["subdomain"] = set_.service_name
    made: dict[str, Any] = {
        "name": name,
        "namespace": set_.meta.namespace,
        "labels": labels,
        "ownerReferences": [controlled_by(manifest)],
    }
    if annotations(template):
        made["annotations"] = annotations(template)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": wanted}


def _claims_to_make(set_: StatefulSet, pod: str, found: SetPods) -> tuple[dict[str, Any], ...]:
    return tuple(
        _claim(set_, template, name)
        for template in set_.claim_templates
        if found.claim(name := claim_name(template, pod)) is None
    )


def _claim(set_: StatefulSet, template: Manifest, name: str) -> dict[str, Any]:
    """Without an owner, so that nothing ever takes it along."""
    selected = {} if set_.selector is None else set_.selector.match_labels
    made: dict[str, Any] = {
        "name": name,
        "namespace": set_.meta.namespace,
        "labels": {**metadata(template).get("labels", {}), **selected},
    }
    if annotations(template):
        made["annotations"] = annotations(template)
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": made, "spec": spec(template)}


def _status(found: SetPods, ready: Ready) -> dict[str, int]:
    pods = [pod for pod in found.owned() if not is_being_deleted(pod)]
    return {
        "replicas": len(pods),
        "readyReplicas": sum(1 for pod in pods if ready(pod) and status(pod).get("phase") not in FINISHED),
        "currentReplicas": len(pods),
    }
