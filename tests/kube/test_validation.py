"""What is refused at creation, kind by kind: one field changed, one problem at that field."""

from typing import Any

import pytest

from tests.support.manifest_samples import REMOVED, only_problem, sample, verdict

TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
IN_FORCE = "requiredDuringSchedulingIgnoredDuringExecution"
REQUIRED = f"spec/affinity/nodeAffinity/{IN_FORCE}"
PREFERRED = "spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution"
ANTI = "spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0"
TEMPLATE = "spec/volumes/1/ephemeral/volumeClaimTemplate"


def requirement(operator: str, values: list[str], key: str = "disk") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


# --- one field, one problem -----------------------------------------------------------------------------

VOLUME = [
    ("spec/capacity", REMOVED, "spec.capacity.storage: is required"),
    ("spec/capacity/storage", "0", 'spec.capacity.storage: "0" must be greater than zero'),
    ("spec/capacity/storage", "-5Gi", "must be greater than zero"),
    ("spec/capacity/iops", "5", "spec.capacity.iops: is not a capacity of a volume"),
    ("spec/accessModes", [], "spec.accessModes: is required; list at least one of ReadWriteOnce"),
    ("spec/accessModes", ["RWO"], 'spec.accessModes[0]: "RWO" is not one of ReadWriteOnce'),
    ("spec/accessModes", ["ReadWriteOncePod", "ReadOnlyMany"], "ReadWriteOncePod must be the only access mode"),
    ("spec/persistentVolumeReclaimPolicy", "Keep", '"Keep" is not one of Retain, Delete, Recycle'),
    ("spec/storageClassName", "Fast", 'spec.storageClassName: "Fast" must be at most 253'),
    ("spec/volumeMode", "Tape", '"Tape" is not one of Filesystem, Block'),
    ("spec/volumeMode", "", "spec.volumeMode: is required; write one of"),
    ("spec/csi", REMOVED, "spec: has no volume source; write exactly one"),
    ("spec/nfs", {"server": "s", "path": "/"}, "spec: has 2 volume sources (csi, nfs); write exactly one"),
    ("spec/csi/driver", REMOVED, "spec.csi.driver: is required; write the name of a CSI driver"),
    ("spec/csi/driver", "a_b", 'spec.csi.driver: "a_b" must be a CSI driver name'),
    ("spec/csi/driver", "x" * 64, "must be a CSI driver name"),
    ("spec/nodeAffinity", {}, "spec.nodeAffinity.required: is required"),
    ("spec/nodeAffinity/required", {}, "spec.nodeAffinity.required.nodeSelectorTerms: is required"),
    ("spec/nodeAffinity/preferred", [], "spec.nodeAffinity.preferred: is not a field of a volume's node affinity"),
    ("spec/volumeAttributesClassName", "", "spec.volumeAttributesClassName: is empty"),
    ("spec/claimRef/namespace", "a.b", 'spec.claimRef.namespace: "a.b" must be 1 to 63'),
]
CLAIM = [
    ("spec", REMOVED, "spec.accessModes: is required"),
    ("spec/accessModes", REMOVED, "spec.accessModes: is required"),
    ("spec/accessModes/1", "ReadWriteOncePod", "must be the only access mode"),
    ("spec/resources", REMOVED, "spec.resources.requests.storage: is required; write a size such as 10Gi"),
    ("spec/resources/requests/storage", 0, 'spec.resources.requests.storage: "0" must be greater than zero'),
    ("spec/selector/matchLabels", {"a": "-"}, 'spec.selector.matchLabels.a: "-" must be empty or'),
    (
        "spec/selector/matchExpressions",
        [{"key": "a", "operator": "Gt"}],
        '"Gt" is not a valid label selector operator',
    ),
    (
        "spec/selector/matchExpressions",
        [{"key": "a", "operator": "In"}],
        "spec.selector.matchExpressions[0]: values",
    ),
    ("spec/volumeMode", "block", '"block" is not one of Filesystem, Block'),
    ("spec/storageClassName", "-", 'spec.storageClassName: "-" must be'),
]
CLASS = [
    ("provisioner", REMOVED, "provisioner: is required"),
    ("provisioner", "a b", 'provisioner: "a b" must be a name'),
    ("reclaimPolicy", "Recycle", '"Recycle" is not one of Delete, Retain'),
    ("volumeBindingMode", "Later", '"Later" is not one of Immediate, WaitForFirstConsumer'),
    ("bindingMode", "Later", '"Later" is not one of Immediate, WaitForFirstConsumer'),
    ("parameters", {"": "x"}, "has an empty key"),
    ("parameters", {f"k{n}": "" for n in range(513)}, "parameters: has 513 entries, more than 512"),
    ("parameters", {"k": "x" * 256 * 1024}, "parameters: holds more than 262144 bytes"),
    ("allowedTopologies", [{}], "allowedTopologies[0].matchLabelExpressions: is required"),
    (
        "allowedTopologies/0/matchLabelExpressions/0/values",
        [],
        "matchLabelExpressions[0]: needs at least one value",
    ),
    (
        "allowedTopologies/0/matchLabelExpressions/0/values",
        ["a", "b", "a"],
        'matchLabelExpressions[0].values[2]: "a" is the value of entry 0 as well',
    ),
    (
        "allowedTopologies/0/matchLabelExpressions/1",
        {"key": "zone", "values": ["c"]},
        'matchLabelExpressions[1].key: "zone" is the key of entry 0 as well',
    ),
    (
        "allowedTopologies/1",
        {"matchLabelExpressions": [{"key": "zone", "values": ["b", "a"]}]},
        "allowedTopologies[1]: repeats allowedTopologies[0]",
    ),
    ("allowedTopologies/0/matchLabelExpressions/0/key", "-", 'key "-" must be a name'),
    ("allowedTopologies/0/matchLabelExpressions/0/values", ["-"], 'value "-" must be empty or'),
]
CSI_NODE = [
    ("spec/drivers/0/name", REMOVED, "spec.drivers[0].name: is required"),
    (
        "spec/drivers/1",
        {"name": "disk.example.com"},
        'spec.drivers[1].name: "disk.example.com" is the name of entry 0',
    ),
    ("spec/drivers/0/topologyKeys", ["zone", "zone"], 'topologyKeys[1]: "zone" is the key of entry 0'),
    ("spec/drivers/0/topologyKeys", ["a b"], 'topologyKeys[0]: "a b" must be a name'),
    ("spec/drivers/0/allocatable/count", -1, "allocatable.count: -1 is not a whole number from 0"),
]
CAPACITY = [
    ("storageClassName", REMOVED, "storageClassName: is required; write the name of a StorageClass"),
    ("nodeTopology/matchLabels", {"a b": "x"}, "the key must be a name"),
    ("capacity", "-1", 'capacity: "-1" must not be negative'),
]
ATTACHMENT = [
    ("spec/attacher", REMOVED, "spec.attacher: is required"),
    ("spec/nodeName", REMOVED, "spec.nodeName: is required"),
    ("spec/source", {}, "spec.source: must hold exactly one of"),
    ("spec/source/inlineVolumeSpec", {}, "spec.source: must hold exactly one of"),
]
NODE = [
    ("spec/taints/0/effect", "Never", 'spec.taints[0].effect: "Never" is not one of NoSchedule'),
    ("spec/taints/0/effect", REMOVED, "spec.taints[0].effect: is required"),
    ("spec/taints/0/key", "", "spec.taints[0].key: is required"),
    ("spec/taints/0/value", "a b", 'spec.taints[0].value: "a b" must be'),
    ("status/allocatable", {"cpu": "-1"}, 'status.allocatable.cpu: "-1" must not be negative'),
]
POD = [
    ("spec/nodeName", "N 1", 'spec.nodeName: "N 1" must be'),
    ("spec/priority", 2**31, "spec.priority: 2147483648 is not a whole number from"),
    ("spec/nodeSelector", {"a": "-"}, 'spec.nodeSelector.a: "-" must be'),
    (REQUIRED, {}, ".nodeSelectorTerms: is required"),
    (PREFERRED, [{"weight": 0, "preference": TERM}], "[0].weight: 0 is not a whole number from 1 to 100"),
    (PREFERRED, [{"weight": 1, "preference": requirement("in", ["x"])}], '"in" is not one of the operators'),
    (f"{ANTI}/weight", 101, "weight: 101 is not a whole number from 1 to 100"),
    (f"{ANTI}/podAffinityTerm/topologyKey", REMOVED, "podAffinityTerm.topologyKey: is required"),
    (f"{ANTI}/podAffinityTerm/labelSelector", {"matchLabels": {"a": "-"}}, "labelSelector.matchLabels.a"),
    ("spec/affinity/podAffinity", {IN_FORCE: [{"topologyKey": "a b"}]}, f"podAffinity.{IN_FORCE}[0].topologyKey"),
    (f"{ANTI}/podAffinityTerm/namespaceSelector", {"matchLabels": {"a": "-"}}, "namespaceSelector.matchLabels.a"),
    (f"{ANTI}/podAffinityTerm/namespaces", ["a.b"], 'namespaces[0]: "a.b" must be'),
    ("spec/tolerations/0/operator", "Like", 'operator: "Like" is not one of Exists, Equal'),
    ("spec/tolerations/0/value", "x", 'value: "x" must be absent where the operator is Exists'),
    ("spec/tolerations/0", {"operator": "Equal"}, "operator: must be Exists where no key is given"),
    ("spec/tolerations/0", {"key": "a", "value": "-"}, 'tolerations[0].value: "-" must be'),
    ("spec/tolerations/0/key", "a b", 'tolerations[0].key: "a b" must be'),
    ("spec/tolerations/0/effect", "Never", 'effect: "Never" is not one of'),
    ("spec/tolerations/0/tolerationSeconds", 5, "tolerationSeconds: needs the effect NoExecute"),
    ("spec/topologySpreadConstraints/0/maxSkew", 0, "maxSkew: 0 is not a whole number from 1"),
    ("spec/topologySpreadConstraints/0/topologyKey", REMOVED, "topologyKey: is required"),
    (
        "spec/topologySpreadConstraints/0/whenUnsatisfiable",
        "No",
        '"No" is not one of DoNotSchedule, ScheduleAnyway',
    ),
    ("spec/topologySpreadConstraints/0/minDomains", 0, "minDomains: 0 is not a whole number from 1"),
    ("spec/topologySpreadConstraints/0/labelSelector", {"matchLabels": {"a": "-"}}, "labelSelector.matchLabels.a"),
    ("spec/topologySpreadConstraints/0/nodeTaintsPolicy", "No", '"No" is not one of Honor, Ignore'),
    ("spec/containers/0/name", "A", 'spec.containers[0].name: "A" must be 1 to 63'),
    ("spec/containers/1", {"name": "main"}, "is the name of more than one container"),
    ("spec/initContainers", [{"name": "main"}], "is the name of more than one container"),
    ("spec/containers/0/resources/requests/cpu", "3", 'requests.cpu: "3" is above its limit 2'),
    ("spec/containers/0/resources/requests/memory", "-1", 'requests.memory: "-1" must not be negative'),
    ("spec/containers/0/resources/limits/memory", "-1", 'limits.memory: "-1" must not be negative'),
    ("spec/overhead", {"cpu": "-1"}, "spec.overhead.cpu"),
    ("spec/volumes/0/name", REMOVED, "spec.volumes[0].name: is required"),
    ("spec/volumes/0/name", "a.b", 'spec.volumes[0].name: "a.b" must be 1 to 63'),
    ("spec/volumes/1/name", "data", 'spec.volumes[1].name: "data" is the name of entry 0 as well'),
    (
        "spec/volumes/0/emptyDir",
        {},
        "spec.volumes[0]: has 2 volume sources (persistentVolumeClaim, emptyDir); keep one",
    ),
    ("spec/volumes/0", {"name": "x", "persistentVolumeClam": {}}, "persistentVolumeClam: is not a volume source"),
    ("spec/volumes/0", {"name": "x", "local": {}}, "spec.volumes[0].local: is not a volume source"),
    ("spec/volumes/0/persistentVolumeClaim/claimName", REMOVED, "persistentVolumeClaim.claimName: is required"),
    ("spec/volumes/1/ephemeral", {}, "spec.volumes[1].ephemeral.volumeClaimTemplate: is required"),
    (f"{TEMPLATE}/metadata", {"name": "x"}, "volumeClaimTemplate.metadata.name: is not allowed in a template"),
    (f"{TEMPLATE}/metadata", {"labels": {"a": "-"}}, "volumeClaimTemplate.metadata.labels.a"),
    (f"{TEMPLATE}/spec/accessModes", [], "volumeClaimTemplate.spec.accessModes: is required"),
    (f"{TEMPLATE}/spec/resources/requests/storage", "0", "spec.resources.requests.storage"),
]
STATEFUL_SET = [
    ("spec/replicas", -1, "spec.replicas: -1 is not a whole number from 0"),
    ("spec/replicas", 2**31, "is not a whole number from 0 to 2147483647"),
    ("spec/ordinals", {"start": -1}, "spec.ordinals.start: -1 is not a whole number from 0"),
    ("spec/podManagementPolicy", "Any", '"Any" is not one of OrderedReady, Parallel'),
    ("spec/selector", REMOVED, "spec.selector: is required"),
    ("spec/selector/matchLabels/app", "-", 'spec.selector.matchLabels.app: "-" must be empty or'),
    (
        "spec/selector",
        {"matchLabels": {"app": "web"}},
        "spec.selector: does not match the labels of spec.template",
    ),
    ("spec/template", REMOVED, "spec.template: is required"),
    ("spec/template/spec/volumes", [{"name": "a.b"}], 'spec.template.spec.volumes[0].name: "a.b" must be'),
    ("spec/template/metadata/annotations", {"a b": ""}, 'spec.template.metadata.annotations["a b"]: the key'),
    ("spec/volumeClaimTemplates/0/metadata", REMOVED, "spec.volumeClaimTemplates[0].metadata.name: is required"),
    ("spec/volumeClaimTemplates/0/spec/accessModes", ["RWO"], "volumeClaimTemplates[0].spec.accessModes[0]"),
]
TABLE = [
    (kind, *row)
    for kind, rows in [
        ("PersistentVolume", VOLUME),
        ("PersistentVolumeClaim", CLAIM),
        ("StorageClass", CLASS),
        ("CSINode", CSI_NODE),
        ("CSIStorageCapacity", CAPACITY),
        ("VolumeAttachment", ATTACHMENT),
        ("Node", NODE),
        ("Pod", POD),
        ("StatefulSet", STATEFUL_SET),
    ]
    for row in rows
]


