"""Why a node, or every node, is refused: the messages of all filters, as the reference spells them."""

# VolumeBinding, in the order in which a node reports them.
NODE_AFFINITY_MISMATCH = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
BOUND_TO_MISSING_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
TOO_MANY_VOLUMES = "node(s) exceed max volume count"

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

# Filters of volumes beside it.
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

# A pod that is not decided yet.
GATED = "Scheduling is blocked due to non-empty scheduling gates"


def insufficient(resource: str) -> str:
    return f"Insufficient {resource}"


def refused_by_plugin(name: str) -> str:
    return f"node(s) didn't satisfy plugin(s) [{name}]"
