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
    ("spec/capacity", REMOVED, "spec.capacity: Required value"),
    ("spec/capacity/storage", "0", 'spec.capacity[storage]: Invalid value: "0": must be greater than zero'),
    ("spec/capacity/storage", "-5Gi", "spec.capacity[storage]: Invalid value: -5368709120: must be a valid"),
    ("spec/capacity/iops", "5", 'spec.capacity: Unsupported value: {"iops":"5","storage":"10Gi"}:'),
    ("spec/accessModes", [], "spec.accessModes: Required value"),
    ("spec/accessModes", ["RWO"], 'spec.accessModes: Unsupported value: "RWO": supported values:'),
    (
        "spec/accessModes",
        ["ReadWriteOncePod", "ReadOnlyMany"],
        "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other",
    ),
    (
        "spec/persistentVolumeReclaimPolicy",
        "Keep",
        'spec.persistentVolumeReclaimPolicy: Unsupported value: "Keep":',
    ),
    ("spec/storageClassName", "Fast", 'spec.storageClassName: Invalid value: "Fast": a lowercase RFC 1123'),
    ("spec/volumeMode", "Tape", 'spec.volumeMode: Unsupported value: "Tape": supported values:'),
    ("spec/volumeMode", "", 'spec.volumeMode: Unsupported value: "": supported values: "Block",'),
    ("spec/csi", REMOVED, "spec: Required value: must specify a volume type"),
    ("spec/nfs", {"server": "s", "path": "/"}, "spec.csi: Forbidden: may not specify more than 1 volume type"),
    ("spec/csi/driver", REMOVED, "spec.csi.driver: Required value"),
    ("spec/csi/driver", "a_b", 'spec.csi.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain'),
    ("spec/csi/driver", "x" * 64, "spec.csi.driver: Too long: may not be more than 63 bytes"),
    ("spec/nodeAffinity", {}, "spec.nodeAffinity.required: Required value: must specify required"),
    ("spec/nodeAffinity/required", {}, "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must"),
    ("spec/volumeAttributesClassName", "", "spec.volumeAttributesClassName: Required value: an empty string is"),
]
CLAIM = [
    ("spec", REMOVED, "spec.accessModes: Required value: at least 1 access mode is required"),
    ("spec/accessModes", REMOVED, "spec.accessModes: Required value: at least 1 access mode is required"),
    (
        "spec/accessModes/1",
        "ReadWriteOncePod",
        "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other",
    ),
    ("spec/resources", REMOVED, "spec.resources[storage]: Required value"),
    (
        "spec/resources/requests/storage",
        0,
        'spec.resources[storage]: Invalid value: "0": must be greater than zero',
    ),
    (
        "spec/selector/matchLabels",
        {"a": "-"},
        'spec.selector.matchLabels: Invalid value: "-": a valid label must be',
    ),
    (
        "spec/selector/matchExpressions",
        [{"key": "a", "operator": "Gt"}],
        'spec.selector.matchExpressions[0].operator: Invalid value: "Gt": not',
    ),
    (
        "spec/selector/matchExpressions",
        [{"key": "a", "operator": "In"}],
        "spec.selector.matchExpressions[0].values: Required value: must be",
    ),
    ("spec/volumeMode", "block", 'spec.volumeMode: Unsupported value: "block": supported values:'),
    ("spec/storageClassName", "-", 'spec.storageClassName: Invalid value: "-": a lowercase RFC 1123'),
]
CLASS = [
    ("provisioner", REMOVED, "provisioner: Required value"),
    ("provisioner", "a b", 'provisioner: Invalid value: "a b": name part must consist of'),
    ("reclaimPolicy", "Recycle", 'reclaimPolicy: Unsupported value: "Recycle": supported values:'),
    ("volumeBindingMode", "Later", 'volumeBindingMode: Unsupported value: "Later": supported values:'),
    ("bindingMode", "Later", 'volumeBindingMode: Unsupported value: "Later": supported values:'),
    ("parameters", {"": "x"}, 'parameters: Invalid value: "": field can not be empty.'),
    ("parameters", {f"k{n}": "" for n in range(513)}, "parameters: Too long: may not be more than 512 bytes"),
    ("parameters", {"k": "x" * 256 * 1024}, "parameters: Too long: may not be more than 262144 bytes"),
    ("allowedTopologies", [{}], 'allowedTopologies[0].matchLabelExpressions: Duplicate value: ""'),
    (
        "allowedTopologies/0/matchLabelExpressions/0/values",
        [],
        "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
    ),
    (
        "allowedTopologies/0/matchLabelExpressions/0/values",
        ["a", "b", "a"],
        "allowedTopologies[0].matchLabelExpressions[0].values[2]: Duplicate",
    ),
    (
        "allowedTopologies/0/matchLabelExpressions/1",
        {"key": "zone", "values": ["c"]},
        "allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value:",
    ),
    (
        "allowedTopologies/1",
        {"matchLabelExpressions": [{"key": "zone", "values": ["b", "a"]}]},
        'allowedTopologies[1].matchLabelExpressions: Duplicate value: ""',
    ),
    (
        "allowedTopologies/0/matchLabelExpressions/0/key",
        "-",
        "allowedTopologies[0].matchLabelExpressions[0].key: Invalid value:",
    ),
]
CSI_NODE = [
    ("spec/drivers/0/name", REMOVED, "spec.drivers[0].name: Required value"),
    (
        "spec/drivers/1",
        {"name": "disk.example.com"},
        'spec.drivers[1].name: Duplicate value: "disk.example.com"',
    ),
    ("spec/drivers/0/topologyKeys", ["zone", "zone"], 'spec.drivers[0]: Duplicate value: "zone"'),
    ("spec/drivers/0/topologyKeys", ["a b"], 'spec.drivers[0]: Invalid value: "a b": name part must consist of'),
    (
        "spec/drivers/0/allocatable/count",
        -1,
        "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater",
    ),
]
CAPACITY = [
    ("storageClassName", REMOVED, 'storageClassName: Invalid value: "": a lowercase RFC 1123 subdomain'),
    ("nodeTopology/matchLabels", {"a b": "x"}, 'nodeTopology.matchLabels: Invalid value: "a b": name part must'),
    ("capacity", "-1", 'capacity: Invalid value: "-1": must be greater than or equal to 0'),
]
ATTACHMENT = [
    ("spec/attacher", REMOVED, "spec.attacher: Required value"),
    ("spec/nodeName", REMOVED, 'spec.nodeName: Invalid value: "": a lowercase RFC 1123 subdomain must'),
    ("spec/source", {}, "spec.source: Required value: must specify exactly one of"),
    ("spec/source/inlineVolumeSpec", {}, "spec.source: Forbidden: must specify exactly one of inlineVolumeSpec"),
]
NODE = [
    ("spec/taints/0/effect", "Never", 'metadata.taints[0].effect: Unsupported value: "Never": supported'),
    ("spec/taints/0/effect", REMOVED, "metadata.taints[0].effect: Required value"),
    ("spec/taints/0/key", "", 'metadata.taints[0].key: Invalid value: "": name part must be non-empty'),
    ("spec/taints/0/value", "a b", 'metadata.taints[0].value: Invalid value: "a b": a valid label must be'),
    ("status/allocatable", {"cpu": "-1"}, 'status.allocatable.cpu: Invalid value: "-1": must be greater than or'),
]
POD = [
    ("spec/nodeName", "N 1", 'spec.nodeName: Invalid value: "N 1": a lowercase RFC 1123 subdomain'),
    ("spec/nodeSelector", {"a": "-"}, 'spec.nodeSelector: Invalid value: "-": a valid label must be an empty'),
    (REQUIRED, {}, "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecut"),
    (
        PREFERRED,
        [{"weight": 0, "preference": TERM}],
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecu",
    ),
    (
        PREFERRED,
        [{"weight": 1, "preference": requirement("in", ["x"])}],
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecu",
    ),
    (f"{ANTI}/weight", 101, "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringEx"),
    (
        f"{ANTI}/podAffinityTerm/topologyKey",
        REMOVED,
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringEx",
    ),
    (
        f"{ANTI}/podAffinityTerm/labelSelector",
        {"matchLabels": {"a": "-"}},
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringEx",
    ),
    (
        "spec/affinity/podAffinity",
        {IN_FORCE: [{"topologyKey": "a b"}]},
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecuti",
    ),
    (
        f"{ANTI}/podAffinityTerm/namespaceSelector",
        {"matchLabels": {"a": "-"}},
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringEx",
    ),
    (
        f"{ANTI}/podAffinityTerm/namespaces",
        ["a.b"],
        "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringEx",
    ),
    ("spec/tolerations/0/operator", "Like", 'spec.tolerations[0].operator: Unsupported value: "Like": supported'),
    ("spec/tolerations/0/value", "x", 'spec.tolerations[0].operator: Invalid value: "x": value must be empty'),
    (
        "spec/tolerations/0",
        {"operator": "Equal"},
        'spec.tolerations[0].operator: Invalid value: "Equal": operator must',
    ),
    (
        "spec/tolerations/0",
        {"key": "a", "value": "-"},
        'spec.tolerations[0].operator: Invalid value: "-": a valid label must',
    ),
    ("spec/tolerations/0/key", "a b", 'spec.tolerations[0].key: Invalid value: "a b": name part must consist'),
    ("spec/tolerations/0/effect", "Never", 'spec.tolerations[0].effect: Unsupported value: "Never": supported'),
    ("spec/tolerations/0/tolerationSeconds", 5, 'spec.tolerations[0].effect: Invalid value: "": effect must be'),
    (
        "spec/topologySpreadConstraints/0/maxSkew",
        0,
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be",
    ),
    (
        "spec/topologySpreadConstraints/0/topologyKey",
        REMOVED,
        "spec.topologySpreadConstraints[0].topologyKey: Required value: can",
    ),
    (
        "spec/topologySpreadConstraints/0/whenUnsatisfiable",
        "No",
        "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported",
    ),
    (
        "spec/topologySpreadConstraints/0/minDomains",
        0,
        "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must",
    ),
    (
        "spec/topologySpreadConstraints/0/labelSelector",
        {"matchLabels": {"a": "-"}},
        "spec.topologySpreadConstraints[0].labelSelector.matchLabels: Invalid",
    ),
    (
        "spec/topologySpreadConstraints/0/nodeTaintsPolicy",
        "No",
        "spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported",
    ),
    ("spec/containers/0/name", "A", 'spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123'),
    ("spec/containers/1", {"name": "main"}, 'spec.containers[1].name: Duplicate value: "main"'),
    ("spec/initContainers", [{"name": "main"}], 'spec.initContainers[0].name: Duplicate value: "main"'),
    (
        "spec/containers/0/resources/requests/cpu",
        "3",
        'spec.containers[0].resources.requests: Invalid value: "3": must be',
    ),
    (
        "spec/containers/0/resources/requests/memory",
        "-1",
        'spec.containers[0].resources.requests[memory]: Invalid value: "-1":',
    ),
    (
        "spec/containers/0/resources/limits/memory",
        "-1",
        'spec.containers[0].resources.limits[memory]: Invalid value: "-1":',
    ),
    ("spec/overhead", {"cpu": "-1"}, 'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than'),
    ("spec/volumes/0/name", REMOVED, "spec.volumes[0].name: Required value"),
    ("spec/volumes/0/name", "a.b", 'spec.volumes[0].name: Invalid value: "a.b": must not contain dots'),
    ("spec/volumes/1/name", "data", 'spec.volumes[1].name: Duplicate value: "data"'),
    (
        "spec/volumes/0/emptyDir",
        {},
        "spec.volumes[0].persistentVolumeClaim: Forbidden: may not specify",
    ),
    (
        "spec/volumes/0/persistentVolumeClaim/claimName",
        REMOVED,
        "spec.volumes[0].persistentVolumeClaim.claimName: Required value",
    ),
    ("spec/volumes/1/ephemeral", {}, "spec.volumes[1].ephemeral.volumeClaimTemplate: Required value"),
    (f"{TEMPLATE}/metadata", {"name": "x"}, "spec.volumes[1].ephemeral.volumeClaimTemplate.metadata.name:"),
    (
        f"{TEMPLATE}/metadata",
        {"labels": {"a": "-"}},
        "spec.volumes[1].ephemeral.volumeClaimTemplate.metadata.labels:",
    ),
    (f"{TEMPLATE}/spec/accessModes", [], "spec.volumes[1].ephemeral.volumeClaimTemplate.spec.accessModes:"),
    (
        f"{TEMPLATE}/spec/resources/requests/storage",
        "0",
        "spec.volumes[1].ephemeral.volumeClaimTemplate.spec.resources[storage]:",
    ),
]
STATEFUL_SET = [
    ("spec/replicas", -1, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    ("spec/ordinals", {"start": -1}, "spec.ordinals.start: Invalid value: -1: must be greater than or equal"),
    ("spec/podManagementPolicy", "Any", 'spec.podManagementPolicy: Invalid value: "Any": must be'),
    ("spec/selector", REMOVED, "spec.selector: Required value"),
    ("spec/selector/matchLabels/app", "-", 'spec.selector.matchLabels: Invalid value: "-": a valid label must be'),
    (
        "spec/selector",
        {"matchLabels": {"app": "web"}},
        'spec.template.metadata.labels: Invalid value: {"app":"db"}:',
    ),
    ("spec/template", REMOVED, "spec.template.metadata.labels: Invalid value: null: `selector` does"),
    (
        "spec/template/spec/volumes",
        [{"name": "a.b"}],
        'spec.template.spec.volumes[1].name: Invalid value: "a.b": must not',
    ),
    (
        "spec/template/metadata/annotations",
        {"a b": ""},
        'spec.template.annotations: Invalid value: "a b": name part must',
    ),
    (
        "spec/volumeClaimTemplates/0/metadata",
        REMOVED,
        "spec.template.spec.volumes[0].persistentVolumeClaim.claimName:",
    ),
    (
        "spec/volumeClaimTemplates/0/spec/accessModes",
        ["RWO"],
        "spec.volumeClaimTemplates[0].spec.accessModes: Unsupported value:",
    ),
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
        ("PersistentVolume", "spec/claimRef/namespace", "a.b"),
        ("StorageClass", "allowedTopologies/0/matchLabelExpressions/0/values", ["-"]),
        ("Pod", "spec/volumes/0", {"name": "bare"}),
        ("Pod", "spec/volumes/0", {"name": "inline", "csi": {"driver": "x"}}),
        ("Pod", "spec/containers/1", {"name": "other", "image": "app"}),
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
    assert problem == "spec.nodeAffinity.required: Required value: must specify required node constraints"


@pytest.mark.parametrize(("path", "legal"), [("/", False), ("//./", False), ("/..", False), ("/data", True)])
def test_the_root_of_a_host_is_not_recycled(path: str, legal: bool) -> None:
    host = ("spec/hostPath", {"path": path})
    policy = ("spec/persistentVolumeReclaimPolicy", "Recycle")
    found = verdict("PersistentVolume", ("spec/csi", REMOVED), host, policy)
    assert (found == []) is legal
    assert legal or "may not be 'recycle' for a hostPath mount of '/'" in found[-1]


@pytest.mark.parametrize("source", ["configMap", "emptyDir", "secret", "projected"])
def test_a_volume_cannot_have_a_source_that_dies_with_its_pod(source: str) -> None:
    problem = only_problem("PersistentVolume", ("spec/csi", REMOVED), (f"spec/{source}", {}))
    assert problem == "spec: Required value: must specify a volume type"


def test_an_attributes_class_needs_a_csi_volume() -> None:
    nfs = ("spec/nfs", {"server": "s", "path": "/"})
    problem = only_problem(
        "PersistentVolume", ("spec/csi", REMOVED), nfs, ("spec/volumeAttributesClassName", "gold")
    )
    assert problem == "spec.csi: Required value: has to be specified when using volumeAttributesClassName"


def test_min_domains_need_do_not_schedule() -> None:
    path = "spec/topologySpreadConstraints/0"
    problem = only_problem("Pod", (f"{path}/minDomains", 2), (f"{path}/whenUnsatisfiable", "ScheduleAnyway"))
    assert "can only use minDomains if whenUnsatisfiable=DoNotSchedule" in problem


def test_two_spread_constraints_over_one_topology_and_policy_are_refused() -> None:
    same = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    problem = only_problem("Pod", ("spec/topologySpreadConstraints/1", same))
    assert problem.startswith(
        "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value"
    )
    other = {**same, "whenUnsatisfiable": "ScheduleAnyway"}
    assert verdict("Pod", ("spec/topologySpreadConstraints/1", other)) == []


def test_claim_templates_of_a_stateful_set_have_names_of_their_own() -> None:
    twin = sample("StatefulSet")["spec"]["volumeClaimTemplates"][0]
    problem = only_problem("StatefulSet", ("spec/volumeClaimTemplates/1", twin))
    assert problem == 'spec.volumeClaimTemplates[1].metadata.name: Duplicate value: "data"'


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
        (requirement("In", []), "must be specified when `operator` is 'In'"),
        (requirement("Exists", ["a"]), "may not be specified when `operator` is 'Exists'"),
        (requirement("Gt", ["1", "2"]), "must be specified single value"),
        (requirement("Gt", ["-3"]), '"-3": a valid label must be'),
        (requirement("in", ["a"]), '"in": not a valid selector operator'),
        (requirement("In", ["a b"]), '"a b": a valid label must be'),
        (requirement("In", ["a"], key="a b"), 'key: Invalid value: "a b": name part must consist'),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, None),
        (
            {"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n1"]}]},
            '"metadata.uid": not a valid field selector key',
        ),
        ({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}, "not a valid selector operator"),
        (
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]},
            "must be only one value",
        ),
    ],
)
def test_node_selectors_are_judged_as_the_api_does(kind: str, path: str, term: Any, expected: str | None) -> None:
    found = verdict(kind, (path, term))
    assert found == [] if expected is None else (len(found) == 1 and expected in found[0])


@pytest.mark.parametrize("when", ["whenDeleted", "whenScaled"])
@pytest.mark.parametrize(
    ("policy", "said"), [("Delete", "claims of a set are kept"), ("Keep", 'supported values: "Retain"')]
)
def test_claims_of_a_set_are_only_retained(when: str, policy: str, said: str) -> None:
    path = "spec/persistentVolumeClaimRetentionPolicy"
    problem = only_problem("StatefulSet", (path, {when: policy}))
    assert problem.startswith(f"spec.persistentVolumeClaimRetentionPolicy.{when}: ")
    assert f'value: "{policy}": ' in problem
    assert said in problem
    assert verdict("StatefulSet", (path, {when: "Retain"})) == []