@pytest.mark.parametrize(("kind", "path", "value", "expected"), TABLE)
def test_this_field_is_refused_with_these_words(kind: str, path: str, value: Any, expected: str) -> None:
    found = verdict(kind, (path, value))
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("PersistentVolume", "spec/accessModes", ["ReadWriteOncePod"]),
        ("PersistentVolume", "spec/accessModes", ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]),
        ("PersistentVolume", "spec/nodeAffinity", REMOVED),
        ("PersistentVolume", "spec/nodeAffinity/required/nodeSelectorTerms/1", {}),
        ("PersistentVolume", "spec/claimRef", REMOVED),
        ("PersistentVolume", "spec/volumeAttributesClassName", "gold"),
        ("PersistentVolume", "spec/csi/driver", "Disk.Example.com"),
        ("PersistentVolumeClaim", "spec/volumeAttributesClassName", ""),
        ("PersistentVolumeClaim", "spec/storageClassName", ""),
        ("PersistentVolumeClaim", "spec/resources/requests/storage", 5),
        ("PersistentVolumeClaim", "spec/selector", {}),
        ("StorageClass", "provisioner", "Kubernetes.io/No-Provisioner"),
        ("StorageClass", "allowedTopologies", []),
        ("CSINode", "spec/drivers/0/allocatable/count", 0),
        ("CSINode", "spec/drivers", []),
        ("CSIStorageCapacity", "nodeTopology", {}),
        ("CSIStorageCapacity", "capacity", REMOVED),
        ("Pod", "spec/containers", REMOVED),
        ("Pod", "spec", REMOVED),
        ("Pod", "spec/containers", [{}, {}]),
        ("Pod", "spec/volumes/0", {"name": "bare"}),
        ("Pod", "spec/volumes/0", {"name": "inline", "csi": {"driver": "x"}}),
        ("Pod", "spec/tolerations/0", {"operator": "Exists"}),
        (
            "Pod",
            "spec/tolerations/0",
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
        ),
        ("Pod", "spec/topologySpreadConstraints/0/minDomains", 2),
        ("StatefulSet", "spec/replicas", 0),
        ("StatefulSet", "spec/volumeClaimTemplates", REMOVED),
        ("VolumeAttachment", "spec/source", {"inlineVolumeSpec": {}}),
    ],
)
def test_this_is_accepted(kind: str, path: str, value: Any) -> None:
    assert verdict(kind, (path, value)) == []


