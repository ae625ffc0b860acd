"""Golden vectors of the reference's own code, run under `parity`, and our answers to those of the binder."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from volsched.kube.documents import drop_nulls
from volsched.kube.kinds import KINDS
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod
from volsched.lab.conformance.controller import controller_answer, controller_expectation
from volsched.scheduling.rules.pod_claims import PodClaims, classify_claims, selected_node
from volsched.scheduling.rules.profile import PARITY
from volsched.scheduling.rules.scoring import node_score
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of
from volsched.scheduling.rules.status import AttemptError, Code, Status
from volsched.scheduling.rules.volume_filter import (
    AssumedDecision,
    NodeAnswer,
    assume_pod_volumes,
    find_pod_volumes,
    prefilter,
)

# The answer of profile `parity` to a vector of the volume binder: one pod on a small cluster, perhaps a second.

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
    """Our answer to a vector, in the format of its `expected`."""
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
        snapshot, assumption = assume_pod_volumes(
            snapshot, pod, snapshot.nodes[chosen], answers[chosen], profile=PARITY
        )
        assume = _assume_json(chosen, assumption)
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


def _node_json(answer: NodeAnswer, *, scheduled: bool) -> dict[str, Any]:
    return {
        "reasons": list(answer.reasons),
        "error": answer.error,
        "staticBindings": [
            {
                "pvc": binding.claim.key,
                "pv": binding.volume.name,
                "requestBytes": PARITY.bytes_of(binding.claim.size),
                "capacityBytes": PARITY.bytes_of(binding.volume.size),
            }
            for binding in answer.bindings
        ],
        "dynamicProvisions": [
            {
                "pvc": provision.claim.key,
                "capacityChecked": provision.capacity is not None,
                **({"nodeName": node} if (node := selected_node(provision.claim, alpha=False)) else {}),
            }
            for provision in answer.provisions
        ],
        "filter": _status_json(answer.status) if scheduled else None,
        "score": node_score(answer, profile=PARITY) if scheduled and answer.fits else None,
    }


def _assume_json(node: str, assumption: AssumedDecision) -> dict[str, Any]:
    return {
        "node": node,
        "allBound": assumption.all_bound,
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
            for assumed in assumption.volumes
            if (ref := assumed.volume.claim_ref) is not None
        ],
        "assumedPVCs": [
            {"name": claim.key, "annotations": dict(claim.meta.annotations)} for claim in assumption.claims
        ],
        "error": "",
    }


# There are vectors of the volume binder and of the PV controller (`conformance.controller`). Input is used
# exactly as written: no defaults, no validation. The comparison covers every field.

PANIC = "scorePanic"
ABSENT = "(absent)"


class VectorError(Exception):
    """The file does not hold runnable vectors; the message says which line and why."""


@dataclass(frozen=True, slots=True)
class Vector:
    id: str
    category: str
    input: Json
    expected: Json

    @property
    def of_binder(self) -> bool:
        return "pod" in self.input

    @property
    def of_controller(self) -> bool:
        return "mode" in self.input


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in which an answer differs from the reference's."""

    path: str
    expected: Any
    got: Any


@dataclass(frozen=True, slots=True)
class VectorOutcome:
    vector: Vector
    differences: tuple[Difference, ...]

    @property
    def failed(self) -> bool:
        return bool(self.differences)

    @property
    def skipped(self) -> bool:
        """The reference crashed on a part of it, so not everything could be compared."""
        return not self.differences and PANIC in json.dumps(self.vector.expected)


def read_vectors(lines: Iterable[bytes]) -> Iterator[Vector]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
            vector = Vector(str(case["id"]), str(case["category"]), case["input"], case["expected"])
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise VectorError(
                f"line {number} is not a vector ({error!r}); expected one JSON object with id, category, input "
                "and expected"
            ) from None
        if not (isinstance(vector.input, dict) and isinstance(vector.expected, dict)):
            raise VectorError(f"line {number} ({vector.id}) is not a vector: input and expected must be objects")
        if not (vector.of_binder or vector.of_controller):
            raise VectorError(
                f"line {number} ({vector.id}) is a vector neither of the volume binder, whose input has a pod, "
                "nor of the PV controller, whose input has a mode; other kinds cannot be run yet"
            )
        yield vector


def run_vector(vector: Vector) -> VectorOutcome:
    """A vector whose input cannot be read is a failure of its own, not of the run."""
    try:
        expected, got = _judged(vector)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return VectorOutcome(
            vector, (Difference("input", "objects", f"{error.title} at {place}: {first['msg']}"),)
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return VectorOutcome(vector, (Difference("input", "objects", repr(error)),))
    return VectorOutcome(vector, tuple(_differences(expected, got)))


def _judged(vector: Vector) -> tuple[Json, Json]:
    """The expectation and the answer, each reduced to what must be equal."""
    case = drop_nulls(vector.input)
    if vector.of_binder:
        return vector.expected, binder_answer(case)
    return controller_expectation(vector.expected), controller_answer(case)


def _differences(expected: Any, got: Any, path: str = "") -> Iterator[Difference]:
    """Every leaf that differs; lists of different length differ as a whole."""
    if isinstance(expected, dict) and isinstance(got, dict):
        crashed = PANIC in expected
        for key in sorted(expected.keys() | got.keys()):
            if key != PANIC and not (crashed and key == "score"):
                yield from _differences(
                    expected.get(key, ABSENT), got.get(key, ABSENT), f"{path}.{key}".lstrip(".")
                )
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, pair in enumerate(zip(expected, got, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif expected != got:
        yield Difference(path, expected, got)
