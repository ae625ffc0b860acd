"""StatefulSets: pods with their own name, ordinal and claims, created and removed one after the other.

Level-triggered: `next_step` returns the actions for the current state, and is called again after every change.
Claims are never deleted with the pod or the set: they hold its data. When every pod is ready, pods of an older
template are replaced (`rolling_update`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from volsched.kube.grace_period import later
from volsched.kube.kinds import KINDS
from volsched.kube.manifest import Manifest, annotations, is_being_deleted, metadata, spec, status
from volsched.kube.workloads import TERMINATED, StatefulSet
from volsched.workloads.rules.ownership import controlled_by, controller_of
from volsched.workloads.rules.revisions import REVISION_LABEL, Revision, SetRevisions, outdated, set_revisions
from volsched.workloads.rules.rolling_update import RollingUpdate, pods_to_replace, rolling_update

PARALLEL = "Parallel"
STATEFUL_SET = "StatefulSet"
LONGEST_ORDINAL = 12
"""Maximum number of digits; a longer number in the name of a pod is not an ordinal."""
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
RUNNING = "Running"

CREATED = "SuccessfulCreate"
DELETED = "SuccessfulDelete"
FAILED_CREATE = "FailedCreate"

Ready = Callable[[Manifest], bool]


def pod_notice(verb: str, pod: str, set_: str) -> str:
    return f"{verb} Pod {pod} in StatefulSet {set_} successful"


def claim_notice(claim: str, pod: str, set_: str) -> str:
    return f"Create Claim {claim} Pod {pod} in StatefulSet {set_} success"


def pod_failure_notice(pod: str, set_: str, why: str) -> str:
    return f"Create Pod {pod} in StatefulSet {set_} failed error: {why}"


def is_placed(pod: Manifest) -> bool:
    """Whether the pod has a node: without a node agent, the only known state."""
    return bool(spec(pod).get("nodeName"))


def is_running(pod: Manifest) -> bool:
    """Whether a node agent reports the pod running and ready."""
    conditions = status(pod).get("conditions") or ()
    ready = any(it.get("type") == "Ready" and it.get("status") == "True" for it in conditions)
    return ready and status(pod).get("phase") == RUNNING


class SetPods(Protocol):
    """The existing objects of a set; names are within its namespace."""

    def pod(self, name: str, /) -> Manifest | None: ...

    def claim(self, name: str, /) -> Manifest | None: ...

    def revision(self, name: str, /) -> Manifest | None: ...

    def owned(self) -> Iterable[Manifest]:
        """All pods that the set controls."""

    def revisions(self) -> Iterable[Manifest]:
        """All revisions that the set controls."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod to create, or None if it exists, and the claims to create before it."""

    name: str
    pod: dict[str, Any] | None
    claims: tuple[dict[str, Any], ...]


@dataclass(slots=True)
class SetStep:
    create: list[Replica] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    """Names of the pods to remove."""
    blocked: list[str] = field(default_factory=list)
    """Notices to users about what blocks the set."""
    status: dict[str, Any] = field(default_factory=dict)
    new_revision: dict[str, Any] | None = None
    renumbered: dict[str, Any] | None = None
    forgotten: list[str] = field(default_factory=list)
    """Names of revisions beyond the limit, to delete."""
    again: str | None = None
    """When the next pod will have been ready for the required time."""

    @property
    def acts(self) -> int:
        return len(self.create) + len(self.remove)


@dataclass(frozen=True, slots=True)
class _SetState:
    """A set with its objects at one moment."""

    value: StatefulSet
    manifest: Manifest
    cluster: SetPods
    ready: Ready
    now: str
    revisions: SetRevisions
    update: RollingUpdate

    @property
    def in_order(self) -> bool:
        return self.value.pod_management_policy != PARALLEL

    def available_from(self, pod: Manifest) -> str | None:
        """When the pod counts as available; None: it is not ready. If the time is unknown: now."""
        if not self.ready(pod):
            return None
        seconds = int(spec(self.manifest).get("minReadySeconds") or 0)
        since = _ready_since(pod) if seconds else None
        return later(since, seconds) if since else self.now

    def is_available(self, pod: Manifest) -> bool:
        begin = self.available_from(pod)
        return begin is not None and begin <= self.now