# --- rules of more than one field -----------------------------------------------------------------------


def test_a_local_volume_requires_node_affinity() -> None:
    local = ("spec/local", {"path": "/mnt/a"})
    assert verdict("PersistentVolume", ("spec/csi", REMOVED), local) == []
    problem = only_problem("PersistentVolume", ("spec/csi", REMOVED), local, ("spec/nodeAffinity", REMOVED))
    assert "Local volume requires node affinity" in problem
    problem = only_problem("PersistentVolume", ("spec/csi", REMOVED), local, ("spec/nodeAffinity", {}))
    assert "Local volume requires node affinity" in problem


@pytest.mark.parametrize(("path", "legal"), [("/", False), ("//./", False), ("/..", False), ("/data", True)])
def test_the_root_of_a_host_is_not_recycled(path: str, legal: bool) -> None:
    host = ("spec/hostPath", {"path": path})
    policy = ("spec/persistentVolumeReclaimPolicy", "Recycle")
    found = verdict("PersistentVolume", ("spec/csi", REMOVED), host, policy)
    assert (found == []) is legal
    assert legal or "may not be Recycle for the hostPath /" in found[0]


@pytest.mark.parametrize("source", ["configMap", "emptyDir", "secret", "projected"])
def test_a_volume_cannot_have_a_source_that_dies_with_its_pod(source: str) -> None:
    problem = only_problem("PersistentVolume", ("spec/csi", REMOVED), (f"spec/{source}", {}))
    assert problem.startswith(f"spec.{source}: is a source that only a pod's volume can have")


