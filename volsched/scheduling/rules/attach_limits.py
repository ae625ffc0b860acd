"""Attach slots of nodes: the limits, what is left of them, and the stand-alone NodeVolumeLimits."""

import re
from collections.abc import Iterator

from volsched.kube.storage import Claim, VolumeAttachment
from volsched.kube.workloads import TERMINATED, Node, Pod
from volsched.scheduling.rules.disks import (
    EBS,
    IN_TREE,
    AttachId,
    attach_id,
    csi_attached_plugins,
    in_tree_id,
    slots_by_driver,
)
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound, selected_node
from volsched.scheduling.rules.reasons import TOO_MANY_VOLUMES, claim_not_found, driver_not_installed
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, Code, Failure, Rejection, Rule, Status

# A decision that ignores the limits binds a volume on a node that can never attach it, and a binding is
# permanent.

CSI_LIMIT_PREFIX = "attachable-volumes-csi-"
INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
NITRO_LIMIT = 25
# Used with search, not match: the reference's pattern anchors its first alternative only.
_NITRO = re.compile(r"^[cmr]5.*|t3|z1d")


def attach_limits(snapshot: Snapshot, node: Node, *, max_in_tree: int | None) -> dict[str, int]:
    """Every driver with a limit on the node. `max_in_tree`, if positive, replaces the in-tree defaults."""
    limits = {
        key.removeprefix(CSI_LIMIT_PREFIX): amount.value()
        for key, amount in node.allocatable.items()
        if key.startswith(CSI_LIMIT_PREFIX)
    }
    migrated = csi_attached_plugins(snapshot.csi_nodes.get(node.name))
    limits |= {plugin.name: limits[plugin.csi_driver] for plugin in migrated if plugin.csi_driver in limits}
    limits |= csi_limits(snapshot, node)
    for plugin in IN_TREE.values():
        if plugin in migrated:
            continue
        amount = node.allocatable.get(plugin.limit_key)
        if amount is not None:
            limits[plugin.name] = amount.value()
        elif max_in_tree is not None and max_in_tree > 0:
            limits[plugin.name] = max_in_tree
        elif plugin is EBS and _NITRO.search(_instance_type(node)):
            limits[plugin.name] = NITRO_LIMIT
        else:
            limits[plugin.name] = plugin.default_limit
    return limits


def csi_limits(snapshot: Snapshot, node: Node) -> dict[str, int]:
    """The limits that the drivers themselves declare for the node; 0 is a limit, an absent value is none.

    An in-tree plugin whose disks a driver attaches has the driver's limit: they share the slots.
    """
    csi_node = snapshot.csi_nodes.get(node.name)
    drivers = csi_node.drivers if csi_node is not None else ()
    limits = {driver.name: driver.attach_limit for driver in drivers if driver.attach_limit is not None}
    for plugin in csi_attached_plugins(csi_node):
        if plugin.csi_driver in limits:
            limits[plugin.name] = limits[plugin.csi_driver]
    return limits


def attach_budget(snapshot: Snapshot, pod: Pod, node: Node, *, max_in_tree: int | None = None) -> dict[str, int]:
    """Slots left per limited driver once the pod's bound volumes are attached; negative: they do not fit.

    A driver over its limit counts as 0 left, not as negative: it must not exclude a pod that adds nothing to it.
    A claim whose new volume another pod awaits on the node takes no further slot: its slot is added here, because
    the decision will subtract it.
    """
    used = slots_in_use(snapshot, node, besides=pod)
    csi_node = snapshot.csi_nodes.get(node.name)
    before = slots_by_driver(used, csi_node)
    own = slots_by_driver(set(_bound_slots(snapshot, pod)) - used, csi_node)
    shared = slots_by_driver(used.intersection(_awaited_slots(snapshot, pod, node)), csi_node)
    limits = attach_limits(snapshot, node, max_in_tree=max_in_tree)
    return {
        driver: max(limit - before[driver], 0) - own[driver] + shared[driver] for driver, limit in limits.items()
    }


def slots_in_use(snapshot: Snapshot, node: Node, *, besides: Pod) -> set[AttachId]:
    """Slots taken by the node's other pods and by attachments to it; a disk that is both counts once."""
    attached = (held for held in snapshot.attachments.values() if held.node_name == node.name)
    slots = {slot for held in attached if (slot := _attached_slot(snapshot, held)) is not None}
    for pod in placed_pods(snapshot, besides=besides):
        if pod.node_name == node.name:
            slots.update(_inline_slots(pod))
            slots.update(claimed_slots(snapshot, pod))
    return slots


def placed_pods(snapshot: Snapshot, *, besides: Pod) -> Iterator[Pod]:
    """The other pods that are on some node and still hold their volumes."""
    for pod in snapshot.pods.values():
        if pod.node_name and pod.phase not in TERMINATED and pod.key != besides.key:
            yield pod


