"""Why a node, or every node, is refused: the messages of all filters, as the reference spells them."""

from collections.abc import Iterable

# VolumeBinding, in the order in which a node reports them.
NODE_AFFINITY_MISMATCH = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
BOUND_TO_MISSING_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

# The other filters of volumes.
NO_ZONE = "node(s) had no available volume zone"
DISK_CONFLICT = "node(s) had no available disk"
EXCLUSIVE_CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)

# VolumeZone, if the zone of a claim or a volume cannot be read.
CLAIM_WITHOUT_NAME = "PersistentVolumeClaim had no name"
CLAIM_WITHOUT_VOLUME_AND_CLASS = "PersistentVolumeClaim had no pv name and storageClass name"
VOLUME_WITHOUT_NAME = "PersistentVolume had no name"

# Other plugins.
UNEVEN_REASON = "node(s) didn't match pod topology spread constraints"
TOO_MANY_PODS = "Too many pods"
NODE_NAME_MISMATCH = "node(s) didn't match the requested node name"
NODE_SELECTOR_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
NODE_UNSCHEDULABLE = "node(s) were unschedulable"
UNTOLERATED_TAINT = "node(s) had untolerated taint(s)"
POD_AFFINITY_MISMATCH = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY_MISMATCH = "node(s) didn't match pod anti-affinity rules"
ANTI_AFFINITY_OF_OTHERS = "node(s) didn't satisfy existing pods anti-affinity rules"
PREVIOUSLY_REJECTED = "node(s) previously rejected the pod"

UNEVEN_WITHOUT_LABEL = f"{UNEVEN_REASON} (missing required label)"
NO_NODES_AT_ALL = "no nodes available to schedule pods"

# A pod that is not decided yet.
GATED = "Scheduling is blocked due to non-empty scheduling gates"


def insufficient(resource: str) -> str:
    return f"Insufficient {resource}"


def refused_by_plugin(name: str) -> str:
    return f"node(s) didn't satisfy plugin(s) [{name}]"


def driver_not_installed(driver: str) -> str:
    return f"{driver} CSI driver is not installed on the node"


def none_available(nodes: int, why: str) -> str:
    """The reason if no node is available: for all nodes together."""
    return f"0/{nodes} nodes are available: {why}." if why else f"0/{nodes} nodes are available."


def assigned(pod: str, node: str) -> str:
    return f"Successfully assigned {pod} to {node}"


# Reasons that refuse every node: a claim, a volume or a class of the pod.
def claim_not_found(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


def claim_not_readable(key: str) -> str:
    return f'error getting PVC "{key}": persistentvolumeclaims "{key}" not found'


def claim_not_created_yet(name: str) -> str:
    return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'


def claim_lost(name: str, volume: str) -> str:
    return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'


def claim_being_deleted(name: str) -> str:
    return f'persistentvolumeclaim "{name}" is being deleted'


def claim_in_rollback(name: str) -> str:
    return f'persistentvolumeclaim "{name}" is undergoing rollback'


def claim_of_other_pod(claim: str, pod: str) -> str:
    return f"PVC {claim} was not created for pod {pod} (pod is not owner)"


def claim_without_class(claim: str) -> str:
    return f'no class for claim "{claim}"'


def selector_not_readable(claim: str, why: str) -> str:
    return f"error creating internal label selector for claim: {claim}: {why}"


def volume_not_found(name: str) -> str:
    return f'persistentvolume "{name}" not found'


def class_not_found(name: str) -> str:
    return f'storageclass.storage.k8s.io "{name}" not found'


def class_of_claim_not_found(name: str) -> str:
    return f'failed to find storage class "{name}"'


def mode_not_set(class_name: str) -> str:
    return f'VolumeBindingMode not set for StorageClass "{class_name}"'


# Claims of a pod that are bound where it cannot run.
GAVE_UP_REMEDY = (
    "the rollback of claims was requested five times and the pod still finds no node; delete the pod, or a claim "
    "that holds no data you need, or add a volume where the others are (volsched explain pod says what is missing)"
)


def rollback_requested(claims: Iterable[str]) -> str:
    return f"requested the rollback of {', '.join(claims)}: bound where this pod cannot run, and still empty"
