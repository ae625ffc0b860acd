"""The whole system beside a provisioner of somebody else: the selected node, answers that are late, or missing."""

from dataclasses import replace
from typing import Any

import pytest

from tests.runtime.external_provisioner import annotations, ended_well, provision, volumes
from tests.support.clusters import (
    MADE,
    Stepped,
    claim,
    node,
    pod,
)
from volsched.binding.rules.effects import ANNOTATE
from volsched.cluster.port import whole
from volsched.kube.meta import ALPHA_SELECTED_NODES, ROLLBACK, SELECTED_NODE, SELECTED_NODE_KEYS
from volsched.log.database import Database
from volsched.log.integrity.verify import verify
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.rules.profile import VOLSCHED


def test_a_volume_is_provisioned_where_the_pod_will_run(database: Database) -> None:
    stepped = Stepped(database, [MADE, node("node-0"), claim("data", "5Gi", "made"), pod("db", "data")])
    stepped.until(lambda: SELECTED_NODE in annotations(stepped, "data"))
    stepped.settle()
    assert stepped.node_of("db") is None
    assert annotations(stepped, "data")["volume.kubernetes.io/storage-provisioner"] == "disks.example.com"
    provision(stepped, "data", "node-0")
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    (binding,) = stepped.bindings()
    assert stepped.legs(binding.id)[0].volume == stepped.volume_of("data")
    ended_well(stepped)


@pytest.mark.parametrize("key", ALPHA_SELECTED_NODES)
def test_a_node_that_was_selected_under_an_alpha_name_is_where_the_volume_is_made(
    database: Database, key: str
) -> None:
    """By a scheduler of old, or one that keeps to the first design. Taken back, all names of it go."""
    wanted = claim("data", "5Gi", "made")
    wanted["metadata"]["annotations"] = {key: "node-1"}
    stepped = Stepped(database, [MADE, node("node-0"), node("node-1"), wanted])
    stepped.settle()
    # The controller orders the volume without waiting for a pod, as with the stable name.
    assert annotations(stepped, "data")["volume.kubernetes.io/storage-provisioner"] == "disks.example.com"
    stepped.create(pod("db", "data"))
    stepped.until(lambda: annotations(stepped, "data").get(SELECTED_NODE) == "node-1")
    provision(stepped, "data", "node-1")
    stepped.until(lambda: stepped.node_of("db") == "node-1")
    ended_well(stepped)


def test_on_request_the_selected_node_is_written_under_its_alpha_names_too(database: Database) -> None:
    writes = Configuration(replace(VOLSCHED, writes_alpha_annotations=True))
    stepped = Stepped(
        database, [MADE, node("node-0"), claim("data", "5Gi", "made"), pod("db", "data")], configuration=writes
    )
    stepped.until(lambda: SELECTED_NODE in annotations(stepped, "data"))
    assert {annotations(stepped, "data")[key] for key in SELECTED_NODE_KEYS} == {"node-0"}
    provision(stepped, "data", "node-0")
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    ended_well(stepped)


def test_a_provisioner_that_takes_the_stable_name_off_gives_the_node_back(database: Database) -> None:
    """Those of today know no other name, and leave the alpha ones that we have written beside it."""
    writes = Configuration(replace(VOLSCHED, writes_alpha_annotations=True))
    stepped = Stepped(
        database,
        [MADE, node("node-0"), node("node-1"), claim("data", "5Gi", "made"), pod("db", "data")],
        configuration=writes,
    )
    stepped.until(lambda: SELECTED_NODE in annotations(stepped, "data"))
    refusing, other = ("node-0", "node-1")
    if annotations(stepped, "data")[SELECTED_NODE] != refusing:
        refusing, other = other, refusing
    held = dict(stepped.cluster.get("Node", refusing) or {})
    stepped.cluster.update("Node", {**held, "spec": {"unschedulable": True}})
    held = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    marks = {key: value for key, value in annotations(stepped, "data").items() if key != SELECTED_NODE}
    stepped.cluster.update(
        "PersistentVolumeClaim", {**held, "metadata": {**held["metadata"], "annotations": marks}}
    )
    stepped.until(lambda: annotations(stepped, "data").get(SELECTED_NODE) == other, steps=1_000)
    assert {annotations(stepped, "data")[key] for key in SELECTED_NODE_KEYS} == {other}


