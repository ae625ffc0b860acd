"""Compression of stored event data: phrases that almost every observed object has become one character each.

A cluster reports the same few forms of claims, volumes, attachments and pods all day, and most of their text is
field names. Values stay as they are, so a text search of the file finds them. A packed text is a JSON string, so
reports that use the database's own JSON functions on the column find nothing there and do not fail.

Only the column is packed: hashes, exports, archives and backups are of the unpacked text.
"""

from functools import cache

PACKED = '"'
"""The first character of a packed text; data that is not packed is a JSON object."""
_FIRST = 0xA1
"""The character of the first phrase. All are beyond ASCII, and a text that is not ASCII is not packed."""
# A released phrase keeps its place for good, because its place defines its character: append new ones.
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
    """The text as it is stored. Only patches of objects are packed: other events are few."""
    if not text.startswith('{"patch":') or not text.isascii():
        return text
    for phrase, character in _longest_first():
        text = text.replace(phrase, character)
    return f'"{text}"'


def unpacked(text: str) -> str:
    """The original text of a stored one, packed or not."""
    return text[1:-1].translate(_phrase_of()) if text.startswith(PACKED) else text


@cache
def _longest_first() -> tuple[tuple[str, str], ...]:
    places = sorted(enumerate(PHRASES), key=lambda it: -len(it[1]))
    return tuple((phrase, chr(_FIRST + place)) for place, phrase in places)


@cache
def _phrase_of() -> dict[int, str]:
    return {_FIRST + place: phrase for place, phrase in enumerate(PHRASES)}
