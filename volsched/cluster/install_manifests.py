"""What an administrator applies to run a mode in the cluster: one source for YAML, kustomize and Helm.

An observer may list and watch the kinds that are observed, and nothing else; a mode that acts may do what its row
of `cluster.permissions` says. It listens on loopback, where only `kubectl port-forward` reaches it, unless it is
given a certificate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from volsched.cluster.installation_lock import NAMESPACE as LOCK_NAMESPACE
from volsched.cluster.permissions import ADVISE, GATE_MODE, MODES, OBSERVE, OWN, role_rules
from volsched.kube.meta import GATE, SCHEDULER_NAME

COMPONENTS = {OBSERVE: "observer", ADVISE: "adviser", GATE_MODE: "gate", OWN: "scheduler"}
"""Mode → the last part of the names of its objects."""
PORT = 8700
UID = 10001
"""Of the user in the image."""
DATA = "/data"
STARTUP_MINUTES = 10
"""For the first list of a large cluster."""
STORE_SIZE = "10Gi"
DATABASE_KEY = "url"
GATED = "volsched.io/gate"
"""The label of namespaces whose new pods with claims get our scheduling gate."""
OWNED = "volsched.io/owned-classes"
"""The label of namespaces in which claims of owned classes may be made."""
Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    namespace: str = "volsched"
    image: str = "volsched:latest"
    tls_secret: str | None = None
    """Of type kubernetes.io/tls: with one, the observer is a Service, which others ask with a token."""
    monitored: bool = False
    """With a ServiceMonitor, where Prometheus' operator is installed; it needs the Service."""
    mode: str = OBSERVE
    database_secret: str | None = None
    """A Secret whose key `url` is a PostgreSQL URL: two replicas share it. Without, SQLite and one replica."""
    owned_classes: tuple[str, ...] = ()
    """StorageClasses whose claims only pods of our scheduler, and of those that let us bind, may use."""
    binding_schedulers: tuple[str, ...] = ()
    """schedulerNames of kube-schedulers that leave volumes to us: their extender's bind is ours."""
    prioritized: bool = False
    """With a FlowSchema, so that our calls do not queue behind all other service accounts."""

    @property
    def name(self) -> str:
        return f"volsched-{COMPONENTS[self.mode]}"

    @property
    def labels(self) -> dict[str, str]:
        return {"app.kubernetes.io/name": "volsched", "app.kubernetes.io/component": COMPONENTS[self.mode]}

    @property
    def acts(self) -> bool:
        return self.mode != OBSERVE


def manifests(wanted: Installation) -> list[Object]:
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": wanted.namespace, "labels": _restricted(wanted)},
        },
        _object("v1", "ServiceAccount", wanted),
        _cluster_role(wanted),
        _role_binding(wanted),
        *_lock_role(wanted),
        _deployment(wanted),
        _network_policy(wanted),
    ]
    if wanted.acts:
        objects.append(_store_claim(wanted) if wanted.database_secret is None else _disruption_budget(wanted))
    if wanted.mode == GATE_MODE:
        objects += _gate_policy(wanted)
    if wanted.owned_classes:
        objects += _owned_classes(wanted)
    if wanted.prioritized:
        objects.append(_flow_schema(wanted))
    if wanted.tls_secret is not None:
        objects.append(_service(wanted))
        if wanted.monitored:
            objects.append(_monitor(wanted))
    return objects


