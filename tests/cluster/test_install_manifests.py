"""What is applied to have an observer in a cluster: read-only, equal to deploy/, valid for real servers."""

import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from volsched.cluster.admission_policies import OWNED
from volsched.cluster.install_manifests import Installation, helm_files, kustomize_files, manifests
from volsched.cluster.permissions import ADVISE, GATE_MODE, MODES, OBSERVE, OWN, READS, role_rules
from volsched.cluster.projection import OBSERVED_KINDS
from volsched.kube.meta import GATE

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVED = Installation(tls_secret="volsched-tls", monitored=True)
RELEASES = [f"1.{minor}.0" for minor in range(29, 38)]


def test_the_role_has_no_verb_that_writes_and_no_secret() -> None:
    rules = role_rules(MODES[OBSERVE])
    assert {verb for rule in rules for verb in rule["verbs"]} == set(READS)
    granted = {(rule["apiGroups"][0], resource) for rule in rules for resource in rule["resources"]}
    assert len(granted) == len(OBSERVED_KINDS)
    assert not {resource for _, resource in granted} & {"secrets", "configmaps"}


@pytest.mark.parametrize(
    ("place", "files"),
    [
        (DEPLOY / "kubernetes", kustomize_files(Installation())),
        (DEPLOY / "helm" / "volsched", helm_files(Installation(), version=version("volsched"))),
    ],
    ids=["kustomize", "helm"],
)
def test_what_is_in_deploy_is_what_the_command_writes(place: Path, files: dict[str, list[dict[str, Any]]]) -> None:
    assert {it.relative_to(place).as_posix() for it in place.rglob("*.yaml")} == set(files)
    for name, documents in files.items():
        assert list(yaml.safe_load_all((place / name).read_text())) == documents, name


def rendered(chart: dict[str, list[dict[str, Any]]], namespace: str) -> list[dict[str, Any]]:
    """Plain substitution is all of Helm's language that the chart may use; a real Helm would read any `{{`."""
    (values,) = chart["values.yaml"]
    known = {"Release.Namespace": namespace, **{f"Values.{name}": value for name, value in values.items()}}
    used: set[str] = set()

    def value_of(found: re.Match[str]) -> str:
        used.add(found[1])
        return str(known[found[1]])

    (text,) = [yaml.safe_dump_all(it) for name, it in chart.items() if name.startswith("templates/")]
    text = re.sub(r"\{\{ \.([A-Za-z.]+) \}\}", value_of, text)
    assert "{{" not in text
    assert used == known.keys()
    return list(yaml.safe_load_all(text))


RENDERED = [
    Installation(image="registry.example/volsched:1"),
    Installation(tls_secret="volsched-tls", monitored=True),
    Installation(mode=ADVISE, tls_secret="volsched-tls"),
    Installation(mode=ADVISE, tls_secret="volsched-tls", database_secret="db"),
    Installation(mode=GATE_MODE, namespace="storage"),
    Installation(mode=GATE_MODE, tls_secret="volsched-tls", database_secret="db", prioritized=True),
    Installation(mode=OWN),
    Installation(
        mode=OWN,
        namespace="storage",
        tls_secret="volsched-tls",
        database_secret="db",
        owned_classes=("fast", "local.example.com"),
        binding_schedulers=("with-volsched",),
        prioritized=True,
    ),
]


@pytest.mark.parametrize("wanted", RENDERED, ids=lambda it: f"{it.mode}-{it.database_secret}-{it.tls_secret}")
def test_a_chart_with_its_values_is_what_is_applied_without_one_and_a_release_takes_it(
    wanted: Installation,
) -> None:
    found = rendered(dict(helm_files(wanted, version="1.0.0")), wanted.namespace)
    # A release is installed into a namespace that is there.
    assert found == [it for it in manifests(wanted) if it["kind"] != "Namespace"]
    for manifest in found:
        if manifest["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(manifest, RELEASES[-1], strict=True)


def test_a_chart_says_whether_a_real_helm_has_rendered_it() -> None:
    (chart,) = helm_files(Installation(), version="1.0.0")["Chart.yaml"]
    assert chart["annotations"]["volsched.io/rendered-by-helm"].startswith("never")
    assert chart.keys() == {"apiVersion", "name", "version", "description", "type", "annotations"}


def test_a_service_is_there_only_with_a_certificate() -> None:
    kinds = [it["kind"] for it in manifests(Installation())]
    assert kinds == [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "NetworkPolicy",
    ]
    assert [it["kind"] for it in manifests(SERVED)] == [*kinds, "Service", "ServiceMonitor"]


def test_a_field_that_no_release_knows_is_refused() -> None:
    """Else the next test could not fail."""
    (account,) = (it for it in manifests(Installation()) if it["kind"] == "ServiceAccount")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**account, "automountServiceAcountToken": True}, RELEASES[0], strict=True)


