"""Having volumes made, and the note of migration (9.2)."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.pv_controller.controller_world import (
    DISK,
    KEY,
    RULES,
    Object,
    World,
    immediate,
    node,
    pv,
    pvc,
    sc,
    selected,
    world,
)
from tests.pv_controller.rows import row
from volsched.kube.meta import (
    BETA_STORAGE_PROVISIONER,
    BOUND_BY_CONTROLLER,
    MIGRATED_TO,
    PROVISIONED_BY,
    PV_CONTROLLER_FINALIZER,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from volsched.lab.conformance.controller import ObedientPlugin
from volsched.pv_controller.rules import CLAIM, VOLUME, Pause, Provision, Request, UnfinishedError, Update

NORMAL, WARNING = "Normal", "Warning"
MADE = "pvc-uid-data"
EXTERNAL = "csi.example.com"
FAILED = [(WARNING, "ProvisioningFailed")]


def asking(*objects: Object, notes: dict[str, str] | None = None, by: str = DISK.name, **kw: Any) -> World:
    """A claim of an immediate class of that provisioner, and no volume."""
    fields = kw.pop("fields", {})
    claim = kw.pop("claim", {})
    return world(pvc(notes=notes, **claim), immediate(provisioner=by, **fields), *objects, **kw)


# --- who provisions -------------------------------------------------------------------------------------


@row("9.9 disabled")
def test_switched_off_nothing_is_provisioned_or_told() -> None:
    after = asking(rules=replace(RULES, provisioning=False)).sync_claim()
    assert (after.started, after.notices, after.writes) == ([], [], [])


@row("9.9 class missing")
def test_a_missing_class_is_reported_every_time_and_is_no_error() -> None:
    after = world(pvc(cls="gone")).sync_claim().sync_claim()
    assert after.notices == FAILED * 2
    assert after.messages[0] == 'storageclass.storage.k8s.io "gone" not found'
    assert (after.errors, after.started) == ([], [])


@row("9.9 unknown in-tree")
@pytest.mark.parametrize("by", ["kubernetes.io/no-provisioner", "kubernetes.io/unknown"])
def test_an_unknown_in_tree_name_is_reported_and_nothing_is_started(by: str) -> None:
    after = asking(by=by).sync_claim()
    assert after.notices == FAILED
    assert after.messages == [f"no volume plugin matched name: {by}"]
    assert (after.errors, after.started) == ([], [])


@row("9.9 unknown in-tree")
def test_a_plugin_of_ours_that_cannot_provision_is_reported() -> None:
    rules = replace(RULES, plugins={DISK.name: replace(DISK, provisions=False)})
    assert asking(rules=rules).sync_claim().notices == FAILED


@row("9.9 external")
def test_an_external_provisioner_is_ordered_by_annotation_and_awaited() -> None:
    after = asking(by=EXTERNAL, claim={"dataSource": {"name": "snap"}}).sync_claim().sync_claim()
    assert after.claim().meta.annotations == {STORAGE_PROVISIONER: EXTERNAL, BETA_STORAGE_PROVISIONER: EXTERNAL}
    assert after.notices == [(NORMAL, "ExternalProvisioning")] * 2
    assert after.writes == [(CLAIM, False)]
    assert after.started == ["provision-db/data[uid-data]"] * 2


@row("9.9 external")
@pytest.mark.parametrize(
    ("notes", "beta"),
    [({STORAGE_PROVISIONER: EXTERNAL}, None), ({BETA_STORAGE_PROVISIONER: EXTERNAL}, EXTERNAL)],
)
def test_only_the_stable_key_says_that_the_order_is_placed(notes: dict[str, str], beta: str | None) -> None:
    after = asking(by=EXTERNAL, notes=notes).sync_claim()
    assert after.claim().meta.annotations.get(BETA_STORAGE_PROVISIONER) == beta
    assert after.claim().meta.annotations[STORAGE_PROVISIONER] == EXTERNAL


@row("9.9 external not saved")
def test_an_order_that_cannot_be_saved_is_reported() -> None:
    after = asking(by=EXTERNAL).fail("update", "persistentvolumeclaims").sync_claim()
    assert after.notices == FAILED
    assert after.messages == ["Error saving claim: down"]
    assert len(after.errors) == 1


@row("9.9 migrated")
def test_a_migrated_class_is_ordered_from_its_driver_and_the_claim_is_not_marked() -> None:
    after = asking(by="kubernetes.io/aws-ebs", notes={MIGRATED_TO: "stale"}).sync_claim()
    assert after.claim().meta.annotations == {
        STORAGE_PROVISIONER: "ebs.csi.aws.com",
        BETA_STORAGE_PROVISIONER: "ebs.csi.aws.com",
    }
    assert after.notices == [(NORMAL, "ExternalProvisioning")]


# --- our own plugins ------------------------------------------------------------------------------------


@row("9.9 success", "9.7 link by plugin")
def test_a_volume_is_made_for_the_claim_and_then_bound_like_any_other() -> None:
    after = asking().sync_claim()
    made = after.volume(MADE)
    assert (made.claim_ref.uid, made.class_name, made.reclaim_policy) == ("uid-data", "wait", "Delete")
    assert made.meta.annotations == {BOUND_BY_CONTROLLER: "yes", PROVISIONED_BY: DISK.name}
    assert made.meta.finalizers == (PV_CONTROLLER_FINALIZER,)
    assert made.phase == "Pending"
    assert after.notices == [(NORMAL, "ProvisioningSucceeded")]
    assert after.messages == [f"Successfully provisioned volume {MADE} using {DISK.name}"]
    after.sync_claim()
    assert (after.claim().volume_name, after.claim().phase) == (MADE, "Bound")
    assert after.claim().meta.annotations[BOUND_BY_CONTROLLER] == "yes"
    assert after.volume(MADE).meta.annotations[BOUND_BY_CONTROLLER] == "yes"


@row("9.9 success")
def test_only_volumes_to_be_deleted_are_guarded() -> None:
    assert asking(fields={"policy": "Retain"}).sync_claim().volume(MADE).meta.finalizers == ()


@row("9.9 success")
def test_the_plugin_gets_the_node_and_the_class() -> None:
    after = world(pvc(notes=selected()), sc(provisioner=DISK.name, allowedTopologies=[]), node()).sync_claim()
    (asked,) = [request for request in after.requests if isinstance(request, Provision)]
    assert asked.node is not None
    assert (asked.plugin, asked.volume_name, asked.node["metadata"]["name"]) == (DISK.name, MADE, "n1")
    assert asked.storage_class["allowedTopologies"] == []
    assert asked.claim["metadata"]["annotations"][STORAGE_PROVISIONER] == DISK.name


@row("9.9 data source")
def test_a_data_source_is_refused_before_the_order_is_placed() -> None:
    after = asking(claim={"dataSource": {"name": "snap"}}).sync_claim()
    assert after.notices == FAILED
    assert "Only CSI plugin can provision a claim with a datasource" in after.messages[0]
    assert (after.writes, after.calls, len(after.errors)) == ([], [], 1)


@row("9.9 internal not saved")
def test_an_order_to_our_own_plugin_that_cannot_be_saved_is_an_error_without_event() -> None:
    after = asking().fail("update", "persistentvolumeclaims").sync_claim()
    assert (after.notices, after.calls, len(after.errors)) == ([], [], 1)


@row("9.9 volume exists")
def test_a_volume_of_that_name_ends_it_in_silence() -> None:
    after = asking(pv(MADE, cls="other")).sync_claim()
    assert (after.notices, after.calls, after.errors) == ([], [], [])
    assert STORAGE_PROVISIONER in after.claim().meta.annotations


@row("9.9 volume exists")
def test_whether_it_exists_is_asked_of_the_store() -> None:
    given = asking(pv(MADE, cls="other"))
    given.unseen.add((VOLUME, MADE))
    assert given.sync_claim().calls == []
    assert asking().fail("get", "persistentvolumes").sync_claim().calls == []


@row("9.9 mount options")
def test_mount_options_are_refused_after_the_order_is_placed() -> None:
    after = asking(fields={"mountOptions": ["ro", "sync"]}).sync_claim()
    assert after.notices == FAILED
    assert after.messages[0].endswith('StorageClass "wait" has mount options [ro sync]')
    assert after.claim().meta.annotations[STORAGE_PROVISIONER] == DISK.name
    assert (after.calls, len(after.errors)) == ([], 1)
    able = replace(RULES, plugins={DISK.name: replace(DISK, mount_options=True)})
    assert asking(fields={"mountOptions": ["ro"]}, rules=able).sync_claim().has(VOLUME, MADE)


@row("9.9 node missing")
@pytest.mark.parametrize("on", ["gone", ""])
def test_a_missing_node_is_reported_and_stays_selected(on: str) -> None:
    after = world(pvc(notes=selected(on)), sc(provisioner=DISK.name)).sync_claim()
    assert after.notices == FAILED
    assert after.messages[0].startswith("Failed to get target node: ")
    assert after.claim().meta.annotations[SELECTED_NODE] == on
    assert (after.calls, len(after.errors)) == ([], 1)


@row("9.9 provisioning fails")
def test_a_refusal_of_the_plugin_gives_the_choice_of_a_node_back() -> None:
    after = world(pvc(notes=selected()), sc(provisioner=DISK.name), node(), provision=["no room", ""]).sync_claim()
    assert SELECTED_NODE not in after.claim().meta.annotations
    assert after.claim().meta.annotations[STORAGE_PROVISIONER] == DISK.name
    assert after.messages == ['Failed to provision volume with StorageClass "wait": no room']
    assert (after.has(VOLUME, MADE), len(after.errors)) == (False, 1)
    assert after.sync_claim().notices[-1] == (NORMAL, "WaitForFirstConsumer")


@row("9.9 provisioning fails")
def test_a_refusal_is_reported_even_where_the_node_cannot_be_given_back() -> None:
    given = world(pvc(notes=selected()), sc(provisioner=DISK.name), node(), provision=["no room"])
    after = given.fail("update", "persistentvolumeclaims", skip=1).sync_claim()
    assert after.notices == FAILED
    assert SELECTED_NODE in after.claim().meta.annotations


@row("9.9 provisioning fails")
def test_an_immediate_claim_that_is_refused_is_not_written() -> None:
    after = asking(provision=["no room"]).sync_claim()
    assert after.writes == [(CLAIM, False)]
    assert after.notices == FAILED


@row("9.9 provisioning fails")
def test_the_node_is_kept_while_provisioning_may_still_run() -> None:
    def hanging(_: World, request: Request) -> None:
        if isinstance(request, Provision):
            raise UnfinishedError("no answer within 60 s")

    given = world(pvc(notes=selected()), sc(provisioner=DISK.name), node())
    given.before_answer = hanging
    assert given.sync_claim().notices == FAILED
    assert given.claim().meta.annotations[SELECTED_NODE] == "n1"


@row("9.9 already exists")
def test_a_volume_that_was_stored_after_all_counts_as_saved() -> None:
    """The first try is stored, but its answer never arrives."""
    given = asking()

    def lost(after: World, request: Request) -> None:
        if isinstance(request, Pause):
            after.server.load(*pv(MADE, cls="other"))

    given.before_answer = lost
    after = given.fail("create", "persistentvolumes").sync_claim()
    assert after.notices == [(NORMAL, "ProvisioningSucceeded")]
    assert [call for call, _, _ in after.calls] == ["provision"]


@row("9.9 success")
def test_saving_is_tried_five_times_ten_seconds_apart() -> None:
    given = asking()
    for _ in range(4):
        given.fail("create", "persistentvolumes")
    after = given.sync_claim()
    assert after.has(VOLUME, MADE)
    assert [request.seconds for request in after.requests if isinstance(request, Pause)] == [10] * 4


@dataclass
class WilfulPlugin(ObedientPlugin):
    """Makes this, whatever is asked."""

    spec: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def provision(self, request: Provision) -> dict[str, Any]:
        self.calls.append(("provision", request.volume_name, ""))
        return {"spec": self.spec, "metadata": self.metadata}


def making(
    spec: dict[str, Any], *, policy: str = "Delete", wanted: dict[str, Any] | None = None, **metadata: Any
) -> World:
    given = asking(fields={"policy": policy}, claim=wanted or {})
    given.plugin = WilfulPlugin({}, spec=spec, metadata=metadata)
    return given.sync_claim()


@row("9.9 provisioning fails")
def test_a_volume_that_is_too_small_is_deleted_again_and_its_name_stays_free() -> None:
    after = making({"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}})
    assert not after.has(VOLUME, MADE)
    assert after.calls == [("provision", MADE, ""), ("delete", MADE, "")]
    assert after.notices == [*FAILED, (NORMAL, "ProvisioningCleanedUp")]
    assert "created a volume of 1Gi where 8Gi were asked for" in after.messages[0]
    assert len(after.errors) == 1


@row("9.9 provisioning fails")
def test_a_volume_without_the_claims_attributes_class_is_deleted_again() -> None:
    """Only a csi volume has one. Kept, it would never be bound, and its name would keep a better one away."""
    after = making({"hostPath": {"path": "/x"}}, wanted={"volumeAttributesClassName": "gold"})
    assert not after.has(VOLUME, MADE)
    assert after.notices == [*FAILED, (NORMAL, "ProvisioningCleanedUp")]
    assert 'volumeAttributesClassName "gold"' in after.messages[0]


@row("9.9 success")
def test_a_csi_volume_gets_the_attributes_class_that_was_asked_for() -> None:
    source = {"csi": {"driver": "d", "volumeHandle": "h"}}
    assert making(source, wanted={"volumeAttributesClassName": "gold"}).volume(MADE).attributes_class == "gold"
    assert making(source, wanted={"volumeAttributesClassName": ""}).volume(MADE).attributes_class is None


@row("9.9 success")
@pytest.mark.parametrize(("of_class", "policy"), [("Retain", "Retain"), ("", "Delete")])
def test_what_the_plugin_does_not_say_is_as_was_asked(of_class: str, policy: str) -> None:
    made = making({"accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}, policy=of_class).volume(MADE)
    assert (str(made.size), made.reclaim_policy) == ("8Gi", policy)


@row("9.9 success")
def test_what_the_plugin_says_of_zones_is_kept_and_the_name_is_ours() -> None:
    made = making({"hostPath": {"path": "/x"}}, name="odd", labels={"zone": "a"}).volume(MADE)
    assert made.meta.labels == {"zone": "a"}
    assert made.meta.annotations[PROVISIONED_BY] == DISK.name


def unsaved(**behaviour: list[str]) -> World:
    given = asking(**behaviour)
    for _ in range(5):
        given.fail("create", "persistentvolumes")
    return given.sync_claim()


@row("9.9 cannot save")
def test_storage_without_an_object_is_deleted_again_and_we_say_so() -> None:
    after = unsaved()
    assert after.calls == [("provision", MADE, ""), ("delete", MADE, "")]
    assert after.notices == [*FAILED, (NORMAL, "ProvisioningCleanedUp")]
    assert len(after.errors) == 1


@row("9.9 cannot clean up")
def test_storage_that_cannot_be_deleted_again_is_an_orphan_and_named() -> None:
    after = unsaved(delete=["stuck"])
    assert [call for call, _, _ in after.calls] == ["provision"] + ["delete"] * 5
    assert after.notices == [*FAILED, (WARNING, "ProvisioningCleanupFailed")]
    assert KEY in after.messages[1]
    assert [request.seconds for request in after.requests if isinstance(request, Pause)] == [10] * 8
    once = unsaved(delete=["stuck", ""])
    assert once.notices[1] == (NORMAL, "ProvisioningCleanedUp")


# --- migration upkeep -----------------------------------------------------------------------------------


@row("9.2 no provisioner", "9.2 migrated provisioner", "9.2 other provisioner")
@pytest.mark.parametrize(
    ("notes", "noted"),
    [
        ({MIGRATED_TO: "x"}, "x"),
        ({}, None),
        ({STORAGE_PROVISIONER: "kubernetes.io/gce-pd"}, "pd.csi.storage.gke.io"),
        ({STORAGE_PROVISIONER: "kubernetes.io/gce-pd", MIGRATED_TO: "x"}, "pd.csi.storage.gke.io"),
        ({BETA_STORAGE_PROVISIONER: "kubernetes.io/gce-pd"}, "pd.csi.storage.gke.io"),
        ({STORAGE_PROVISIONER: "a", BETA_STORAGE_PROVISIONER: "kubernetes.io/gce-pd", MIGRATED_TO: "x"}, None),
        ({STORAGE_PROVISIONER: "pd.csi.storage.gke.io", MIGRATED_TO: "x"}, None),
        ({STORAGE_PROVISIONER: "", MIGRATED_TO: "x"}, None),
        ({STORAGE_PROVISIONER: "a", MIGRATED_TO: ""}, ""),
    ],
)
def test_the_note_of_migration_agrees_with_the_claims_provisioner(
    notes: dict[str, str], noted: str | None
) -> None:
    after = world(pvc(volume="gone", notes=notes), sc()).sync_claim()
    assert after.claim().meta.annotations.get(MIGRATED_TO) == noted


@row("9.2 no provisioner", "9.2 migrated provisioner", "9.2 other provisioner")
@pytest.mark.parametrize(
    ("notes", "noted"),
    [
        ({MIGRATED_TO: "x"}, "x"),
        ({PROVISIONED_BY: "kubernetes.io/cinder"}, "cinder.csi.openstack.org"),
        ({PROVISIONED_BY: "csi.example.com", MIGRATED_TO: "x"}, None),
    ],
)
def test_the_note_of_migration_agrees_with_the_volumes_provisioner(
    notes: dict[str, str], noted: str | None
) -> None:
    assert world(pv(notes=notes)).sync_volume().volume().meta.annotations.get(MIGRATED_TO) == noted


@row("9.2 migrated provisioner")
def test_the_note_is_one_write_before_anything_else_and_its_error_ends_the_sync() -> None:
    claim = pvc(notes={STORAGE_PROVISIONER: "kubernetes.io/cinder"})
    after = world(claim, immediate(), pv()).sync_claim()
    first = next(request for request in after.requests if isinstance(request, Update))
    assert (first.kind, first.status) == (CLAIM, False)
    failed = world(claim, immediate(), pv()).fail("update", "persistentvolumeclaims").sync_claim()
    assert failed.volume().claim_ref is None
