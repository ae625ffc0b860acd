"""Event data at rest: phrases that almost every observed object has are stored as one character each.

A cluster reports the same few forms of claims, volumes, attachments and pods all day, and most of their text is
names of fields. Values stay as they are: a search of the file finds what is in it. A packed text is a JSON string:
reports that look into the column with the database's own JSON functions find nothing there, and do not fail.

Packing is a matter of the column alone: hashes, exports, archives and backups are of the whole text.
"""

from functools import cache

PACKED = '"'
"""A packed text begins so; data that is not packed is a JSON object."""
_FIRST = 0xA1
"""The character of the first phrase. All are beyond ASCII, and a text that is not ASCII is not packed."""
# A landed phrase keeps its place for good, because its place is its character: add new ones at the end.
PHRASES = (
    '"', "\\", '":"', '","', ',"', '":{"', '"},"', '"}},"', '"}}},"', '}},"', '"}}', '"}}}', '"}}}}', '"}]}}}',
    '"}]},"', '}}}', '":["', '"],"', '"]}', '"]},"', '":null,"', '":null},"', '":null', '{"', '[{"',
    '}]},"status":{"', '"}},{"', '"},{"', '{"patch":{"', '{"patch":{"metadata":{"',
    '{"patch":{"metadata":{"resourceVersion":"', '{"patch":{"status":{"',
    '{"patch":{"metadata":{"annotations":{"', '{"patch":{"metadata":{"annotations":null,"',
    '{"patch":{"spec":{"', '{"patch":{"metadata":{"deletionGracePeriodSeconds":',
    '{"patch":{"metadata":{"finalizers":', '{"patch":{"metadata":{"labels":{"', '{"patch":{"apiVersion":"',
    '{"patch":{"apiVersion":"v1","kind":"Pod","metadata":{"',
    '{"patch":{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":"',
    '{"patch":{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"',
    '{"patch":{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"creationTimestamp":"',
    '{"patch":{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"',
    '{"patch":{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"creationTimestamp":"',
    '{"patch":{"apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"creationTimestamp":"',
    '{"patch":{"apiVersion":"v1","kind":"Node","metadata":{"', '"},"creationTimestamp":"',
    'deletionTimestamp":"', '","finalizers":["', '"],"name":"', '"],"labels":{"', '","labels":{"', '","name":"',
    '"},"name":"', '","namespace":"', '","resourceVersion":"', '"},"resourceVersion":"', ',"resourceVersion":"',
    '","uid":"', '"}],"resourceVersion":"', '"},"spec":{"', '"},"status":{"', '"}},"status":{"',
    '"]},"status":{"', 'ownerReferences":[{"apiVersion":"',
    'apps/v1","controller":true,"kind":"StatefulSet","name":"',
    'apps/v1","controller":true,"kind":"ReplicaSet","name":"',
    'batch/v1","controller":true,"kind":"Job","name":"', 'v1","kind":"Pod","name":"',
    '","controller":true,"kind":"', 'annotations":{"',
    'pv.kubernetes.io/bind-completed":"yes","pv.kubernetes.io/bound-by-controller":"yes"',
    'pv.kubernetes.io/bind-completed":"yes"', 'pv.kubernetes.io/bound-by-controller":"yes"',
    'pv.kubernetes.io/provisioned-by":"', 'pv.kubernetes.io/migrated-to":"', 'volsched.io/binding":"',
    'volume.kubernetes.io/selected-node":"', 'volume.kubernetes.io/storage-provisioner":"',
    'volume.beta.kubernetes.io/storage-provisioner":"', 'kubernetes.io/pv-protection',
    'kubernetes.io/pvc-protection', 'external-provisioner.volume.kubernetes.io/finalizer', 'external-attacher/',
    'accessModes":["ReadWriteOnce"],"', 'accessModes":["ReadWriteOncePod"],"',
    'accessModes":["ReadWriteMany"],"', 'accessModes":null,"', 'capacity":{"storage":"', 'capacity":null,"',
    'resources":{"requests":{"storage":"',
    'claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"', 'claimRef":{"name":"',
    'claimRef":null', 'storageClassName":"', 'volumeName":"', 'volumeName":null', 'volumeMode":"Filesystem"',
    'volumeMode":"Block"', 'volumeMode":"Filesystem"},"status":{"', 'csi":{"driver":"', 'fsType":"ext4","',
    'fsType":"', 'volumeHandle":"', 'local":{"path":"', 'hostPath":{"path":"',
    'nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"',
    'kubernetes.io/hostname","operator":"In","values":["',
    'topology.kubernetes.io/zone","operator":"In","values":["', '","operator":"In","values":["', '"]}]}]}},"',
    'persistentVolumeReclaimPolicy":"Delete","', 'persistentVolumeReclaimPolicy":"Retain","',
    'lastPhaseTransitionTime":"', 'conditions":null', 'conditions":[{"', 'lastTransitionTime":"',
    '","message":"', 'reason":"', 'status":"True","type":"', 'status":"False","type":"', 'Unused"}]',
    'Unused"}]}}}', 'PodScheduled"}]', 'PodScheduled"}]}}}', 'Unschedulable","', 'phase":"', 'phase":"Pending"',
    'phase":"Pending"}}}', 'phase":"Bound"', 'phase":"Bound"}}}', 'phase":"Available"}}}',
    'phase":"Released"}}}', 'phase":"Running"}}}', 'phase":"Succeeded"}}}', 'phase":"Failed"}}}', 'nodeName":"',
    'nominatedNodeName":"', 'nominatedNodeName":null', 'containers":[{"name":"', 'initContainers":[{"name":"',
    'resources":{"limits":{"cpu":"', 'resources":{"limits":{"memory":"', 'resources":{"requests":{"cpu":"',
    'resources":{"requests":{"memory":"', 'resources":{}', 'requests":{"cpu":"', 'requests":{"memory":"',
    '","memory":"', '"}}}],"',
    'preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"Always","schedulerName":"',
    'preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"', 'restartPolicy":"',
    'schedulerName":"', 'default-scheduler","terminationGracePeriodSeconds":30,"',
    'terminationGracePeriodSeconds":', 'tolerations":[{"effect":"',
    'tolerations":[{"effect":"NoExecute",'
    '"key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300},'
    '{"effect":"NoExecute","key":"node.kubernetes.io/unreachable",'
    '"operator":"Exists","tolerationSeconds":300}],"',
    'volumes":[{"name":"', 'persistentVolumeClaim":{"claimName":"', '"}},{"name":"', 'projected":{}',
    'emptyDir":{}', 'configMap":{}', 'secret":{}', 'schedulingGates":[{"name":"',
    'statefulset.kubernetes.io/pod-name":"', 'apps.kubernetes.io/pod-index":"', 'controller-revision-hash":"',
    'pod-template-hash":"', 'app.kubernetes.io/name":"', 'attacher":"', 'source":{"persistentVolumeName":"',
    'attached":true', 'attached":true}}}', 'attached":false}}}', 'attached":"',
)  # fmt: skip


def packed(text: str) -> str:
    """The text as it is stored. Only patches of objects are packed: there are few of the rest."""
    if not text.startswith('{"patch":') or not text.isascii():
        return text
    for phrase, character in _longest_first():
        text = text.replace(phrase, character)
    return f'"{text}"'


def unpacked(text: str) -> str:
    """The text as it was written, from a stored one of either kind."""
    return text[1:-1].translate(_phrase_of()) if text.startswith(PACKED) else text


@cache
def _longest_first() -> tuple[tuple[str, str], ...]:
    places = sorted(enumerate(PHRASES), key=lambda it: -len(it[1]))
    return tuple((phrase, chr(_FIRST + place)) for place, phrase in places)


@cache
def _phrase_of() -> dict[int, str]:
    return {_FIRST + place: phrase for place, phrase in enumerate(PHRASES)}