def test_a_mode_that_acts_has_its_role_and_keeps_its_store() -> None:
    alone = manifests(Installation(mode=OWN))
    (role,) = (it for it in alone if it["kind"] == "ClusterRole")
    assert role["rules"] == role_rules(MODES[OWN])
    verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
    assert not verbs & {"delete", "deletecollection", "update", "escalate", "*"}
    (lock,) = (it for it in alone if it["kind"] == "Role")
    assert lock["metadata"]["namespace"] == "kube-system"
    assert lock["rules"] == role_rules(MODES[OWN], namespace="kube-system")
    assert [(it["verbs"], it.get("resourceNames")) for it in lock["rules"]] == [
        (["create"], None),
        (["get", "update"], ["volsched-volsched"]),
    ]
    assert "PersistentVolumeClaim" in [it["kind"] for it in alone]
    together = {it["kind"]: it for it in manifests(Installation(mode=OWN, database_secret="db"))}
    assert together["Deployment"]["spec"]["replicas"] == 2
    assert together["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert "PersistentVolumeClaim" not in together


def test_an_adviser_reads_only_and_is_reached_by_kube_scheduler() -> None:
    objects = {it["kind"]: it for it in manifests(Installation(mode=ADVISE, tls_secret="volsched-tls"))}
    assert {verb for rule in objects["ClusterRole"]["rules"] for verb in rule["verbs"]} == set(READS)
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:4] == ["volsched", "attach", "--mode", "advise"]
    assert objects["Service"]["metadata"]["name"] == "volsched-adviser"
    assert objects["NetworkPolicy"]["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8700}]}]
    assert not {"Role", "MutatingAdmissionPolicy"} & objects.keys()


def test_gate_mode_sets_its_gate_by_a_policy_and_never_places_a_pod() -> None:
    objects = {it["kind"]: it for it in manifests(Installation(mode=GATE_MODE))}
    policy = objects["MutatingAdmissionPolicy"]["spec"]
    assert policy["failurePolicy"] == "Ignore"
    assert policy["matchConstraints"]["namespaceSelector"] == {"matchLabels": {"volsched.io/gate": "enabled"}}
    assert GATE in policy["mutations"][0]["jsonPatch"]["expression"]
    granted = {it for rule in objects["ClusterRole"]["rules"] for it in rule["resources"]}
    assert "pods/binding" not in granted


@pytest.mark.parametrize("release", RELEASES[-2:])
def test_releases_that_have_the_policy_take_it(release: str) -> None:
    for manifest in manifests(Installation(mode=GATE_MODE)):
        kubernetes_validate.validate(manifest, release, strict=True)


ACTING = Installation(mode=OWN, database_secret="db", owned_classes=("fast",), prioritized=True)


@pytest.mark.parametrize(
    ("others", "names"),
    [
        ((), "['volsched']"),
        (("with-volsched",), "['volsched', 'with-volsched']"),
    ],
)
def test_an_owned_class_is_for_pods_whose_volumes_we_bind(others: tuple[str, ...], names: str) -> None:
    """Ours, and those of a kube-scheduler with deploy/kube-scheduler/bind.yaml: its extender is we."""
    policies = {
        it["metadata"]["name"]: it["spec"]["validations"][0]
        for it in manifests(replace(ACTING, binding_schedulers=others))
        if it["kind"] == "ValidatingAdmissionPolicy"
    }
    pods = policies["volsched-scheduler-owned-pods"]
    assert pods["expression"] == f"object.spec.schedulerName in {names}"
    assert pods["message"].endswith(" or ".join(("schedulerName: volsched", *others)))


def test_the_documented_second_scheduler_is_the_one_that_is_let_in() -> None:
    (profile,) = yaml.safe_load((DEPLOY / "kube-scheduler" / "bind.yaml").read_text())["profiles"]
    documents = (DEPLOY.parent / "docs" / "extender.md").read_text()
    assert f"--owned-class fast --binding-scheduler {profile['schedulerName']}" in documents


def test_no_match_condition_asks_for_the_namespace() -> None:
    """A real server gives match conditions no namespaceObject, and `Ignore` then passes over the whole policy."""
    policies = [
        it
        for it in (*manifests(ACTING), *manifests(Installation(mode=GATE_MODE)))
        if it["kind"] in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
    ]
    assert len(policies) == 3
    for policy in policies:
        assert "namespaceObject" not in str(policy["spec"]["matchConditions"])
    (pods,) = (it["spec"] for it in policies if it["metadata"]["name"].endswith("-owned-pods"))
    assert pods["matchConstraints"]["namespaceSelector"] == {"matchLabels": {OWNED: "enabled"}}


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_takes_the_manifests(release: str) -> None:
    advising = Installation(mode=ADVISE, tls_secret="volsched-tls")
    for manifest in (
        *manifests(SERVED),
        *manifests(ACTING),
        *manifests(Installation(mode=OWN)),
        *manifests(advising),
    ):
        if manifest["kind"].startswith("ValidatingAdmissionPolicy") and release == "1.29.0":
            # There it is beta: whoever wants owned classes needs 1.30.
            continue
        if manifest["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(manifest, release, strict=True)
