"""kubectl as people use it, against the whole system. Skipped, visibly, where it is not installed."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.clusters import LOCAL, claim, node, pod, volume
from tests.support.kubectl import KUBECTL, kubectl_at, needs_kubectl
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served
from tests.support.stateful_sets import stateful_set

pytestmark = needs_kubectl
Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(up: Served, tmp_path: Path) -> Kubectl:
    return partial(kubectl_at, up.url, tmp_path)


def cluster() -> str:
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
        node("n1"),
        LOCAL,
        volume("v1", "1Gi", "n1"),
        volume("v2", "2Gi", "n1"),
        claim("a", "1Gi"),
        claim("b", "2Gi"),
        pod("p", "a", "b"),
        claim("huge", "9Ti"),
        pod("q", "huge"),
    ]
    return "\n---\n".join(json.dumps(it) for it in objects)


def test_a_session(up: Served, kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(cluster())
    file = str(tmp_path / "cluster.yaml")
    assert kubectl("apply", "-f", file).count("created") == 10
    kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Running", f"--timeout={HANG_SECONDS}s")
    assert (
        kubectl("wait", "pod/p", "--for=condition=Ready", f"--timeout={HANG_SECONDS}s") == "pod/p condition met\n"
    )
    assert set(kubectl("apply", "-f", file).split()[1::2]) == {"unchanged"}

    # What kubectl prints is a List, which it checks itself, by /openapi/v2.
    printed = kubectl("get", "sc,nodes,pv,pvc,pods", "-o", "yaml")
    assert set(kubectl("apply", "-f", "-", stdin=printed).split()[1::2]) <= {"unchanged", "configured"}
    slip = printed.replace("storageClassName:", "storageClas:")
    assert 'unknown field "storageClas"' in kubectl("apply", "-f", "-", stdin=slip, fails=True)

    (header, first, second) = kubectl("get", "pv", "-o", "wide").splitlines()
    assert header.split()[:2] == ["NAME", "CAPACITY"]
    assert header.split()[-4:] == ["BINDING", "ASSUMED", "CLAIM", "NODE"]
    assert [first.split()[4], first.split()[5]] == ["Bound", "default/a"]
    assert "default/b" in second
    assert kubectl("get", "pvc", "a", "-o", "jsonpath={.spec.volumeName}") == "v1"

    assert "Used By:       p" in kubectl("describe", "pvc", "a")
    assert re.search(r"Node: +n1/", kubectl("describe", "pod", "p"))
    assert re.search(r"default +p ", kubectl("describe", "node", "n1"))
    with up.http.stream("GET", "/api/v1/events?watch=true&fieldSelector=involvedObject.name%3Dq") as answer:
        assert "FailedScheduling" in next(answer.iter_lines())
    assert "didn't find available persistent volumes to bind" in kubectl("describe", "pod", "q")
    assert "FailedScheduling" in kubectl("events", "--for", "pod/q")

    kubectl("annotate", "pv", "v1", "note=kept")
    kubectl("label", "pv", "v1", "tier=ssd")
    kubectl("label", "pv", "v1", "tier=hdd", "--overwrite")
    assert kubectl("get", "pv", "-l", "tier=hdd", "-o", "name") == "persistentvolume/v1\n"
    kubectl("label", "pv", "v1", "tier-")
    assert kubectl("get", "pv", "-l", "tier", "-o", "name") == ""
    kubectl("patch", "pv", "v1", "--type=json", "-p", '[{"op":"remove","path":"/metadata/annotations/note"}]')
    assert "note" not in kubectl("get", "pv", "v1", "-o", "yaml")
    kubectl("cordon", "n1")
    assert "SchedulingDisabled" in kubectl("get", "nodes")

    assert kubectl("delete", "pod", "p") == 'pod "p" deleted\n'
    assert kubectl("delete", "pvc", "a", "b").count("deleted") == 2
    assert 'pods "p" not found' in kubectl("get", "pod", "p", fails=True)


def test_refusals_are_readable(kubectl: Kubectl) -> None:
    wrong = {**claim("c", "1Gi"), "spec": {"accessModes": ["ReadWriteOnce"], "colour": "blue"}}
    assert 'unknown field "spec.colour"' in kubectl("create", "-f", "-", stdin=json.dumps(wrong), fails=True)
    del wrong["spec"]["colour"]
    told = kubectl("create", "-f", "-", stdin=json.dumps(wrong), fails=True)
    assert 'The PersistentVolumeClaim "c" is invalid' in told
    assert "spec.resources" in told
    assert kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(node("n"))).endswith(
        "(server dry run)\n"
    )
    assert kubectl("get", "nodes") == ""


def test_kubectl_follows_along(up: Served, kubectl: Kubectl, tmp_path: Path) -> None:
    up.create(node("n0"))
    following = subprocess.Popen(
        [str(KUBECTL), "-s", up.url, "get", "nodes", "-w", "-o", "name"],
        stdout=subprocess.PIPE,
        text=True,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == "node/n0\n"
        up.create(node("n1"))
        assert following.stdout.readline() == "node/n1\n"
    finally:
        following.terminate()
        following.communicate(timeout=HANG_SECONDS)
    told = kubectl("explain", "pvc.spec")
    assert "The class. Empty: a volume without class." in told.replace("\n", " ").replace("     ", "")
    assert "A request for storage." in kubectl("explain", "pvc")
    assert "is running at" in kubectl("cluster-info")
    assert "/apis/storage.k8s.io/v1" in json.loads(kubectl("get", "--raw", "/"))["paths"]


def test_commands_that_send_protobuf(up: Served, kubectl: Kubectl) -> None:
    up.create(node("n1"), pod("p"))
    assert kubectl("create", "namespace", "shop") == "namespace/shop created\n"
    assert "already exists" in kubectl("create", "namespace", "shop", fails=True)
    kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Running", f"--timeout={HANG_SECONDS}s")
    assert "drained" in kubectl("drain", "n1", "--force")
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"


def test_what_people_try(up: Served, kubectl: Kubectl, tmp_path: Path) -> None:
    up.create(node("n1"), node("n2"))
    assert kubectl("run", "web", "--image=web") == "pod/web created\n"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/hostname: n1/hostname: other/' \"$1\"\n")
    editor.chmod(0o755)
    assert kubectl("edit", "node", "n1", editor=str(editor)) == "node/n1 edited\n"
    assert (
        kubectl("get", "node", "n1", "-o", "jsonpath={.metadata.labels}") == '{"kubernetes.io/hostname":"other"}'
    )
    assert "nodeAffinity" in kubectl("explain", "pv", "--recursive")
    assert "nodeName" in kubectl("explain", "pods", "--recursive")
    assert kubectl("get", "nodes", "--field-selector", "metadata.name=n2", "-o", "name") == "node/n2\n"
    assert "Metrics API not available" in kubectl("top", "nodes", fails=True)
    assert "runs no containers" in kubectl("logs", "web", fails=True)
    kubectl("taint", "nodes", "n2", "dedicated=x:NoSchedule")
    assert kubectl("delete", "pods", "--all").count("deleted") == 1


def test_what_is_applied_server_side_has_owners(up: Served, kubectl: Kubectl) -> None:
    up.create(volume("v1", "1Gi", "n1"))

    def applied(manager: str, *more: str, fails: bool = False, **labels: str) -> str:
        named = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v1", "labels": labels}}
        given = ("apply", "--server-side", f"--field-manager={manager}", *more, "-f", "-")
        return kubectl(*given, stdin=json.dumps(named), fails=fails)

    shown = ("get", "pv", "v1", "-o", "jsonpath={.metadata.labels}")
    assert kubectl("get", "pv", "v1", "-o", "yaml", "--show-managed-fields").count("managedFields") == 0
    assert applied("one", tier="hdd", zone="a") == "persistentvolume/v1 serverside-applied\n"
    assert applied("two", tier="hdd", rack="7") == "persistentvolume/v1 serverside-applied\n"
    told = applied("two", tier="ssd", rack="7", fails=True)
    assert 'Apply failed with 1 conflict: conflict with "one": .metadata.labels.tier' in told
    applied("two", "--force-conflicts", tier="ssd", rack="7")
    applied("one", zone="b")
    assert json.loads(kubectl(*shown)) == {"rack": "7", "tier": "ssd", "zone": "b"}
    applied("two")
    assert json.loads(kubectl(*shown)) == {"zone": "b"}
    kubectl("label", "pv", "v1", "zone=c", "--overwrite")
    assert 'conflict with "kubectl-label" using v1: .metadata.labels.zone' in applied("one", zone="d", fails=True)
    managers = kubectl("get", "pv", "v1", "-o", "jsonpath={.metadata.managedFields[*].manager}").split()
    assert {"before-first-apply", "kubectl-label"} <= set(managers)


def test_a_node_is_drained_as_its_budgets_allow(up: Served, kubectl: Kubectl) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "db"}}},
    }
    up.create(node("n1"), stateful_set(replicas=3, templates=0))
    kubectl("create", "-f", "-", stdin=json.dumps(budget))
    waited = f"--timeout={HANG_SECONDS}s"
    kubectl("rollout", "status", "sts/db", waited)
    kubectl("wait", "pdb/db", "--for=jsonpath={.status.disruptionsAllowed}=1", waited)
    # A pod that was taken away finds no other node, so the budget is used up after the first.
    told = kubectl("drain", "n1", "--timeout=6s", fails=True)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in told
    assert "SchedulingDisabled" in kubectl("get", "nodes")
    up.create(node("n2"))
    assert "drained" in kubectl("drain", "n1", waited)
    kubectl("rollout", "status", "sts/db", waited)
    assert kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}") == "n2 n2 n2"
    assert kubectl("uncordon", "n1") == "node/n1 uncordoned\n"
    assert "SchedulingDisabled" not in kubectl("get", "nodes")


def test_a_set_is_scaled_and_rolled_out_and_back(up: Served, kubectl: Kubectl) -> None:
    up.create(node("n1"), stateful_set(replicas=2, templates=0))
    waited = f"--timeout={HANG_SECONDS}s"
    kubectl("rollout", "status", "sts/db", waited)
    assert "Expected replicas to be 7, was 2" in kubectl(
        "scale", "sts/db", "--replicas=3", "--current-replicas=7", fails=True
    )
    assert kubectl("scale", "sts/db", "--replicas=3", "--current-replicas=2") == "statefulset.apps/db scaled\n"
    kubectl("rollout", "status", "sts/db", waited)
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/db-0", "pod/db-1", "pod/db-2"]
    kubectl("set", "image", "sts/db", "main=app:2")
    assert "3 new pods have been updated" in kubectl("rollout", "status", "sts/db", waited)
    shown = ("-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert kubectl("get", "pods", *shown) == "app:2 app:2 app:2"
    assert [line.split()[0] for line in kubectl("rollout", "history", "sts/db").splitlines()[2:4]] == ["1", "2"]
    assert kubectl("rollout", "undo", "sts/db") == "statefulset.apps/db rolled back\n"
    kubectl("rollout", "status", "sts/db", waited)
    assert kubectl("get", "pods", *shown) == "app app app"
    assert kubectl("get", "controllerrevisions", "-o", "jsonpath={.items[*].revision}").split() in (
        ["2", "3"],
        ["3", "2"],
    )
    before = kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}").split()
    assert kubectl("rollout", "restart", "sts/db") == "statefulset.apps/db restarted\n"
    kubectl("rollout", "status", "sts/db", waited)
    assert not set(before) & set(kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}").split())
