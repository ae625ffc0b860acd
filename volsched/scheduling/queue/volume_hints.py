"""Hints of the volume plugins: may this change let the pod in where one of them refused it.

Each answers for changes that have the aspect it is registered for. [D] marks where our rules look at more than
Kubernetes' do, and would otherwise lose a wake-up.
"""

from collections.abc import Iterator

from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, CSIDriver, CSINode, StorageClass, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.queue.object_changes import ObjectChange, claim_concerned
from volsched.scheduling.rules.attach_limits import CSI_LIMIT_PREFIX
from volsched.scheduling.rules.disks import IN_TREE, in_tree_id
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.volume_restrictions import disks_conflict
from volsched.scheduling.rules.volume_zone import zone_rules


def uses_claim(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """One of the pod's claims, named directly or made from its template."""
    return isinstance(change.new, Claim) and any(use.key == change.new.key for use in claim_uses(pod))


def names_claim(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """One of the claims that the pod names directly."""
    wanted = change.new.key if isinstance(change.new, Claim) else None
    return any(use.key == wanted for use in claim_uses(pod) if not use.ephemeral)


def may_have_volume(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """[D] Kubernetes says yes to any change. But a volume that is somebody else's is nothing to this pod, and
    every binding changes its volume several times, or has it made: where many pods wait, each would wake all of
    them for nothing.
    """
    claim = claim_concerned(change)
    return claim is None or any(use.key == claim for use in claim_uses(pod))


def wants_no_capacity(change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    """The driver stopped publishing capacity: what it could not prove to have room for may be tried now."""
    old, new = change.old, change.new
    if not isinstance(old, CSIDriver) or not old.storage_capacity:
        return False
    if isinstance(new, CSIDriver) and new.storage_capacity:
        return False
    inline = (volume.source for volume in pod.volumes if volume.source is not None)
    if any(source.kind == "csi" and source.text("driver") == old.name for source in inline):
        return True
    # [D] Kubernetes asks for an inline volume only, and leaves pods with claims to the safety net.
    return old.name in _provisioners(pod, snapshot)


def is_delayed_class(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    return isinstance(change.new, StorageClass) and change.new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def zones_changed(change: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    old, new = change.old, change.new
    if not isinstance(old, Volume) or not isinstance(new, Volume) or zone_rules(old) == zone_rules(new):
        return False
    return may_have_volume(change, pod, snapshot)


def limit_grew(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """A driver attaches more than before. [D] A limit that is gone, and a driver that has come, count as grown."""
    old, new = change.old, change.new
    if not isinstance(old, CSINode):
        return False
    before = {driver.name: driver.attach_limit for driver in old.drivers}
    after = {driver.name: driver.attach_limit for driver in new.drivers} if isinstance(new, CSINode) else {}
    if after.keys() - before.keys():
        return True
    pairs = ((limit, after.get(name)) for name, limit in before.items() if limit is not None)
    return any(limit is None or limit > was for was, limit in pairs)


def attachable_grew(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """[D] Our limits are read from the node's allocatable too."""
    old, new = change.old, change.new
    if not isinstance(old, Node) or not isinstance(new, Node):
        return False
    keys = {plugin.limit_key for plugin in IN_TREE.values()}
    for key in {*old.allocatable, *new.allocatable}:
        if key in keys or key.startswith(CSI_LIMIT_PREFIX):
            before, after = old.allocatable.get(key), new.allocatable.get(key)
            if after is None or before is None or after.value() > before.value():
                return True
    return False


def driver_may_be_missing(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """[D] The driver no longer insists on being installed before its pods come."""
    old, new = change.old, change.new
    if not isinstance(old, CSIDriver) or not old.prevent_scheduling_if_missing:
        return False
    return not (isinstance(new, CSIDriver) and new.prevent_scheduling_if_missing)


def had_volumes(change: ObjectChange, _: Pod, __: Snapshot) -> bool:
    """The pod that left had a claim, or an inline disk that takes a slot."""
    gone = change.old
    if not isinstance(gone, Pod):
        return False
    return any(claim_uses(gone)) or any(in_tree_id(volume.source) is not None for volume in gone.volumes)


def uses_any_claim(_: ObjectChange, pod: Pod, __: Snapshot) -> bool:
    return any(True for _use in claim_uses(pod))


def shared_a_volume(change: ObjectChange, pod: Pod, _: Snapshot) -> bool:
    """The pod that left shared a claim, or held an inline disk that conflicts.

    [D] Kubernetes asks for the same namespace, but inline disks conflict across namespaces.
    """
    gone = change.old
    if not isinstance(gone, Pod):
        return False
    mine = {use.key for use in claim_uses(pod)}
    return any(use.key in mine for use in claim_uses(gone)) or disks_conflict(pod, gone)


def has_unbound_claim(_: ObjectChange, pod: Pod, snapshot: Snapshot) -> bool:
    return any(True for _claim in _unbound(pod, snapshot))


def _provisioners(pod: Pod, snapshot: Snapshot) -> set[str]:
    classes = (snapshot.classes.get(claim.class_name) for claim in _unbound(pod, snapshot))
    return {found.provisioner for found in classes if found is not None}


def _unbound(pod: Pod, snapshot: Snapshot) -> Iterator[Claim]:
    for use in claim_uses(pod):
        claim = snapshot.claim(use.key)
        if claim is not None and not is_fully_bound(claim):
            yield claim
