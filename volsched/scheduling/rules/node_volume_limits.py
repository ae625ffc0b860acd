"""NodeVolumeLimits: the stand-alone filter that keeps a pod off a node whose CSI drivers have no slot left."""

from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.attach_limits import claimed_slots, csi_limits, slots_in_use
from volsched.scheduling.rules.disks import csi_attached_plugins, slots_by_driver
from volsched.scheduling.rules.pod_claims import claim_not_found, claim_uses
from volsched.scheduling.rules.rejection import Failure, Rejection, Rule
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import SUCCESS, TOO_MANY_VOLUMES, Code, Status


def driver_not_installed(driver: str) -> str:
    return f"{driver} CSI driver is not installed on the node"


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
    # A driver that is already over its limit refuses only pods that would add to it.
    for driver, count in sorted(added.items()):
        if driver in limits and before[driver] + count > limits[driver]:
            got = f"{before[driver]} of {limits[driver]} in use"
            return _refused(TOO_MANY_VOLUMES, pod, Rule.ATTACH_LIMIT, f"{count} attach slots of {driver}", got)
    return SUCCESS


def drivers_installed(snapshot: Snapshot, pod: Pod, node: Node) -> Status:
    """Some drivers insist on being on the node before a pod that needs them is."""
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
