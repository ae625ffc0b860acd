"""Field descriptions for `kubectl explain`: in our words, and as volsched uses the fields.

Kinds, and the fields that decide where a pod and its volumes are placed; for all others, `explain` shows the type.
"""

from collections.abc import Mapping

KEPT = "Kept and shown, but nothing in volsched acts upon it."
TYPES: Mapping[str, str] = {
    "V1Pod": "Containers that run together on one node, which is chosen together with the pod's volumes.",
    "V1PersistentVolumeClaim": "A request for storage. It is bound to one volume, which is then its own.",
    "V1PersistentVolume": "A piece of storage in the cluster, and from which nodes it can be reached.",
    "V1StorageClass": "A sort of storage: who provisions it, when it is bound, and what becomes of it afterwards.",
    "V1Node": "A machine that runs pods.",
    "V1Namespace": "A scope for names. It goes when it is deleted and nothing is in it any more.",
    "V1StatefulSet": "Pods with a number and claims of their own, made, replaced and removed one after the other.",
    "V1ControllerRevision": "A template that a StatefulSet has had; `kubectl rollout undo` brings it back.",
    "V1PodDisruptionBudget": "How many of some pods must stay when others are evicted.",
    "V1PriorityClass": "A name for a priority. Pods of a higher one are scheduled first.",
    "V1CSIDriver": "What a storage driver needs and can do.",
    "V1CSINode": "Which storage drivers a node has, and how many volumes of each it can hold.",
    "V1CSIStorageCapacity": "How much storage of a class is left in a part of the cluster.",
    "V1VolumeAttachment": "That a volume is, or is to be, attached to a node.",
    "V1Service": f"A name under which pods are reached. {KEPT}",
    "CoreV1Event": "Something that happened to an object, for people to read.",
    "EventsV1Event": "Something that happened to an object, for people to read.",
    "V1Lease": "That somebody holds a role for a while. Leases are kept outside the log.",
}
_OBJECT = {
    "apiVersion": "The group and version of the kind.",
    "kind": "What the object is.",
    "metadata": "Its name, labels and whatever else every object has.",
    "spec": "What is wanted of it.",
    "status": "How it stands, as controllers say it; people write the spec.",
}
FIELDS: Mapping[str, Mapping[str, str]] = {
    "V1ObjectMeta": {
        "name": "Its name, unique among objects of its kind in the namespace. It cannot be changed.",
        "namespace": "The namespace that it is in; `default` where none is said.",
        "labels": "Short facts by which objects are selected.",
        "annotations": "Any other facts about it; nothing is selected by them.",
        "uid": "Which object of that name it is: one that is recreated has another.",
        "resourceVersion": "The log's position at its last write. A write that names another is refused.",
        "generation": "How often what is wanted of it has changed.",
        "creationTimestamp": "When it was made.",
        "deletionTimestamp": "When it is to be gone; it is there until its finalizers are taken off.",
        "deletionGracePeriodSeconds": "The seconds that it was given to end.",
        "finalizers": "Who must have finished with it before it goes. Each takes its own entry off.",
        "ownerReferences": "Objects that it belongs to. It is deleted when the last of them is gone.",
        "managedFields": "Who owns which field, from the first server-side apply on.",
        "generateName": "The beginning of a name whose end the server makes up.",
    },
    "V1PersistentVolumeClaimSpec": {
        "accessModes": "How the volume is to be mounted: a volume that is bound has all of these.",
        "resources": "How much storage is asked for, under `requests.storage`.",
        "selector": "Labels that the volume must have. Volumes are not provisioned for a claim with a selector.",
        "storageClassName": "The class. Empty: a volume without class. Left out: the class that is the default.",
        "volumeMode": "`Filesystem` or `Block`; the volume must have the same.",
        "volumeName": "The volume that it is bound to. Given by hand, it is bound to that one or not at all.",
        "dataSource": "What a new volume is filled from. The same as `dataSourceRef`.",
        "dataSourceRef": "What a new volume is filled from.",
    },
    "V1PersistentVolumeClaimStatus": {
        "phase": "`Pending`, `Bound`, or `Lost` where its volume is gone.",
        "capacity": "What the bound volume holds.",
        "accessModes": "How the bound volume can be mounted.",
        "dataState": "Whether the volume may hold data. Unknown counts as yes: such a volume is never unbound.",
    },
    "V1PersistentVolumeSpec": {
        "capacity": "How much it holds, under `storage`.",
        "accessModes": "How it can be mounted.",
        "nodeAffinity": "From which nodes it can be reached. Pods that use it are placed there only.",
        "storageClassName": "The class that claims must name to get it.",
        "claimRef": "The claim that it belongs to. With a uid it is that claim's alone, for good.",
        "persistentVolumeReclaimPolicy": "What becomes of it when its claim is deleted: `Retain` or `Delete`.",
        "volumeMode": "`Filesystem` or `Block`.",
        "local": "A disk of one node; its node affinity says of which.",
        "csi": "A volume of a CSI driver.",
        "hostPath": "A directory of whichever node the pod is on; for tests.",
        "mountOptions": f"Options of the mount. {KEPT}",
    },
    "V1PersistentVolumeStatus": {
        "phase": "`Pending`, `Available`, `Bound`, `Released` when its claim is gone, or `Failed`.",
        "message": "Why it is in its phase.",
        "reason": "The same in one word.",
    },
    "V1StorageClass": {
        **_OBJECT,
        "provisioner": "Who makes volumes of the class; `kubernetes.io/no-provisioner`: nobody does.",
        "volumeBindingMode": "`Immediate`, or `WaitForFirstConsumer`: the pod's node is chosen with the volume.",
        "reclaimPolicy": "The reclaim policy of volumes that are made of it.",
        "allowVolumeExpansion": "Whether claims may ask for more later. volsched does not expand volumes yet.",
        "allowedTopologies": "Where volumes of it may be made.",
        "parameters": "What the provisioner must know.",
    },
    "V1PodSpec": {
        "nodeName": "The node that it is on. It is given once, by a binding.",
        "nodeSelector": "Labels that the node must have.",
        "affinity": "Which nodes it must or should be on, and near or far from which other pods.",
        "tolerations": "Taints of nodes that do not keep it away.",
        "topologySpreadConstraints": "How evenly pods like it are spread over zones or nodes.",
        "schedulerName": "Who places it; volsched does for `default-scheduler` unless told otherwise.",
        "schedulingGates": "While there are any, it is not scheduled.",
        "priorityClassName": "The class that its priority comes from.",
        "priority": "Its priority as a number, filled in from the class.",
        "volumes": "The volumes that its containers can mount; those of claims decide where it can run.",
        "containers": "What runs in it.",
        "terminationGracePeriodSeconds": "The seconds that it has to end when it is deleted.",
        "restartPolicy": "Whether containers that end are started again.",
    },
    "V1Volume": {
        "name": "By which the containers name it.",
        "persistentVolumeClaim": "A claim of the same namespace. The pod waits until it is bound.",
        "ephemeral": "A claim that is made for this pod, and goes with it.",
    },
    "V1StatefulSetSpec": {
        "replicas": "How many pods there should be.",
        "selector": "Labels that its pods have. It cannot be changed.",
        "serviceName": "The service that gives its pods their names in DNS.",
        "template": "What pods are made of. A new one is rolled out as `updateStrategy` says.",
        "volumeClaimTemplates": "Claims that every pod gets for itself. They outlive the pod and the set.",
        "updateStrategy": "How pods get a new template: `RollingUpdate`, or `OnDelete` when they are deleted.",
        "podManagementPolicy": "`OrderedReady`: one pod after the other. `Parallel`: all at once.",
        "revisionHistoryLimit": "How many templates that no pod has any more are kept.",
        "minReadySeconds": "How long a pod must have been ready to count as available.",
        "ordinals": "Where its pods begin to count.",
    },
    "V1RollingUpdateStatefulSetStrategy": {
        "partition": "Pods with a lower number keep the template that they have.",
        "maxUnavailable": "How many pods, or percent of them, may be away at once.",
    },
    "V1PodDisruptionBudgetSpec": {
        "selector": "The pods that it is about.",
        "minAvailable": "How many of them, or percent, must stay ready.",
        "maxUnavailable": "How many of them, or percent, may be away.",
        "unhealthyPodEvictionPolicy": "Whether pods that are not ready may always be evicted.",
    },
    "V1NodeSpec": {
        "unschedulable": "No new pods are placed on it; `kubectl cordon` sets it.",
        "taints": "What keeps pods away that do not tolerate it.",
    },
    "V1NodeStatus": {
        "allocatable": "What pods may use of it. A value that is missing is no limit to volsched.",
        "capacity": "What it has.",
        "conditions": "How it is.",
    },
    "V1CSIDriverSpec": {
        "storageCapacity": "Whether the driver publishes how much is left, which is asked before a pod is placed.",
        "attachRequired": "Whether its volumes are attached before they are mounted.",
    },
    "V1CSINodeDriver": {
        "allocatable": "How many volumes of the driver the node can hold, under `count`.",
        "topologyKeys": "Labels of the node that say where it is to the driver.",
    },
    "V1PriorityClass": {
        **_OBJECT,
        "value": "The priority. It cannot be changed.",
        "globalDefault": "Whether it is that of pods which name none.",
        "preemptionPolicy": "Whether its pods may take the place of others.",
        "description": "For whom it is.",
    },
}


def description_of(type_: str, field: str | None = None) -> str | None:
    """Of a type, or of one of its fields; None where there is no description."""
    if field is None:
        return TYPES.get(type_)
    return FIELDS.get(type_, {}).get(field) or (_OBJECT.get(field) if type_ in TYPES else None)
