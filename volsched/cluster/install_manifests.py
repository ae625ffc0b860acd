"""The manifests that install a mode in a cluster: one source for YAML, kustomize and Helm.

An observer may only list and watch the observed kinds; a mode that acts has the permissions of its row in
`cluster.permissions`. It listens on loopback, where only `kubectl port-forward` reaches it, unless it is
given a certificate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volsched.cluster.admission_policies import Object, gate_policy, owned_class_policies
from volsched.cluster.installation_lock import NAMESPACE as LOCK_NAMESPACE
from volsched.cluster.permissions import ADVISE, GATE_MODE, MODES, OBSERVE, OWN, role_rules
from volsched.kube.meta import SCHEDULER_NAME

COMPONENTS = {OBSERVE: "observer", ADVISE: "adviser", GATE_MODE: "gate", OWN: "scheduler"}
"""Mode → the last part of the names of its objects."""
PORT = 8700
UID = 10001
"""The uid of the user in the image."""
DATA = "/data"
STARTUP_MINUTES = 10
"""Time for the first list of a large cluster."""
STORE_SIZE = "10Gi"
DATABASE_KEY = "url"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    namespace: str = "volsched"
    image: str = "volsched:latest"
    tls_secret: str | None = None
    """A Secret of type kubernetes.io/tls. It adds a Service, whose callers authenticate with a token."""
    monitored: bool = False
    """Adds a ServiceMonitor for the Prometheus operator; it needs the Service."""
    mode: str = OBSERVE
    database_secret: str | None = None
    """A Secret whose key `url` is a PostgreSQL URL: two replicas share it. Without, SQLite and one replica."""
    owned_classes: tuple[str, ...] = ()
    """StorageClasses whose claims only pods of our scheduler, and of schedulers that let us bind, may use."""
    binding_schedulers: tuple[str, ...] = ()
    """schedulerNames of kube-schedulers whose extender binds through us."""
    prioritized: bool = False
    """Adds a FlowSchema, so that our calls do not queue behind all other service accounts."""

    @property
    def name(self) -> str:
        return f"volsched-{COMPONENTS[self.mode]}"

    @property
    def labels(self) -> dict[str, str]:
        return {"app.kubernetes.io/name": "volsched", "app.kubernetes.io/component": COMPONENTS[self.mode]}

    @property
    def acts(self) -> bool:
        return self.mode != OBSERVE


def manifests(installation: Installation) -> list[Object]:
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": installation.namespace, "labels": _namespace_labels(installation)},
        },
        _object("v1", "ServiceAccount", installation),
        _cluster_role(installation),
        _role_binding(installation),
        *_lock_role(installation),
        _deployment(installation),
        _network_policy(installation),
    ]
    if installation.acts:
        objects.append(
            _store_claim(installation)
            if installation.database_secret is None
            else _disruption_budget(installation)
        )
    if installation.mode == GATE_MODE:
        objects += gate_policy(installation.name, installation.labels)
    if installation.owned_classes:
        schedulers = (SCHEDULER_NAME, *installation.binding_schedulers)
        objects += owned_class_policies(
            installation.name, installation.labels, classes=installation.owned_classes, schedulers=schedulers
        )
    if installation.prioritized:
        objects.append(_flow_schema(installation))
    if installation.tls_secret is not None:
        objects.append(_service(installation))
        if installation.monitored:
            objects.append(_monitor(installation))
    return objects


def _object(api_version: str, kind: str, installation: Installation, **parts: Any) -> Object:
    metadata = {"name": installation.name, "namespace": installation.namespace, "labels": installation.labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def _clusterwide(api_version: str, kind: str, installation: Installation, **parts: Any) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": installation.name, "labels": installation.labels},
        **parts,
    }


def _namespace_labels(installation: Installation) -> Mapping[str, str]:
    return {**installation.labels, "pod-security.kubernetes.io/enforce": "restricted"}


def _cluster_role(installation: Installation) -> Object:
    rules = role_rules(MODES[installation.mode])
    return _clusterwide("rbac.authorization.k8s.io/v1", "ClusterRole", installation, rules=rules)


def _role_binding(installation: Installation) -> Object:
    return _clusterwide(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        installation,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": installation.name},
        subjects=[{"kind": "ServiceAccount", "name": installation.name, "namespace": installation.namespace}],
    )


def _lock_role(installation: Installation) -> tuple[Object, ...]:
    """The role for the installation lock, which is in one namespace for installations of all namespaces."""
    rules = role_rules(MODES[installation.mode], namespace=LOCK_NAMESPACE)
    if not rules:
        return ()
    version, metadata = (
        "rbac.authorization.k8s.io/v1",
        {
            "name": f"{installation.name}-lock",
            "namespace": LOCK_NAMESPACE,
            "labels": installation.labels,
        },
    )
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]}
    account = {"kind": "ServiceAccount", "name": installation.name, "namespace": installation.namespace}
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


def _store_claim(installation: Installation) -> Object:
    """The store holds bindings in flight: if it were lost with its pod, they could not be undone."""
    resources = {"requests": {"storage": STORE_SIZE}}
    return _object(
        "v1",
        "PersistentVolumeClaim",
        installation,
        spec={"accessModes": ["ReadWriteOnce"], "resources": resources},
    )


def _disruption_budget(installation: Installation) -> Object:
    selector = {"matchLabels": installation.labels}
    return _object(
        "policy/v1", "PodDisruptionBudget", installation, spec={"maxUnavailable": 1, "selector": selector}
    )


def _flow_schema(installation: Installation) -> Object:
    """Gives our calls kube-scheduler's priority level; other service accounts are in `workload-low`."""
    account = {
        "kind": "ServiceAccount",
        "serviceAccount": {"name": installation.name, "namespace": installation.namespace},
    }
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
        installation,
        spec={
            "priorityLevelConfiguration": {"name": "workload-high"},
            "matchingPrecedence": 800,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [account], "resourceRules": [rule]}],
        },
    )


