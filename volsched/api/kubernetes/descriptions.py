"""Field descriptions for `kubectl explain`: in our words, and as volsched uses the fields.

Kinds, and the fields that decide where a pod and its volumes are placed; for all others, `explain` shows the type.
"""

from collections.abc import Mapping

KEPT = "Stored and shown; volsched does not act on it."
TYPES: Mapping[str, str] = {
    "V1Pod": "Containers that run together on one node, which is chosen together with the pod's volumes.",
    "V1PersistentVolumeClaim": "A request for storage. It is bound to one volume, which no other claim can use.",
    "V1PersistentVolume": "A piece of storage in the cluster, and from which nodes it can be reached.",
    "V1StorageClass": "A kind of storage: who provisions it, when it is bound, and what happens to it after use.",
    "V1Node": "A machine that runs pods.",
    "V1Namespace": "A scope for names. A deleted namespace disappears once it is empty.",
    "V1StatefulSet": "Numbered pods with claims of their own, created, replaced and removed in order.",
    "V1ControllerRevision": "A template of a StatefulSet, kept so that `kubectl rollout undo` can restore it.",
    "V1PodDisruptionBudget": "How many of the selected pods must stay when others are evicted.",
    "V1PriorityClass": "A name for a priority. Pods of a higher one are scheduled first.",
    "V1CSIDriver": "What a storage driver needs and can do.",
    "V1CSINode": "Which storage drivers a node has, and how many volumes of each it can hold.",
    "V1CSIStorageCapacity": "How much storage of a class is left in a part of the cluster.",
    "V1VolumeAttachment": "The attachment of a volume to a node, requested or done.",
    "V1Service": f"A name under which pods are reached. {KEPT}",
    "CoreV1Event": "Something that happened to an object, for people to read.",
    "EventsV1Event": "Something that happened to an object, for people to read.",
    "V1Lease": "A role that a client holds for a limited time. Leases are stored outside the log.",
}
_OBJECT = {
    "apiVersion": "The group and version of the kind.",
    "kind": "What the object is.",
    "metadata": "Its name, labels and the other fields that every object has.",
    "spec": "The desired state.",
    "status": "The present state, written by controllers; people write the spec.",
}
FIELDS: Mapping[str, Mapping[str, str]] = {
    "V1ObjectMeta": {
        "name": "Its name, unique among objects of its kind in the namespace. It cannot be changed.",
        "namespace": "The namespace that it is in; `default` where none is given.",
        "labels": "Short values by which objects are selected.",
        "annotations": "Any other values; objects cannot be selected by them.",
        "uid": "Identifies this one object: a recreated object of the same name has another uid.",
        "resourceVersion": "The log's position at its last write. A write that names another is refused.",
        "generation": "How often the desired state has changed.",
        "creationTimestamp": "When it was created.",
        "deletionTimestamp": "When it is to be deleted; it stays until its finalizers are removed.",
        "deletionGracePeriodSeconds": "The seconds that it has to terminate.",
        "finalizers": "Which components must finish before it is deleted. Each removes its own entry.",
        "ownerReferences": "Objects that it belongs to. It is deleted when the last of them is gone.",
        "managedFields": "Who owns which field, from the first server-side apply on.",
        "generateName": "The beginning of a name, to which the server adds an end.",
    },
    "V1PersistentVolumeClaimSpec": {
        "accessModes": "How the volume is to be mounted. A matching volume has all of these modes.",
        "resources": "How much storage is requested, under `requests.storage`.",
        "selector": "Labels that the volume must have. Volumes are not provisioned for a claim with a selector.",
        "storageClassName": "The class. Empty: a volume without class. Left out: the default class.",
        "volumeMode": "`Filesystem` or `Block`; the volume must have the same.",
        "volumeName": "The volume that it is bound to. Given at creation, it is that volume or none.",
        "dataSource": "What a new volume is filled from. The same as `dataSourceRef`.",
        "dataSourceRef": "What a new volume is filled from.",
    },
    "V1PersistentVolumeClaimStatus": {
        "phase": "`Pending`, `Bound`, or `Lost` where its volume is gone.",
        "capacity": "The size of the bound volume.",
        "accessModes": "How the bound volume can be mounted.",
        "dataState": "Whether the volume may hold data. Unknown counts as yes: such a volume is never unbound.",
    },
    "V1PersistentVolumeSpec": {
        "capacity": "Its size, under `storage`.",
        "accessModes": "How it can be mounted.",
        "nodeAffinity": "From which nodes it can be reached. Pods that use it are placed there only.",
        "storageClassName": "The class that claims must name to get it.",
        "claimRef": "The claim that it belongs to. With a uid, it is reserved for that claim permanently.",
        "persistentVolumeReclaimPolicy": "What happens to it when its claim is deleted: `Retain` or `Delete`.",
        "volumeMode": "`Filesystem` or `Block`.",
        "local": "A disk of one node, which its node affinity names.",
        "csi": "A volume of a CSI driver.",
        "hostPath": "A directory of the node that the pod is on; for tests.",
        "mountOptions": f"Options of the mount. {KEPT}",
    },
    "V1PersistentVolumeStatus": {
        "phase": "`Pending`, `Available`, `Bound`, `Released` when its claim is gone, or `Failed`.",
        "message": "Why it is in its phase.",
        "reason": "The same in one word.",
    },
    "V1StorageClass": {
        **_OBJECT,
        "provisioner": "The provisioner of the class's volumes; `kubernetes.io/no-provisioner`: none.",
        "volumeBindingMode": "`Immediate`, or `WaitForFirstConsumer`: the pod's node is chosen with the volume.",
        "reclaimPolicy": "The reclaim policy of volumes that are provisioned for it.",
        "allowVolumeExpansion": "Whether claims may request more later. volsched does not expand volumes yet.",
        "allowedTopologies": "Where its volumes may be provisioned.",
        "parameters": "Settings for the provisioner.",
    },
    "V1PodSpec": {
        "nodeName": "The node that it is on. It is set once, by a binding.",
        "nodeSelector": "Labels that the node must have.",
        "affinity": "Which nodes it must or should be on, and near or far from which other pods.",
        "tolerations": "Taints of nodes that do not keep it away.",
        "topologySpreadConstraints": "How evenly pods like it are spread over zones or nodes.",
        "schedulerName": "Who places it; volsched places pods of `default-scheduler` unless configured otherwise.",
        "schedulingGates": "While there are any, it is not scheduled.",
        "priorityClassName": "The class that its priority comes from.",
        "priority": "Its priority as a number, filled in from the class.",
        "volumes": "The volumes that its containers can mount; those of claims decide where it can run.",
        "containers": "The containers that run in it.",
        "terminationGracePeriodSeconds": "The seconds that it has to terminate when it is deleted.",
        "restartPolicy": "Whether containers that end are started again.",
    },
    "V1Volume": {
        "name": "The name by which containers mount it.",
        "persistentVolumeClaim": "A claim of the same namespace. The pod waits until it is bound.",
        "ephemeral": "A claim that is created for this pod, and deleted with it.",
    },
    "V1StatefulSetSpec": {
        "replicas": "How many pods there should be.",
        "selector": "Labels that its pods have. It cannot be changed.",
        "serviceName": "The service that gives its pods their names in DNS.",
        "template": "The template of its pods. A new one is rolled out as `updateStrategy` says.",
        "volumeClaimTemplates": "Claims that every pod gets of its own. They outlive the pod and the set.",
        "updateStrategy": "How pods get a new template: `RollingUpdate`, or `OnDelete` when they are deleted.",
        "podManagementPolicy": "`OrderedReady`: one pod after the other. `Parallel`: all at once.",
        "revisionHistoryLimit": "How many templates are kept that no pod uses any more.",
        "minReadySeconds": "How long a pod must have been ready to count as available.",
        "ordinals": "The number of its first pod.",
    },
    "V1RollingUpdateStatefulSetStrategy": {
        "partition": "Pods with a lower number keep their present template.",
        "maxUnavailable": "How many pods, or percent of them, may be unavailable at once.",
    },
    "V1PodDisruptionBudgetSpec": {
        "selector": "The pods that it covers.",
        "minAvailable": "How many of them, or percent, must stay ready.",
        "maxUnavailable": "How many of them, or percent, may be unavailable.",
        "unhealthyPodEvictionPolicy": "Whether pods that are not ready may always be evicted.",
    },
    "V1NodeSpec": {
        "unschedulable": "No new pods are placed on it; `kubectl cordon` sets it.",
        "taints": "Marks that keep away pods which do not tolerate them.",
    },
    "V1NodeStatus": {
        "allocatable": "The resources that pods may use. volsched treats a missing value as no limit.",
        "capacity": "Its total resources.",
        "conditions": "Its conditions, such as `Ready`.",
    },
    "V1CSIDriverSpec": {
        "storageCapacity": "Whether the driver publishes its free capacity, which placing a pod respects.",
        "attachRequired": "Whether its volumes are attached before they are mounted.",
    },
    "V1CSINodeDriver": {
        "allocatable": "How many volumes of the driver the node can hold, under `count`.",
        "topologyKeys": "Labels of the node by which the driver knows where it is.",
    },
    "V1PriorityClass": {
        **_OBJECT,
        "value": "The priority. It cannot be changed.",
        "globalDefault": "Whether it applies to pods that name no class.",
        "preemptionPolicy": "Whether its pods may preempt others.",
        "description": "What it is for.",
    },
}


def description_of(type_: str, field: str | None = None) -> str | None:
    """The description of a type, or of one of its fields; None where there is none."""
    if field is None:
        return TYPES.get(type_)
    return FIELDS.get(type_, {}).get(field) or (_OBJECT.get(field) if type_ in TYPES else None)