def _object(api_version: str, kind: str, wanted: Installation, **parts: Any) -> Object:
    names = {"name": wanted.name, "namespace": wanted.namespace, "labels": wanted.labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": names, **parts}


def _clusterwide(api_version: str, kind: str, wanted: Installation, **parts: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": wanted.name, "labels": wanted.labels},
        **parts,
    }


def _restricted(wanted: Installation) -> Mapping[str, str]:
    return {**wanted.labels, "pod-security.kubernetes.io/enforce": "restricted"}


def _cluster_role(wanted: Installation) -> Object:
    rules = role_rules(MODES[wanted.mode])
    return _clusterwide("rbac.authorization.k8s.io/v1", "ClusterRole", wanted, rules=rules)


def _role_binding(wanted: Installation) -> Object:
    return _clusterwide(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        wanted,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": wanted.name},
        subjects=[{"kind": "ServiceAccount", "name": wanted.name, "namespace": wanted.namespace}],
    )


def _lock_role(wanted: Installation) -> tuple[Object, ...]:
    """For the installation lock, in the one namespace where installations of all namespaces meet."""
    rules = role_rules(MODES[wanted.mode], namespace=LOCK_NAMESPACE)
    if not rules:
        return ()
    version, metadata = (
        "rbac.authorization.k8s.io/v1",
        {
            "name": f"{wanted.name}-lock",
            "namespace": LOCK_NAMESPACE,
            "labels": wanted.labels,
        },
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]}
    account = {"kind": "ServiceAccount", "name": wanted.name, "namespace": wanted.namespace}
    return (
        {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": version,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [account],
        },
    )


def _store_claim(wanted: Installation) -> Object:
    """What is in flight is in the store: one that vanished with its pod would forget what it has to undo."""
    resources = {"requests": {"storage": STORE_SIZE}}
    return _object(
        "v1", "PersistentVolumeClaim", wanted, spec={"accessModes": ["ReadWriteOnce"], "resources": resources}
    )


def _disruption_budget(wanted: Installation) -> Object:
    selector = {"matchLabels": wanted.labels}
    return _object("policy/v1", "PodDisruptionBudget", wanted, spec={"maxUnavailable": 1, "selector": selector})


def _owned_classes(wanted: Installation) -> list[Object]:
    """Two schedulers that take from one pool of volumes collide; a class of our own has no other taker.

    A policy for pods cannot look up their claims. So claims of the class are made in labelled namespaces only, and
    there every pod with a claim has our scheduler, or one whose volumes we bind.
    """
    classes, schedulers = _cel_list(wanted.owned_classes), (SCHEDULER_NAME, *wanted.binding_schedulers)
    owned = "object.spec.?storageClassName.orValue('')"
    claims = (
        {"resourceRules": [_admission_rule("persistentvolumeclaims")]},
        f"{owned} in {classes}",
        f"namespaceObject.metadata.?labels[?'{OWNED}'].orValue('') == 'enabled'",
        f"this StorageClass belongs to volsched; label the namespace {OWNED}=enabled to use it",
    )
    pods = (
        # Not a condition on namespaceObject: a server gives match conditions none, and passes over their errors.
        {
            "namespaceSelector": {"matchLabels": {OWNED: "enabled"}},
            "resourceRules": [_admission_rule("pods")],
        },
        "object.spec.?volumes.orValue([]).exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))",
        f"object.spec.schedulerName in {_cel_list(schedulers)}",
        f"pods with claims in namespaces with {OWNED}=enabled need schedulerName: {' or '.join(schedulers)}",
    )
    return [
        *_policy(wanted, "owned-claims", *claims),
        *_policy(wanted, "owned-pods", *pods),
    ]


def _cel_list(names: Iterable[str]) -> str:
    """Names of objects have no quotes."""
    quoted = ", ".join(f"'{it}'" for it in names)
    return f"[{quoted}]"


def _gate_policy(wanted: Installation) -> tuple[Object, Object]:
    """Sets the gate on new pods with claims, in namespaces that are labelled for it; from Kubernetes 1.36 on.

    No server of ours is in the path: deleting the policy and `volsched ungate --all` end it.
    """
    version = "admissionregistration.k8s.io/v1"
    metadata = {"name": wanted.name, "labels": wanted.labels}
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
        {"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": version,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": wanted.name},
        },
    )


def _admission_rule(resource: str) -> Object:
    return {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}


