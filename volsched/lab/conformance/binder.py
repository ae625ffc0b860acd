"""What profile `parity` answers to a vector of the volume binder: one pod on a small cluster, perhaps a second."""

from collections.abc import Mapping
from typing import Any

from volsched.kube.kinds import KINDS, Object
from volsched.kube.workloads import Pod
from volsched.scheduling.rules.assume import Reservation, assume_pod_volumes
from volsched.scheduling.rules.pod_claims import PodClaims, classify_claims, selected_node
from volsched.scheduling.rules.profile import PARITY
from volsched.scheduling.rules.scoring import node_score
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.status import AttemptError, Code, Status
from volsched.scheduling.rules.volume_filter import NodeAnswer, find_pod_volumes, prefilter

KIND_OF_FIELD = {
    "nodes": "Node",
    "storageClasses": "StorageClass",
    "persistentVolumes": "PersistentVolume",
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
    "csiNodes": "CSINode",
}

Json = Mapping[str, Any]


def binder_answer(case: Json) -> dict[str, Any]:
    """In the shape of the vector's `expected`."""
    objects: list[Object] = [
        KINDS[kind].read(manifest) for name, kind in KIND_OF_FIELD.items() for manifest in case.get(name) or ()
    ]
    snapshot = snapshot_of(objects)
    answered, assumed = _place(snapshot, _pod(case["pod"]))
    if case.get("followUpPod") is not None:
        answered["followUp"], _ = _place(assumed, _pod(case["followUpPod"]))
    return answered


def _pod(manifest: Json) -> Pod:
    pod = KINDS["Pod"].read(manifest)
    assert isinstance(pod, Pod)
    return pod


def _place(snapshot: Snapshot, pod: Pod) -> tuple[dict[str, Any], Snapshot]:
    """One pod's answer, and the snapshot after assuming it on the first node (by name) that passed."""
    status, _ = prefilter(snapshot, pod, profile=PARITY)
    scheduled = status.code is Code.SUCCESS
    try:
        claims = classify_claims(snapshot, pod, once=PARITY.claims_count_once)
    except AttemptError as error:
        return {
            "claims": _claims_json(PodClaims(), str(error)),
            "preFilter": _status_json(status),
            "nodes": {},
            "preScore": None,
            "assume": None,
        }, snapshot
    answers = {
        name: find_pod_volumes(snapshot, pod, claims, snapshot.nodes[name], profile=PARITY)
        for name in sorted(snapshot.nodes)
    }
    assume: dict[str, Any] | None = None
    chosen = next((name for name, found in answers.items() if scheduled and found.fits), None)
    if chosen is not None:
        snapshot, reservation = assume_pod_volumes(
            snapshot, pod, snapshot.nodes[chosen], answers[chosen], profile=PARITY
        )
        assume = _assume_json(chosen, reservation)
    return {
        "claims": _claims_json(claims, ""),
        "preFilter": _status_json(status),
        "nodes": {name: _node_json(found, scheduled=scheduled) for name, found in answers.items()},
        "preScore": _status_json(status) if scheduled else None,
        "assume": assume,
    }, snapshot


def _claims_json(claims: PodClaims, error: str) -> dict[str, Any]:
    return {
        "bound": [claim.key for claim in claims.bound],
        "unboundDelayed": [claim.key for claim in claims.delayed],
        "unboundImmediate": [claim.key for claim in claims.immediate],
        "candidateVolumes": {
            name: [volume.name for volume in volumes] for name, volumes in claims.candidates.items()
        },
        "error": error,
    }


def _status_json(status: Status) -> dict[str, Any]:
    return {"code": status.code.value, "reasons": list(status.reasons)}


def _node_json(found: NodeAnswer, *, scheduled: bool) -> dict[str, Any]:
    return {
        "reasons": list(found.reasons),
        "error": found.error,
        "staticBindings": [
            {
                "pvc": binding.claim.key,
                "pv": binding.volume.name,
                "requestBytes": PARITY.bytes_of(binding.claim.size),
                "capacityBytes": PARITY.bytes_of(binding.volume.size),
            }
            for binding in found.bindings
        ],
        "dynamicProvisions": [
            {
                "pvc": provision.claim.key,
                "capacityChecked": provision.capacity is not None,
                **({"nodeName": node} if (node := selected_node(provision.claim, alpha=False)) else {}),
            }
            for provision in found.provisions
        ],
        "filter": _status_json(found.status) if scheduled else None,
        "score": node_score(found, profile=PARITY) if scheduled and found.fits else None,
    }


def _assume_json(node: str, reservation: Reservation) -> dict[str, Any]:
    return {
        "node": node,
        "allBound": reservation.all_bound,
        "assumedPVs": [
            {
                "name": assumed.volume.name,
                "pvc": assumed.claim.key,
                "changed": assumed.changed,
                "claimRef": {
                    "apiVersion": ref.api_version,
                    "kind": ref.kind,
                    "namespace": ref.namespace,
                    "name": ref.name,
                    "uid": ref.uid,
                },
                "annotations": dict(assumed.volume.meta.annotations),
            }
            for assumed in reservation.volumes
            if (ref := assumed.volume.claim_ref) is not None
        ],
        "assumedPVCs": [
            {"name": claim.key, "annotations": dict(claim.meta.annotations)} for claim in reservation.claims
        ],
        "error": "",
    }
