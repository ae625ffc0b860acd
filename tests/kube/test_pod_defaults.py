"""A pod has the fields that a real API server fills, so that clients which compare or print them see the same."""

from typing import Any

import pytest

from tests.support.recorded_server import recordings
from volsched.kube.defaults import with_defaults
from volsched.kube.kinds import KINDS
from volsched.kube.pod_defaults import pull_policy, qos_class, with_kept_pull_policies


def defaulted(**spec: Any) -> dict[str, Any]:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    return dict(with_defaults(KINDS["Pod"], pod)["spec"])


def container(**fields: Any) -> dict[str, Any]:
    return dict(defaulted(containers=[{"name": "main", "image": "app:1", **fields}])["containers"][0])


def test_a_real_server_fills_the_same() -> None:
    """The pod of recording 57d has the manifest of 51g, but for its class; admission adds a priority."""
    given = recordings()["51g"]["request"]["body"]["spec"]
    recorded = recordings()["57d"]["response"]["body"]
    mine = defaulted(containers=given["containers"])
    of_admission = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    assert {**mine, **of_admission} == recorded["spec"]
    assert qos_class(mine) == recorded["status"]["qosClass"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("registry.example:5000/team/app", "Always"),
        ("localhost/app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("registry.example:5000/team/app:1.2-rc_1", "IfNotPresent"),
        (f"app@sha256:{'0' * 64}", "IfNotPresent"),
        (f"app:latest@sha256:{'0' * 64}", "Always"),
        ("Not A Name", "IfNotPresent"),
        ("", "IfNotPresent"),
        (None, "IfNotPresent"),
    ],
)
def test_only_the_newest_image_is_always_looked_for(image: Any, policy: str) -> None:
    assert pull_policy(image) == policy
    assert defaulted(containers=[{"name": "main", "image": image}])["containers"][0]["imagePullPolicy"] == policy


def test_probes_ports_and_variables_are_completed() -> None:
    filled = container(
        ports=[{"containerPort": 80}],
        env=[
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "A", "value": "b"},
        ],
        readinessProbe={"httpGet": {"port": 80}, "periodSeconds": 3},
        lifecycle={"preStop": {"httpGet": {"port": 80, "path": "/stop"}}},
    )
    assert filled["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert filled["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "spec.nodeName"}
    assert filled["env"][1] == {"name": "A", "value": "b"}
    assert filled["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "periodSeconds": 3, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
    }  # fmt: skip
    assert filled["lifecycle"]["preStop"]["httpGet"] == {"port": 80, "path": "/stop", "scheme": "HTTP"}


def test_a_port_of_a_pod_in_the_nodes_network_is_the_nodes_port() -> None:
    spec = defaulted(hostNetwork=True, containers=[{"name": "main", "ports": [{"containerPort": 80}]}])
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, {"emptyDir": {}}),
        ({"configMap": {"name": "c"}}, {"configMap": {"name": "c", "defaultMode": 420}}),
        ({"secret": {"secretName": "s", "defaultMode": 256}}, {"secret": {"secretName": "s", "defaultMode": 256}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({"cephfs": {"monitors": []}}, {"cephfs": {"monitors": []}}),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}},
        ),
    ],
)
def test_volumes_are_completed(given: dict[str, Any], filled: dict[str, Any]) -> None:
    assert defaulted(volumes=[{"name": "v", **given}])["volumes"] == [{"name": "v", **filled}]


FULL = {"limits": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("resources", "class_"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"example.com/gpu": "1"}}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([{"requests": {"cpu": "100m"}}], "Burstable"),
        ([FULL, {}], "Burstable"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{**FULL, "requests": {"cpu": "500m"}}], "Burstable"),
        ([FULL], "Guaranteed"),
        ([{**FULL, "requests": {"cpu": "1000m", "memory": "1024Mi"}}, FULL], "Guaranteed"),
    ],
)
def test_requests_and_limits_say_how_safe_a_pod_is(resources: list[Any], class_: str) -> None:
    named = [{"name": f"c{number}", "resources": it} for number, it in enumerate(resources)]
    assert qos_class(defaulted(containers=named)) == class_
    assert qos_class(defaulted(containers=named[:1], initContainers=named[1:])) == class_


def test_the_resources_of_the_whole_pod_count_instead_of_its_containers() -> None:
    resources = {**FULL, "requests": FULL["limits"]}
    assert qos_class({"resources": resources, "containers": [{"name": "main"}]}) == "Guaranteed"


def test_a_policy_that_was_a_default_stays_when_the_image_changes() -> None:
    old, new = defaulted(containers=[{"name": "a", "image": "app"}]), [{"name": "a", "image": "app:2"}]
    kept = with_kept_pull_policies(old, defaulted(containers=new))["containers"][0]
    assert (kept["image"], kept["imagePullPolicy"]) == ("app:2", "Always")
    said = [{"name": "a", "image": "app:2", "imagePullPolicy": "Never"}]
    changed = with_kept_pull_policies(old, defaulted(containers=said))["containers"][0]
    assert changed["imagePullPolicy"] == "Never"
