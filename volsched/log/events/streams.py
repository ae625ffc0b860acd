"""Names of streams: what an event is about. `volume/NAME`, `claim/NAMESPACE/NAME`, `binding/ID`, …"""

from volsched.kube.kinds import KINDS

NOUN_OF_KIND = {
    "Node": "node",
    "Namespace": "namespace",
    "StorageClass": "class",
    "PersistentVolume": "volume",
    "PersistentVolumeClaim": "claim",
    "Pod": "pod",
    "CSIDriver": "driver",
    "CSINode": "csinode",
    "CSIStorageCapacity": "capacity",
    "VolumeAttachment": "attachment",
    "Event": "notice",
    "StatefulSet": "statefulset",
    "Service": "service",
    "ControllerRevision": "revision",
    "PodDisruptionBudget": "disruptionbudget",
    "PriorityClass": "priorityclass",
}
KIND_OF_NOUN = {noun: KINDS[kind] for kind, noun in NOUN_OF_KIND.items()}
BINDING = "binding"
ATTEMPT = "attempt"
RETENTION = "retention"
"""What was done with old events; no state follows from it."""
TOKEN = "token"
LEASE = "lease"
CLOCK = "clock"
LOG_CLOCK = f"{CLOCK}/log"
"""The one stream of corrections of the log's time."""
AUDIT = "audit"
AUDIT_READS = f"{AUDIT}/reads"
"""The one stream of who has read the history over HTTP, and what they asked."""


def stream_of(kind: str, key: str) -> str:
    """The stream of the object with this kind and key (`name` or `namespace/name`)."""
    return f"{NOUN_OF_KIND[kind]}/{key}"


def noun_and_key(stream: str) -> tuple[str, str]:
    noun, _, key = stream.partition("/")
    return noun, key