def claim_slot(snapshot: Snapshot, claim: Claim) -> AttachId | None:
    """The slot of the claim's volume; without a volume, the one that its class's provisioner will need."""
    volume = snapshot.volume(claim.volume_name) if claim.volume_name else None
    if volume is not None:
        return attach_id(volume)
    storage_class = snapshot.classes.get(claim.class_name)
    return None if storage_class is None else AttachId(storage_class.provisioner, claim.key)


def claimed_slots(snapshot: Snapshot, pod: Pod) -> Iterator[AttachId]:
    """The slots of the pod's claims, in the order of its volumes; a missing claim takes no slot."""
    for use in claim_uses(pod):
        claim = snapshot.claim(use.key)
        slot = None if claim is None else claim_slot(snapshot, claim)
        if slot is not None:
            yield slot


def _attached_slot(snapshot: Snapshot, attachment: VolumeAttachment) -> AttachId | None:
    volume = snapshot.volume(attachment.volume_name)
    # The disk of a deleted volume occupies its slot until it is detached.
    return AttachId(attachment.attacher, attachment.meta.name) if volume is None else attach_id(volume)


def _bound_slots(snapshot: Snapshot, pod: Pod) -> Iterator[AttachId]:
    """The slots of the pod's disks and bound claims. The decision subtracts those of unbound claims itself."""
    yield from _inline_slots(pod)
    for use in claim_uses(pod):
        claim = snapshot.claim(use.key)
        volume = snapshot.volume(claim.volume_name) if claim is not None and is_fully_bound(claim) else None
        slot = None if volume is None else attach_id(volume)
        if slot is not None:
            yield slot


def _awaited_slots(snapshot: Snapshot, pod: Pod, node: Node) -> Iterator[AttachId]:
    """The slots of the pod's claims that will get a new volume on the node."""
    for use in claim_uses(pod):
        claim = snapshot.claim(use.key)
        if claim is not None and not claim.volume_name and selected_node(claim, alpha=True) == node.name:
            slot = claim_slot(snapshot, claim)
            if slot is not None:
                yield slot


def _inline_slots(pod: Pod) -> Iterator[AttachId]:
    for volume in pod.volumes:
        slot = in_tree_id(volume.source)
        if slot is not None:
            yield slot


def _instance_type(node: Node) -> str:
    return next((node.labels[key] for key in INSTANCE_TYPE_LABELS if key in node.labels), "")


# NodeVolumeLimits: the stand-alone filter that excludes nodes whose CSI drivers have no slot left.


def node_volume_limits(snapshot: Snapshot, pod: Pod, node: Node) -> Status:
    """Unlike the budget of a binding decision, this counts the pod's unbound claims too, by their provisioner."""
    missing = next((use.name for use in claim_uses(pod) if snapshot.claim(use.key) is None), None)
    if missing is not None:
        return Status(Code.UNRESOLVABLE, (claim_not_found(missing),))
    installed = drivers_installed(snapshot, pod, node)
    if not installed.passed:
        return installed
    used = slots_in_use(snapshot, node, besides=pod)
    csi_node = snapshot.csi_nodes.get(node.name)
    before = slots_by_driver(used, csi_node)
    added = slots_by_driver(set(claimed_slots(snapshot, pod)) - used, csi_node)
    limits = csi_limits(snapshot, node)
    # A driver over its limit refuses only pods that would add to it.
    for driver, count in sorted(added.items()):
        if driver in limits and before[driver] + count > limits[driver]:
            got = f"{before[driver]} of {limits[driver]} in use"
            return _refused(TOO_MANY_VOLUMES, pod, Rule.ATTACH_LIMIT, f"{count} attach slots of {driver}", got)
    return SUCCESS


def drivers_installed(snapshot: Snapshot, pod: Pod, node: Node) -> Status:
    """Some drivers must be installed on the node before a pod that needs them."""
    if not snapshot.drivers:
        return SUCCESS
    csi_node = snapshot.csi_nodes.get(node.name)
    installed = {driver.name for driver in csi_node.drivers} if csi_node is not None else set()
    attached_by = {plugin.name: plugin.csi_driver for plugin in csi_attached_plugins(csi_node)}
    for slot in claimed_slots(snapshot, pod):
        driver = snapshot.drivers.get(attached_by.get(slot.driver, slot.driver))
        if driver is not None and driver.prevent_scheduling_if_missing and driver.name not in installed:
            reason = driver_not_installed(driver.name)
            return _refused(reason, pod, Rule.DRIVER_INSTALLED, f"{driver.name} on {node.name}", "not installed")
    return SUCCESS


def _refused(reason: str, pod: Pod, rule: Rule, wanted: str, got: str) -> Status:
    claims = ", ".join(use.key for use in claim_uses(pod))
    rejection = Rejection(reason=reason, claim=claims, failures=(Failure(rule, wanted, got),))
    return Status(Code.UNSCHEDULABLE, (reason,), (rejection,))
