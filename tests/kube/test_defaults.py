"""What is filled in where a manifest is silent, and that nothing else is."""

import copy
from typing import Any

import pytest

from tests.support.manifest_samples import REMOVED, changed, problems, sample
from volsched.kube.defaults import with_defaults
from volsched.kube.kinds import KINDS


def defaulted(manifest: dict[str, Any]) -> dict[str, Any]:
    return with_defaults(KINDS[manifest["kind"]], manifest)


def bare(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "one"}, **fields}


CLAIM_SOURCE = {"kind": "PersistentVolumeClaim", "name": "other"}
THING = {"apiGroup": "x.io", "kind": "Thing", "name": "t"}


def tolerated(condition: str) -> dict[str, Any]:
    key = f"node.kubernetes.io/{condition}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


@pytest.mark.parametrize(
    ("kind", "added"),
    [
        ("StorageClass", {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ("PersistentVolume", {"spec": {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"}}),
        ("PersistentVolumeClaim", {"spec": {"volumeMode": "Filesystem"}}),
        (
            "Pod",
            {
                "spec": {
                    "schedulerName": "default-scheduler",
                    "restartPolicy": "Always",
                    "dnsPolicy": "ClusterFirst",
                    "enableServiceLinks": True,
                    "securityContext": {},
                    "terminationGracePeriodSeconds": 30,
                    "tolerations": [tolerated("not-ready"), tolerated("unreachable")],
                }
            },
        ),
        (
            "StatefulSet",
            {
                "spec": {
                    "replicas": 1,
                    "podManagementPolicy": "OrderedReady",
                    "revisionHistoryLimit": 10,
                    "updateStrategy": {
                        "type": "RollingUpdate",
                        "rollingUpdate": {"partition": 0, "maxUnavailable": 1},
                    },
                    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                }
            },
        ),
        ("CSIDriver", {"spec": {"storageCapacity": False}}),
        ("CSINode", {}),
        ("CSIStorageCapacity", {}),
        ("VolumeAttachment", {}),
        ("Node", {}),
        ("Event", {}),
        ("PriorityClass", {"preemptionPolicy": "PreemptLowerPriority"}),
    ],
)
def test_each_kind_gets_these_defaults_and_no_others(kind: str, added: dict[str, Any]) -> None:
    namespace = {"namespace": "default"} if KINDS[kind].namespaced else {}
    assert defaulted(bare(kind)) == bare(kind, **added) | {"metadata": {"name": "one", **namespace}}


def test_a_namespace_is_labelled_with_its_name() -> None:
    labels = {"kubernetes.io/metadata.name": "one"}
    assert defaulted(bare("Namespace")) == bare("Namespace") | {"metadata": {"name": "one", "labels": labels}}


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("PersistentVolumeClaim", "metadata/namespace", "shop"),
        ("StorageClass", "reclaimPolicy", "Retain"),
        ("StorageClass", "volumeBindingMode", "WaitForFirstConsumer"),
        ("PersistentVolume", "spec/volumeMode", "Block"),
        ("PersistentVolume", "spec/persistentVolumeReclaimPolicy", "Delete"),
        ("Pod", "spec/schedulerName", "volsched"),
        ("StatefulSet", "spec/replicas", 0),
        ("StatefulSet", "spec/podManagementPolicy", "Parallel"),
        ("CSIDriver", "spec/storageCapacity", True),
        ("PersistentVolumeClaim", "spec/volumeMode", ""),
    ],
)
def test_what_is_said_is_kept(kind: str, path: str, value: Any) -> None:
    manifest = changed(sample(kind), path, value)
    assert defaulted(manifest) == changed(defaulted(manifest), path, value)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Pod", "metadata/namespace", "default"),
        ("Pod", "spec/schedulerName", "default-scheduler"),
        ("PersistentVolume", "spec/persistentVolumeReclaimPolicy", "Retain"),
        ("StatefulSet", "spec/podManagementPolicy", "OrderedReady"),
    ],
)
def test_an_empty_string_is_silence_where_the_api_has_no_pointer(kind: str, path: str, value: str) -> None:
    manifest = changed(sample(kind), path, "")
    assert defaulted(manifest) == defaulted(changed(manifest, path, value))


@pytest.mark.parametrize("kind", KINDS)
def test_defaulting_twice_changes_nothing_and_the_input_never_changes(kind: str) -> None:
    manifest = sample(kind)
    before = copy.deepcopy(manifest)
    once = defaulted(manifest)
    assert manifest == before
    assert defaulted(once) == once


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, {"cpu": "2", "memory": "1Gi"}),
        ({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, {"cpu": "1"}),
        ({"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}, {"memory": "1Gi", "cpu": "2"}),
        ({"requests": {"memory": "1Gi"}}, {"memory": "1Gi"}),
    ],
)
@pytest.mark.parametrize("group", ["containers", "initContainers"])
def test_missing_requests_come_from_limits(group: str, resources: Any, requests: Any) -> None:
    pod = bare("Pod", spec={group: [{"name": "a", "resources": resources}, {"name": "b"}]})
    first, second = defaulted(pod)["spec"][group]
    assert first["resources"]["requests"] == requests
    assert second["resources"] == {}


def test_templates_and_status_are_not_touched() -> None:
    stateful_set = changed(sample("StatefulSet"), "status/replicas", 0)
    result = defaulted(stateful_set)
    assert result["spec"]["template"] == stateful_set["spec"]["template"]
    assert result["spec"]["volumeClaimTemplates"] == stateful_set["spec"]["volumeClaimTemplates"]
    assert result["status"] == stateful_set["status"]


def test_binding_mode_alias_is_renamed_when_the_field_is_absent() -> None:
    result = defaulted(bare("StorageClass", bindingMode="WaitForFirstConsumer"))
    assert result["volumeBindingMode"] == "WaitForFirstConsumer"
    assert "bindingMode" not in result


def test_binding_mode_alias_is_dropped_when_both_agree() -> None:
    result = defaulted(bare("StorageClass", bindingMode="Immediate", volumeBindingMode="Immediate"))
    assert result["volumeBindingMode"] == "Immediate"
    assert "bindingMode" not in result


def test_binding_mode_alias_that_differs_is_a_problem() -> None:
    both = {"bindingMode": "Immediate", "volumeBindingMode": "WaitForFirstConsumer"}
    (problem,) = problems({**sample("StorageClass"), **both})
    assert problem.startswith('bindingMode: Invalid value: "Immediate": is another name of volumeBindingMode')
    assert "WaitForFirstConsumer" in problem


@pytest.mark.parametrize(
    "spec", ["text", 5, [], REMOVED, {"containers": 5}, {"containers": [5, {"resources": "x"}]}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_shapes_pass_through_untouched(kind: str, spec: Any) -> None:
    manifest = changed(changed(sample(kind), "spec", {}), "spec", spec)
    result = defaulted(manifest)
    if not isinstance(manifest.get("spec", {}), dict):
        assert result["spec"] == spec
    assert defaulted(changed(manifest, "metadata", "text"))["metadata"] == "text"


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}, ["unreachable"]),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, ["unreachable"]),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, ["not-ready", "unreachable"]),
        ({"operator": "Exists"}, []),
    ],
)
def test_what_a_pod_says_of_lost_nodes_itself_is_not_said_again(own: dict[str, Any], added: list[str]) -> None:
    spec = defaulted(bare("Pod", spec={"tolerations": [own]}))["spec"]
    assert spec["tolerations"] == [own, *map(tolerated, added)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"dataSource": CLAIM_SOURCE}, {"dataSource": CLAIM_SOURCE, "dataSourceRef": CLAIM_SOURCE}),
        ({"dataSourceRef": THING}, {"dataSource": THING, "dataSourceRef": THING}),
        ({"dataSource": THING}, {}),
        ({"dataSourceRef": {**THING, "namespace": "b"}}, {"dataSourceRef": {**THING, "namespace": "b"}}),
    ],
    ids=["older", "newer", "never possible", "elsewhere"],
)
def test_a_data_source_has_two_names(given: dict[str, Any], expected: dict[str, Any]) -> None:
    spec = defaulted(bare("PersistentVolumeClaim", spec=given))["spec"]
    assert spec == {"volumeMode": "Filesystem", **expected}
