"""A pod on its node with one claim, everything as it should be; a test says what is different."""

from dataclasses import replace
from typing import Any

from tests.support.objects import claim as unmarked_claim
from tests.support.objects import read, ref_to, volume
from volsched.kube.meta import PVC_PROTECTION
from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Node, Pod
from volsched.node_agent.rules.admission import NODE_UID, Mount, attachment_name
from volsched.node_agent.rules.lifecycle import PodScene
from volsched.scheduling.rules.pod_claims import claim_uses

DELETED = "2026-01-01T00:00:00Z"
NODE_UID_1 = "uid-of-n1"
LOCAL = {"local": {"path": "/disk"}}


def node(name: str = "n1", *, uid: str = NODE_UID_1, **labels: str) -> Node:
    made: Node = read("Node", {"metadata": {"name": name, "uid": uid, "labels": labels}})
    return made


def claim(name: str = "data", *, state: str | None = "Clean", finalizer: bool = True, **kw: Any) -> Claim:
    """Bound to `pv` unless the test says otherwise."""
    made = unmarked_claim(name, **{"bound_to": "pv", **kw})
    finalizers = (PVC_PROTECTION,) if finalizer else ()
    return replace(made, data_state=state, meta=replace(made.meta, finalizers=finalizers))


def disk(held: Claim, **spec: Any) -> Volume:
    """The volume that the claim is bound to."""
    return volume(held.volume_name or "pv", phase="Bound", claim_ref=ref_to(held), **spec)


def pod(
    *claims: str,
    annotations: dict[str, str] | None = None,
    deleted: bool = False,
    phase: str = "Pending",
    **spec: Any,
) -> Pod:
    metadata: dict[str, Any] = {"name": "app", "namespace": "db", "uid": "uid-app"}
    metadata["annotations"] = annotations or {}
    if deleted:
        metadata["deletionTimestamp"] = DELETED
    mounts = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": it}} for i, it in enumerate(claims)]
    given = {"nodeName": "n1", "volumes": mounts, **spec}
    made: Pod = read("Pod", {"metadata": metadata, "spec": given, "status": {"phase": phase}})
    return made


def mounts(given: Pod, *held: tuple[Claim | None, Volume | None]) -> list[Mount]:
    return [
        Mount(use=use, claim=its_claim, volume=its_volume)
        for use, (its_claim, its_volume) in zip(claim_uses(given), held, strict=True)
    ]


def scene(given: Pod | None = None, *, held: Claim | None = None, of: Volume | None = None, **kw: Any) -> PodScene:
    """A pod that uses `data`, on a node, just assigned."""
    given = pod("data") if given is None else given
    held = claim() if held is None else held
    entry = mounts(given, (held, disk(held, **LOCAL) if of is None else of))
    return PodScene(**{"pod": given, "node": node(), "mounts": entry, **kw})


def attachment(of: Volume, to: Node, *, deleted: bool = False, ours: bool = True) -> VolumeAttachment:
    metadata: dict[str, Any] = {"name": attachment_name(of, to) if ours else "theirs"}
    if ours:
        metadata["annotations"] = {NODE_UID: to.meta.uid}
    if deleted:
        metadata["deletionTimestamp"] = DELETED
    spec = {"attacher": "csi.example.com", "nodeName": to.name, "source": {"persistentVolumeName": of.name}}
    made: VolumeAttachment = read("VolumeAttachment", {"metadata": metadata, "spec": spec})
    return made