def _policy(
    wanted: Installation, part: str, constraints: Object, concerns: str, holds: str, message: str
) -> tuple[Object, Object]:
    name, version = f"{wanted.name}-{part}", "admissionregistration.k8s.io/v1"
    metadata = {"name": name, "labels": wanted.labels}
    spec = {
        # A policy that cannot be evaluated keeps nobody from working.
        "failurePolicy": "Ignore",
        "matchConstraints": constraints,
        "matchConditions": [{"name": part, "expression": concerns}],
        "validations": [{"expression": holds, "message": message}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return (
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding},
    )


def _flow_schema(wanted: Installation) -> Object:
    """kube-scheduler's level: a service account outside kube-system is in `workload-low` otherwise."""
    account = {"kind": "ServiceAccount", "serviceAccount": {"name": wanted.name, "namespace": wanted.namespace}}
    rule = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "clusterScope": True,
        "namespaces": ["*"],
    }
    return _clusterwide(
        "flowcontrol.apiserver.k8s.io/v1",
        "FlowSchema",
        wanted,
        spec={
            "priorityLevelConfiguration": {"name": "workload-high"},
            "matchingPrecedence": 800,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [account], "resourceRules": [rule]}],
        },
    )


def _deployment(wanted: Installation) -> Object:
    scheme = "http" if wanted.tls_secret is None else "https"
    command = ["volsched", "observe"] if not wanted.acts else ["volsched", "attach", "--mode", wanted.mode]
    if wanted.database_secret is None:
        command += ["--db", f"{DATA}/{'attached' if wanted.acts else 'observed'}.db"]
    command += ["--port", str(PORT)]
    mounts = [{"name": "data", "mountPath": DATA}, {"name": "tmp", "mountPath": "/tmp"}]
    volumes: list[Object] = [
        {"name": "data", **_store_volume(wanted)},
        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
    ]
    if wanted.tls_secret is not None:
        command += ["--host", "0.0.0.0", "--tls-cert", "/tls/tls.crt", "--tls-key", "/tls/tls.key"]
        command += ["--client-ca", "/tls/ca.crt"]
        mounts.append({"name": "tls", "mountPath": "/tls"})
        volumes.append({"name": "tls", "secret": {"secretName": wanted.tls_secret, "defaultMode": 0o440}})
    ready = {"exec": {"command": ["python", "-m", "volsched.runtime.health_check", "api"]}, "timeoutSeconds": 10}
    container = {
        "name": COMPONENTS[wanted.mode],
        "image": wanted.image,
        "command": command,
        "env": [{"name": "VOLSCHED_HEALTH_URL", "value": f"{scheme}://127.0.0.1:{PORT}"}, *_database(wanted)],
        "ports": [{"name": "api", "containerPort": PORT}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "startupProbe": {**ready, "periodSeconds": 10, "failureThreshold": STARTUP_MINUTES * 6},
        "readinessProbe": {**ready, "periodSeconds": 15},
        # Not by what the cluster says: a restart does not make it answer again.
        "livenessProbe": {
            "exec": {"command": ["python", "-m", "volsched.runtime.health_check", "alive"]},
            "periodSeconds": 30,
            "timeoutSeconds": 10,
            "failureThreshold": 4,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    return _object(
        "apps/v1",
        "Deployment",
        wanted,
        spec={
            "replicas": 1 if wanted.database_secret is None else 2,
            # Two of them would write one SQLite file.
            "strategy": {"type": "Recreate" if wanted.database_secret is None else "RollingUpdate"},
            "selector": {"matchLabels": wanted.labels},
            "template": {
                "metadata": {"labels": wanted.labels},
                "spec": {
                    **({"priorityClassName": "system-cluster-critical"} if wanted.mode == OWN else {}),
                    "serviceAccountName": wanted.name,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": UID,
                        "runAsGroup": UID,
                        "fsGroup": UID,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    )


def _store_volume(wanted: Installation) -> Object:
    if wanted.acts and wanted.database_secret is None:
        return {"persistentVolumeClaim": {"claimName": wanted.name}}
    return {"emptyDir": {"sizeLimit": "8Gi"}}


def _database(wanted: Installation) -> list[Object]:
    if wanted.database_secret is None:
        return []
    key = {"secretKeyRef": {"name": wanted.database_secret, "key": DATABASE_KEY}}
    return [{"name": "VOLSCHED_DATABASE_URL", "valueFrom": key}]


def _network_policy(wanted: Installation) -> Object:
    # kube-scheduler asks from the network of a host, which no selector names; callers prove who they are.
    anywhere: Object = {} if wanted.mode in (ADVISE, OWN) else {"from": [{"podSelector": {}}]}
    inside = [{**anywhere, "ports": [{"protocol": "TCP", "port": PORT}]}]
    ports = [("TCP", 443), ("TCP", 6443), ("UDP", 53), ("TCP", 53)]
    ports += [] if wanted.database_secret is None else [("TCP", 5432)]
    return _object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        wanted,
        spec={
            "podSelector": {"matchLabels": wanted.labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": inside if wanted.tls_secret is not None else [],
            # The API server, the names of it and the database; nobody else is ever called.
            "egress": [{"ports": [{"protocol": protocol, "port": port} for protocol, port in ports]}],
        },
    )


def _service(wanted: Installation) -> Object:
    ports = [{"name": "api", "port": PORT, "targetPort": "api"}]
    return _object("v1", "Service", wanted, spec={"selector": wanted.labels, "ports": ports})


def _monitor(wanted: Installation) -> Object:
    endpoint = {
        "port": "api",
        "path": "/metrics",
        "scheme": "https",
        "tlsConfig": {"insecureSkipVerify": False, "ca": {"secret": {"name": wanted.tls_secret, "key": "ca.crt"}}},
        "authorization": {"credentials": {"name": f"{wanted.name}-metrics", "key": "token"}},
    }
    selector = {"matchLabels": wanted.labels}
    return _object(
        "monitoring.coreos.com/v1", "ServiceMonitor", wanted, spec={"selector": selector, "endpoints": [endpoint]}
    )


def kustomize_files(wanted: Installation) -> Mapping[str, list[Object]]:
    """File → its documents."""
    return {
        "kustomization.yaml": [
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                # It would move the role of the lock out of its namespace.
                **({} if wanted.acts else {"namespace": wanted.namespace}),
                "resources": [f"{wanted.mode}.yaml"],
            }
        ],
        f"{wanted.mode}.yaml": manifests(wanted),
    }


RENDERED_BY_HELM = "volsched.io/rendered-by-helm"
_DESCRIBED = {
    ADVISE: "Answers kube-scheduler's extender calls with joint capacity and reservations. It never writes.",
    GATE_MODE: "Binds the claims of gated pods as one recorded transaction; their own scheduler places them.",
    OBSERVE: "Observes the volumes of a cluster: why, since when, what if. It reads and never writes.",
    OWN: "Schedules pods of schedulerName volsched, and binds their claims as one recorded transaction.",
}


def helm_files(wanted: Installation, *, version: str) -> Mapping[str, list[Object]]:
    """A chart whose templates have values in plain places only. The release makes its namespace itself."""
    filled = Installation(
        namespace="{{ .Release.Namespace }}",
        image="{{ .Values.image }}",
        tls_secret=wanted.tls_secret and "{{ .Values.tlsSecret }}",
        monitored=wanted.monitored,
        mode=wanted.mode,
        database_secret=wanted.database_secret and "{{ .Values.databaseSecret }}",
        owned_classes=wanted.owned_classes,
        binding_schedulers=wanted.binding_schedulers,
        prioritized=wanted.prioritized,
    )
    values = {"image": wanted.image} | ({"tlsSecret": wanted.tls_secret} if wanted.tls_secret else {})
    values |= {"databaseSecret": wanted.database_secret} if wanted.database_secret else {}
    described = _DESCRIBED[wanted.mode]
    return {
        "Chart.yaml": [
            {
                "apiVersion": "v2",
                "name": "volsched",
                "version": version,
                "description": described,
                "type": "application",
                # For whoever installs it without having read our documents.
                "annotations": {RENDERED_BY_HELM: "never; our tests substitute its values and check the result"},
            }
        ],
        "values.yaml": [values],
        f"templates/{wanted.mode}.yaml": [it for it in manifests(filled) if it["kind"] != "Namespace"],
    }