def next_step(
    set_: StatefulSet, manifest: Manifest, pods: SetPods, *, ready: Ready, most: int, now: str
) -> SetStep:
    """The actions for the current state: at most `most` pods; one at a time unless the policy is Parallel."""
    known = list(pods.revisions())
    names = {metadata(it).get("name") for it in known}
    revisions = set_revisions(manifest, known, lambda name: name not in names and pods.revision(name) is not None)
    look = _SetState(set_, manifest, pods, ready, now, revisions, rolling_update(manifest))
    step = SetStep(
        status=_status(look),
        new_revision=revisions.create,
        renumbered=revisions.renumbered,
        forgotten=outdated(manifest, known, revisions, pods.owned()),
        again=min(
            (begin for pod in pods.owned() if (begin := look.available_from(pod) or now) > now), default=None
        ),
    )
    if set_.meta.being_deleted:
        # Its pods are deleted with the set.
        return SetStep(status=step.status)
    if _fill(look, step, most=most) and _shrink(look, step, most=most):
        _replace(look, step, most=most)
    return step


def pod_name(set_: StatefulSet, ordinal: int) -> str:
    return f"{set_.meta.name}-{ordinal}"


def claim_name(template: Manifest, pod: str) -> str:
    return f"{metadata(template).get('name', '')}-{pod}"


def _fill(look: _SetState, step: SetStep, *, most: int) -> bool:
    """Create what is missing, lowest ordinal first; False if it has to wait."""
    for ordinal in ordinals(look.value):
        if step.acts >= most:
            return False
        complete = _fill_one(look, ordinal, step)
        if look.in_order and not complete:
            return False
    return True


def _fill_one(look: _SetState, ordinal: int, step: SetStep) -> bool:
    name = pod_name(look.value, ordinal)
    pod = look.cluster.pod(name)
    if pod is None:
        _make(look, ordinal, step)
        complete = False
    elif not _is_owned(pod, look.value):
        step.blocked.append(
            f'pod "{name}" exists and does not belong to this set; delete it, or give the set another name'
        )
        complete = False
    elif is_being_deleted(pod):
        # Its name is not free before it is deleted.
        complete = False
    elif status(pod).get("phase") in TERMINATED:
        step.remove.append(name)
        complete = False
    elif not look.is_available(pod):
        missing = () if is_placed(pod) else _claims_to_create(look.value, name, look.cluster)
        if missing:
            # A user deleted a claim that the pod waits for.
            step.create.append(Replica(name, None, missing))
        complete = False
    else:
        complete = True
    return complete


def _make(look: _SetState, ordinal: int, step: SetStep) -> None:
    set_, pods, name = look.value, look.cluster, pod_name(look.value, ordinal)
    names = [claim_name(template, name) for template in set_.claim_templates]
    going = [it for it in names if (claim := pods.claim(it)) is not None and is_being_deleted(claim)]
    if going:
        # A new pod would block the deletion of the claim that the user requested, or wait for it in vain.
        step.blocked.append(pod_failure_notice(name, set_.meta.name, f"pvc {going[0]} is being deleted"))
    else:
        kept = look.update.keeps(ordinal - set_.first_ordinal, status(look.manifest))
        pod = _pod(set_, look.manifest, ordinal, look.revisions.current if kept else look.revisions.update)
        step.create.append(Replica(name, pod, _claims_to_create(set_, name, pods)))


def _shrink(look: _SetState, step: SetStep, *, most: int) -> bool:
    """Remove pods beyond the set's ordinals, highest first; False if it has to wait for them. Claims stay."""
    wanted = ordinals(look.value)
    surplus = sorted(
        ((ordinal, pod) for ordinal, pod in _numbered(look) if ordinal not in wanted), key=_first, reverse=True
    )
    for _, pod in surplus[:1] if look.in_order else surplus[: most - step.acts]:
        if not is_being_deleted(pod):
            step.remove.append(metadata(pod)["name"])
    return not (look.in_order and surplus)


def _replace(look: _SetState, step: SetStep, *, most: int) -> None:
    """Remove pods of an older template, so that they are recreated."""
    wanted = ordinals(look.value)
    pods = {ordinal - look.value.first_ordinal: pod for ordinal, pod in _numbered(look) if ordinal in wanted}
    available = {index for index, pod in pods.items() if look.is_available(pod) and not is_being_deleted(pod)}
    old = {
        index
        for index, pod in pods.items()
        if look.revisions.of(pod) != look.revisions.update.name
        and not is_being_deleted(pod)
        and metadata(pod)["name"] not in step.remove
    }
    chosen = pods_to_replace(look.update, look.value.replicas, old, available, in_order=look.in_order)
    step.remove += [metadata(pods[index])["name"] for index in chosen[: max(most - step.acts, 0)]]


def _numbered(look: _SetState) -> list[tuple[int, Manifest]]:
    return [(ordinal, pod) for pod in look.cluster.owned() if (ordinal := _ordinal(look.value, pod)) is not None]


def _first(numbered: tuple[int, Manifest]) -> int:
    return numbered[0]


def ordinals(set_: StatefulSet) -> range:
    return range(set_.first_ordinal, set_.first_ordinal + set_.replicas)