def test_a_selection_that_is_taken_back_goes_under_all_its_names(database: Database) -> None:
    """The deadline passes before a provisioner was asked for anything."""
    writes = Configuration(replace(VOLSCHED, writes_alpha_annotations=True))
    stepped = Stepped(database, [MADE, node("node-0"), claim("data", "5Gi", "made")], configuration=writes)
    stepped.create(pod("db", "data"))
    stepped.plan_and_write()
    stepped.system.executor.step(ANNOTATE, stepped.now)
    assert set(SELECTED_NODE_KEYS) <= annotations(stepped, "data").keys()
    stepped.cluster.delete("Pod", "default/db")
    stepped.until(lambda: not set(SELECTED_NODE_KEYS) & annotations(stepped, "data").keys())
    assert verify(stepped.database).ok


def bound_out_of_reach(database: Database, **parts: Any) -> Stepped:
    """An external provisioner made the volume on the other node, and the claim is bound to it."""
    picky = pod("db", "data")
    picky["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-0"}
    stepped = Stepped(
        database, [MADE, node("node-0"), node("node-1"), claim("data", "5Gi", "made"), picky], **parts
    )
    stepped.until(lambda: SELECTED_NODE in annotations(stepped, "data"))
    provision(stepped, "data", "node-1")
    stepped.settle()
    return stepped


def phase_of_volume(stepped: Stepped) -> str:
    (made,) = whole(stepped.cluster.list("PersistentVolume")).objects
    return str(made["status"]["phase"])


def test_a_bound_volume_of_a_foreign_provisioner_is_kept_although_its_pod_cannot_reach_it(
    database: Database,
) -> None:
    stepped = bound_out_of_reach(database)
    assert (phase_of_volume(stepped), stepped.volume_of("data")) == ("Bound", volumes(stepped)[0])
    assert stepped.node_of("db") is None
    assert "RollbackRequested" not in {it["reason"] for it in whole(stepped.cluster.list("Event")).objects}
    # A person may ask for it all the same; the provisioner then finds the volume released, and deletes it.
    held = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    held["metadata"] = {**held["metadata"], "annotations": {**annotations(stepped, "data"), ROLLBACK: "yes"}}
    stepped.cluster.update("PersistentVolumeClaim", held)
    stepped.until(lambda: phase_of_volume(stepped) == "Released")
    assert stepped.volume_of("data") is None
    assert verify(stepped.database).ok


def test_a_bound_volume_of_a_foreign_provisioner_is_released_where_the_configuration_says_so(
    database: Database,
) -> None:
    asks = replace(VOLSCHED, releases_foreign_volumes=True)
    stepped = bound_out_of_reach(database, configuration=Configuration(asks))
    stepped.until(lambda: phase_of_volume(stepped) == "Released", steps=1_000)
    assert stepped.volume_of("data") is None
    assert "RollbackRequested" in {it["reason"] for it in whole(stepped.cluster.list("Event")).objects}


def test_a_provisioner_that_answers_after_the_timeout_still_serves_the_pod(database: Database) -> None:
    stepped = Stepped(database, [MADE, node("node-0"), claim("data", "5Gi", "made")])
    stepped.create(pod("db", "data", annotations={"volsched.io/bind-timeout-seconds": "5"}))
    stepped.until(lambda: any(row.state == "rolled-back" for row in stepped.bindings()))
    first = stepped.bindings()[0]
    assert first.reason == "binding volumes: context deadline exceeded"
    assert stepped.legs(first.id)[0].state == "retained"
    assert stepped.legs(first.id)[0].reason.startswith("undecided")
    assert annotations(stepped, "data")[SELECTED_NODE] == "node-0"
    provision(stepped, "data", "node-0")
    stepped.until(lambda: stepped.node_of("db") == "node-0")
    ended_well(stepped)


def test_a_failed_provisioning_frees_the_pod_for_another_node(database: Database) -> None:
    stepped = Stepped(database, [MADE, node("node-0"), claim("data", "5Gi", "made"), pod("db", "data")])
    stepped.until(lambda: SELECTED_NODE in annotations(stepped, "data"))
    found = dict(stepped.cluster.get("PersistentVolumeClaim", "default/data") or {})
    marks = {key: it for key, it in found["metadata"]["annotations"].items() if key != SELECTED_NODE}
    stepped.cluster.update(
        "PersistentVolumeClaim", {**found, "metadata": {**found["metadata"], "annotations": marks}}
    )
    stepped.until(lambda: len(stepped.bindings()) == 2)
    first, second = stepped.bindings()
    assert first.state == "rolled-back"
    assert 'provisioning failed for PVC "data"' in first.reason
    assert second.open