def _deployment(installation: Installation) -> Object:
    scheme = "http" if installation.tls_secret is None else "https"
    command = (
        ["volsched", "observe"] if not installation.acts else ["volsched", "attach", "--mode", installation.mode]
    )
    if installation.database_secret is None:
        command += ["--db", f"{DATA}/{'attached' if installation.acts else 'observed'}.db"]
    command += ["--port", str(PORT)]
    mounts = [{"name": "data", "mountPath": DATA}, {"name": "tmp", "mountPath": "/tmp"}]
    volumes: list[Object] = [
        {"name": "data", **_store_volume(installation)},
        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
    ]
    if installation.tls_secret is not None:
        command += ["--host", "0.0.0.0", "--tls-cert", "/tls/tls.crt", "--tls-key", "/tls/tls.key"]
        command += ["--client-ca", "/tls/ca.crt"]
        mounts.append({"name": "tls", "mountPath": "/tls"})
        volumes.append({"name": "tls", "secret": {"secretName": installation.tls_secret, "defaultMode": 0o440}})
    ready = {"exec": {"command": ["python", "-m", "volsched.runtime.health_check", "api"]}, "timeoutSeconds": 10}
    container = {
        "name": COMPONENTS[installation.mode],
        "image": installation.image,
        "command": command,
        "env": [
            {"name": "VOLSCHED_HEALTH_URL", "value": f"{scheme}://127.0.0.1:{PORT}"},
            *_database(installation),
        ],
        "ports": [{"name": "api", "containerPort": PORT}],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "startupProbe": {**ready, "periodSeconds": 10, "failureThreshold": STARTUP_MINUTES * 6},
        "readinessProbe": {**ready, "periodSeconds": 15},
        # Independent of the cluster: a restart would not make the cluster answer again.
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
        installation,
        spec={
            "replicas": 1 if installation.database_secret is None else 2,
            # Otherwise two pods would write one SQLite file.
            "strategy": {"type": "Recreate" if installation.database_secret is None else "RollingUpdate"},
            "selector": {"matchLabels": installation.labels},
            "template": {
                "metadata": {"labels": installation.labels},
                "spec": {
                    **({"priorityClassName": "system-cluster-critical"} if installation.mode == OWN else {}),
                    "serviceAccountName": installation.name,
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


def _store_volume(installation: Installation) -> Object:
    if installation.acts and installation.database_secret is None:
        return {"persistentVolumeClaim": {"claimName": installation.name}}
    return {"emptyDir": {"sizeLimit": "8Gi"}}


def _database(installation: Installation) -> list[Object]:
    if installation.database_secret is None:
        return []
    key = {"secretKeyRef": {"name": installation.database_secret, "key": DATABASE_KEY}}
    return [{"name": "VOLSCHED_DATABASE_URL", "valueFrom": key}]


def _network_policy(installation: Installation) -> Object:
    # kube-scheduler calls from a host's network, which no selector can name; callers authenticate.
    anywhere: Object = {} if installation.mode in (ADVISE, OWN) else {"from": [{"podSelector": {}}]}
    ingress = [{**anywhere, "ports": [{"protocol": "TCP", "port": PORT}]}]
    ports = [("TCP", 443), ("TCP", 6443), ("UDP", 53), ("TCP", 53)]
    ports += [] if installation.database_secret is None else [("TCP", 5432)]
    return _object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        installation,
        spec={
            "podSelector": {"matchLabels": installation.labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress if installation.tls_secret is not None else [],
            # The API server, DNS and the database; nothing else is ever called.
            "egress": [{"ports": [{"protocol": protocol, "port": port} for protocol, port in ports]}],
        },
    )


def _service(installation: Installation) -> Object:
    ports = [{"name": "api", "port": PORT, "targetPort": "api"}]
    return _object("v1", "Service", installation, spec={"selector": installation.labels, "ports": ports})


def _monitor(installation: Installation) -> Object:
    endpoint = {
        "port": "api",
        "path": "/metrics",
        "scheme": "https",
        "tlsConfig": {
            "insecureSkipVerify": False,
            "ca": {"secret": {"name": installation.tls_secret, "key": "ca.crt"}},
        },
        "authorization": {"credentials": {"name": f"{installation.name}-metrics", "key": "token"}},
    }
    selector = {"matchLabels": installation.labels}
    return _object(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        installation,
        spec={"selector": selector, "endpoints": [endpoint]},
    )


def kustomize_files(installation: Installation) -> Mapping[str, list[Object]]:
    """File → its documents."""
    return {
        "kustomization.yaml": [
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                # A namespace here would override that of the lock's role.
                **({} if installation.acts else {"namespace": installation.namespace}),
                "resources": [f"{installation.mode}.yaml"],
            }
        ],
        f"{installation.mode}.yaml": manifests(installation),
    }


RENDERED_BY_HELM = "volsched.io/rendered-by-helm"
_DESCRIPTIONS = {
    ADVISE: "Answers kube-scheduler's extender calls with joint capacity and reservations. It never writes.",
    GATE_MODE: "Binds the claims of gated pods as one recorded transaction; their own scheduler places them.",
    OBSERVE: "Observes the volumes of a cluster: why, since when, what if. It reads and never writes.",
    OWN: "Schedules pods of schedulerName volsched, and binds their claims as one recorded transaction.",
}


def helm_files(installation: Installation, *, version: str) -> Mapping[str, list[Object]]:
    """A chart whose templates substitute values and do nothing else. Helm creates the release's namespace."""
    template = Installation(
        namespace="{{ .Release.Namespace }}",
        image="{{ .Values.image }}",
        tls_secret=installation.tls_secret and "{{ .Values.tlsSecret }}",
        monitored=installation.monitored,
        mode=installation.mode,
        database_secret=installation.database_secret and "{{ .Values.databaseSecret }}",
        owned_classes=installation.owned_classes,
        binding_schedulers=installation.binding_schedulers,
        prioritized=installation.prioritized,
    )
    values = {"image": installation.image} | (
        {"tlsSecret": installation.tls_secret} if installation.tls_secret else {}
    )
    values |= {"databaseSecret": installation.database_secret} if installation.database_secret else {}
    description = _DESCRIPTIONS[installation.mode]
    return {
        "Chart.yaml": [
            {
                "apiVersion": "v2",
                "name": "volsched",
                "version": version,
                "description": description,
                "type": "application",
                # For users who install the chart without reading our documents.
                "annotations": {RENDERED_BY_HELM: "never; our tests substitute its values and check the result"},
            }
        ],
        "values.yaml": [values],
        f"templates/{installation.mode}.yaml": [it for it in manifests(template) if it["kind"] != "Namespace"],
    }