def set_and_ordinal(pod: str) -> tuple[str, int] | None:
    """The name of the set that would create a pod of that name, and the pod's ordinal."""
    parent, _, number = pod.rpartition("-")
    # Another spelling of a number is another pod, which no set creates.
    is_number = number.isascii() and number.isdecimal() and len(number) < LONGEST_ORDINAL
    return (parent, int(number)) if parent and is_number and str(int(number)) == number else None


def _ordinal(set_: StatefulSet, pod: Manifest) -> int | None:
    made = set_and_ordinal(str(metadata(pod).get("name", "")))
    return made[1] if made is not None and made[0] == set_.meta.name else None


def planned_replica(set_: StatefulSet, ordinal: int) -> Replica:
    """A pod and its claims as the set would create them if it had no pods and never another template."""
    named = {"name": set_.meta.name, "namespace": set_.meta.namespace, "uid": set_.meta.uid}
    manifest = {
        "apiVersion": KINDS[STATEFUL_SET].api_version,
        "kind": STATEFUL_SET,
        "metadata": named,
        "spec": {"template": set_.pod_template},
    }
    name, revision = pod_name(set_, ordinal), set_revisions(manifest, (), lambda _: False).update
    claims = tuple(_claim(set_, template, claim_name(template, name)) for template in set_.claim_templates)
    return Replica(name, _pod(set_, manifest, ordinal, revision), claims)


def _is_owned(pod: Manifest, set_: StatefulSet) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.uid == set_.meta.uid


def _pod(set_: StatefulSet, manifest: Manifest, ordinal: int, revision: Revision) -> dict[str, Any]:
    name, template = pod_name(set_, ordinal), revision.template
    labels = {
        **metadata(template).get("labels", {}),
        POD_NAME_LABEL: name,
        POD_INDEX_LABEL: str(ordinal),
        REVISION_LABEL: revision.name,
    }
    own = [
        {"name": metadata(it)["name"], "persistentVolumeClaim": {"claimName": claim_name(it, name)}}
        for it in set_.claim_templates
    ]
    names = {volume["name"] for volume in own}
    others = [volume for volume in spec(template).get("volumes", ()) if volume.get("name") not in names]
    wanted = {**spec(template), "hostname": name, "volumes": [*own, *others]}
    if set_.service_name:
        wanted["subdomain"] = set_.service_name
    own_metadata: dict[str, Any] = {
        "name": name,
        "generateName": f"{set_.meta.name}-",
        "namespace": set_.meta.namespace,
        "labels": labels,
        "ownerReferences": [controlled_by(manifest)],
    }
    if annotations(template):
        own_metadata["annotations"] = annotations(template)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own_metadata, "spec": wanted}


def _claims_to_create(set_: StatefulSet, pod: str, pods: SetPods) -> tuple[dict[str, Any], ...]:
    return tuple(
        _claim(set_, template, name)
        for template in set_.claim_templates
        if pods.claim(name := claim_name(template, pod)) is None
    )


def _claim(set_: StatefulSet, template: Manifest, name: str) -> dict[str, Any]:
    """A claim of the set, without an owner, so that it is never deleted with one."""
    selected = {} if set_.selector is None else set_.selector.match_labels
    own_metadata: dict[str, Any] = {
        "name": name,
        "namespace": set_.meta.namespace,
        "labels": {**metadata(template).get("labels", {}), **selected},
    }
    if annotations(template):
        own_metadata["annotations"] = annotations(template)
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": own_metadata, "spec": spec(template)}


def _status(look: _SetState) -> dict[str, Any]:
    """The set's status. Pods being deleted count as replicas, but are neither current nor updated."""
    pods = [pod for pod in look.cluster.owned() if _ordinal(look.value, pod) is not None]
    staying = [look.revisions.of(pod) for pod in pods if not is_being_deleted(pod)]
    ready = [pod for pod in pods if look.ready(pod) and status(pod).get("phase") not in TERMINATED]
    counts: dict[str, Any] = {
        "observedGeneration": int(metadata(look.manifest).get("generation") or 1),
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(1 for pod in ready if look.is_available(pod)),
        "currentReplicas": staying.count(look.revisions.current.name),
        "updatedReplicas": staying.count(look.revisions.update.name),
        "currentRevision": look.revisions.current.name,
        "updateRevision": look.revisions.update.name,
        "collisionCount": look.revisions.collisions,
    }
    if {counts[name] for name in ("replicas", "readyReplicas", "updatedReplicas")} == {look.value.replicas}:
        counts |= {"currentRevision": counts["updateRevision"], "currentReplicas": counts["updatedReplicas"]}
    return counts


def _ready_since(pod: Manifest) -> str | None:
    conditions = status(pod).get("conditions") or ()
    return next((it.get("lastTransitionTime") for it in conditions if it.get("type") == "Ready"), None)
