"""Admission policies that an installation adds: the gate on new pods, and classes that only our scheduler uses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from volsched.kube.meta import GATE

GATED = "volsched.io/gate"
"""The label of namespaces whose new pods with claims get our scheduling gate."""
OWNED = "volsched.io/owned-classes"
"""The label of namespaces in which claims of owned classes may be created."""
API_VERSION = "admissionregistration.k8s.io/v1"
Object = dict[str, Any]


def owned_class_policies(
    name: str, labels: Mapping[str, str], *, classes: Sequence[str], schedulers: Sequence[str]
) -> list[Object]:
    """Reserves classes for these schedulers, because two schedulers that use one pool of volumes conflict.

    A policy for pods cannot look up their claims. So claims of these classes may be created in labelled namespaces
    only, and every pod with a claim there must have one of these schedulers.
    """
    owned = "object.spec.?storageClassName.orValue('')"
    claims = (
        {"resourceRules": [_admission_rule("persistentvolumeclaims")]},
        f"{owned} in {_cel_list(classes)}",
        f"namespaceObject.metadata.?labels[?'{OWNED}'].orValue('') == 'enabled'",
        f"this StorageClass belongs to volsched; label the namespace {OWNED}=enabled to use it",
    )
    pods = (
        # Not a condition on namespaceObject: match conditions cannot read it, and a server ignores their errors.
        {
            "namespaceSelector": {"matchLabels": {OWNED: "enabled"}},
            "resourceRules": [_admission_rule("pods")],
        },
        "object.spec.?volumes.orValue([]).exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))",
        f"object.spec.schedulerName in {_cel_list(schedulers)}",
        f"pods with claims in namespaces with {OWNED}=enabled need schedulerName: {' or '.join(schedulers)}",
    )
    return [
        *_policy(name, labels, "owned-claims", *claims),
        *_policy(name, labels, "owned-pods", *pods),
    ]


def _cel_list(names: Iterable[str]) -> str:
    """Names of objects contain no quotes, so none has to be escaped."""
    quoted = ", ".join(f"'{it}'" for it in names)
    return f"[{quoted}]"


def gate_policy(name: str, labels: Mapping[str, str]) -> tuple[Object, Object]:
    """Sets the gate on new pods with claims, in labelled namespaces; requires Kubernetes 1.36 or later.

    It needs no webhook of ours. To remove it, delete the policy and run `volsched ungate --all`.
    """
    metadata = {"name": name, "labels": labels}
    gates = "object.spec.?schedulingGates.orValue([])"
    mutation = (
        f"{gates}.size() == 0 ? "
        f'[JSONPatch{{op: "add", path: "/spec/schedulingGates", value: [{{"name": "{GATE}"}}]}}] : '
        f'[JSONPatch{{op: "add", path: "/spec/schedulingGates/-", value: {{"name": "{GATE}"}}}}]'
    )
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {GATED: "enabled"}},
            "resourceRules": [_admission_rule("pods")],
        },
        "matchConditions": [
            {
                "name": "has-claims",
                "expression": "object.spec.?volumes.orValue([]).exists(v, has(v.persistentVolumeClaim) || "
                "has(v.ephemeral)) && object.spec.?nodeName.orValue('') == ''",
            },
            {"name": "not-gated-yet", "expression": f"!{gates}.exists(g, g.name == '{GATE}')"},
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": mutation}}],
    }
    return (
        {"apiVersion": API_VERSION, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": API_VERSION,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": name},
        },
    )


def _admission_rule(resource: str) -> Object:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}


def _policy(
    prefix: str, labels: Mapping[str, str], part: str, constraints: Object, concerns: str, holds: str, message: str
) -> tuple[Object, Object]:
    name = f"{prefix}-{part}"
    metadata = {"name": name, "labels": labels}
    spec = {
        # A policy that cannot be evaluated must not block users.
        "failurePolicy": "Ignore",
        "matchConstraints": constraints,
        "matchConditions": [{"name": part, "expression": concerns}],
        "validations": [{"expression": holds, "message": message}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return (
        {"apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": API_VERSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": binding,
        },
    )