def test_an_attributes_class_needs_a_csi_volume() -> None:
    nfs = ("spec/nfs", {"server": "s", "path": "/"})
    problem = only_problem(
        "PersistentVolume", ("spec/csi", REMOVED), nfs, ("spec/volumeAttributesClassName", "gold")
    )
    assert 'spec.volumeAttributesClassName: "gold" needs a csi volume source' in problem


def test_min_domains_need_do_not_schedule() -> None:
    path = "spec/topologySpreadConstraints/0"
    problem = only_problem("Pod", (f"{path}/minDomains", 2), (f"{path}/whenUnsatisfiable", "ScheduleAnyway"))
    assert "minDomains: needs whenUnsatisfiable DoNotSchedule" in problem


def test_two_spread_constraints_over_one_topology_and_policy_are_refused() -> None:
    same = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    assert "spec.topologySpreadConstraints[1]: " in only_problem("Pod", ("spec/topologySpreadConstraints/1", same))
    other = {**same, "whenUnsatisfiable": "ScheduleAnyway"}
    assert verdict("Pod", ("spec/topologySpreadConstraints/1", other)) == []


def test_claim_templates_of_a_stateful_set_have_names_of_their_own() -> None:
    twin = sample("StatefulSet")["spec"]["volumeClaimTemplates"][0]
    problem = only_problem("StatefulSet", ("spec/volumeClaimTemplates/1", twin))
    assert 'spec.volumeClaimTemplates[1].metadata.name: "data" is the name of entry 0 as well' in problem


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("PersistentVolume", "spec/nodeAffinity/required/nodeSelectorTerms/0"),
        ("Pod", f"{REQUIRED}/nodeSelectorTerms/0"),
    ],
)
@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (requirement("NotIn", ["a"]), None),
        (requirement("Exists", []), None),
        (requirement("Gt", ["x"]), None),
        (requirement("Lt", ["5"]), None),
        (requirement("In", []), "In needs at least one value"),
        (requirement("Exists", ["a"]), "Exists takes no values"),
        (requirement("Gt", ["1", "2"]), "Gt needs exactly one value"),
        (requirement("Gt", ["-3"]), 'value "-3" must be empty or'),
        (requirement("in", ["a"]), '"in" is not one of the operators'),
        (requirement("In", ["a b"]), 'value "a b" must be empty or'),
        (requirement("In", ["a"], key="a b"), 'key "a b" must be a name'),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, None),
        ({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n1"]}]}, "use metadata.name"),
        ({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}, "operators of matchFields"),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}, "exactly one value"),
    ],
)
def test_node_selectors_are_judged_as_the_api_does(kind: str, path: str, term: Any, expected: str | None) -> None:
    found = verdict(kind, (path, term))
    assert found == [] if expected is None else (len(found) == 1 and expected in found[0])


@pytest.mark.parametrize("when", ["whenDeleted", "whenScaled"])
@pytest.mark.parametrize(
    ("policy", "said"), [("Delete", "claims of a set are kept"), ("Keep", "not one of Retain")]
)
def test_claims_of_a_set_are_only_retained(when: str, policy: str, said: str) -> None:
    path = "spec/persistentVolumeClaimRetentionPolicy"
    problem = only_problem("StatefulSet", (path, {when: policy}))
    assert f'spec.persistentVolumeClaimRetentionPolicy.{when}: "{policy}" is ' in problem
    assert said in problem
    assert verdict("StatefulSet", (path, {when: "Retain"})) == []
