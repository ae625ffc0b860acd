"""An external provisioner, written against the Kubernetes API alone, provisions by topology."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes import watch

from tests.support.clusters import claim, node, pod
from tests.support.patience import HANG_SECONDS
from tests.support.serving import Served
from volsched.lab.manifests import storage_class

DRIVER = "disk.csi.example.com"
ZONE = "topology.kubernetes.io/zone"
Manifest = dict[str, Any]


def zonal_class() -> Manifest:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    return storage_class("zonal", DRIVER, allowedTopologies=topologies)


def csi_node(name: str) -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": [ZONE]}]},
    }


@contextmanager
def provisioner(url: str) -> Iterator[None]:
    script = Path(__file__).parent / "provisioner_process.py"
    process = subprocess.Popen([sys.executable, str(script), url, DRIVER], stderr=subprocess.PIPE)
    try:
        yield
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
    finally:
        process.terminate()
        process.wait(HANG_SECONDS)
        if process.stderr:
            process.stderr.close()


def test_an_external_provisioner_works_by_the_api_alone(up: Served) -> None:
    nodes = [node("n-a", **{ZONE: "a"}), node("n-b", **{ZONE: "b"})]
    up.create(*nodes, csi_node("n-a"), csi_node("n-b"), zonal_class())
    up.create(claim("one", "1Gi", "zonal"), claim("two", "2Gi", "zonal"), pod("p", "one", "two"))
    with provisioner(up.url):
        for event in watch.Watch().stream(up.core.list_namespaced_pod, "default", timeout_seconds=HANG_SECONDS):
            if event["object"].status.phase == "Running":
                break
        else:
            pytest.fail("the pod was not bound")
    assert up.core.read_namespaced_pod("p", "default").spec.node_name == "n-b"
    made = up.core.list_persistent_volume().items
    zones = {it.spec.node_affinity.required.node_selector_terms[0].match_expressions[0].values[0] for it in made}
    assert (len(made), zones) == (2, {"b"})
    assert {it.status.phase for it in made} == {"Bound"}
