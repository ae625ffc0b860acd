"""The events that users see: reasons exactly as the reference spells them, messages, and phases."""

from collections.abc import Collection, Sequence

NORMAL = "Normal"
WARNING = "Warning"

FAILED_BINDING = "FailedBinding"
VOLUME_MISMATCH = "VolumeMismatch"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
WAIT_FOR_POD_SCHEDULED = "WaitForPodScheduled"
CLAIM_LOST = "ClaimLost"
CLAIM_MISBOUND = "ClaimMisbound"
EXTERNAL_PROVISIONING = "ExternalProvisioning"
PROVISIONING_FAILED = "ProvisioningFailed"
PROVISIONING_SUCCEEDED = "ProvisioningSucceeded"
PROVISIONING_CLEANED_UP = "ProvisioningCleanedUp"
PROVISIONING_CLEANUP_FAILED = "ProvisioningCleanupFailed"
VOLUME_DELETE = "VolumeDelete"
VOLUME_FAILED_DELETE = "VolumeFailedDelete"
VOLUME_RECYCLED = "VolumeRecycled"
VOLUME_FAILED_RECYCLE = "VolumeFailedRecycle"
VOLUME_UNKNOWN_RECLAIM_POLICY = "VolumeUnknownReclaimPolicy"
ROLLBACK_COMPLETED = "RollbackCompleted"
ROLLBACK_REJECTED = "RollbackRejected"
ROLLBACK_STALLED = "RollbackStalled"

NO_VOLUME_AND_NO_CLASS = "no persistent volumes available for this claim and no storage class is set"
NO_CONSUMER_YET = "waiting for first consumer to be created before binding"
REFERENCE_LOST = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
VOLUME_LOST = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
MISBOUND = "Two claims are bound to the same volume, this one is bound incorrectly"
RECYCLED = "Volume recycled"
NO_RECYCLER = "No recycler plugin found for the volume!"
UNKNOWN_POLICY = "Volume has unrecognized PersistentVolumeReclaimPolicy"
ROLLED_BACK = "The binding is undone; the claim may be bound elsewhere now"

# Reasons why the binding of a claim is not undone.
NOT_BOUND = "the claim is not completely bound"
NOT_DELAYED = "its class does not wait for the first consumer, so it would be bound to the same volume again"
MAY_HOLD_DATA = "a pod may have written to the volume"
NAMED_BY_USER = "a user asked for this volume by name"
BEING_DELETED = "the claim is being deleted"
UNDER_WAY = "a rollback is under way already"
VOLUME_GONE = "its volume does not exist"
RESERVED_BY_USER = "a user reserved the volume for this claim, so it would come back to it"
KEPT_AFTER_RELEASE = (
    "its volume was provisioned for it and is not deleted when released, so no new one could be provisioned"
)


def waiting_for_pods(pods: Sequence[str]) -> str:
    return f"waiting for pod{'s' if len(pods) > 1 else ''} {','.join(pods)} to be scheduled"


def volume_taken(volume: str) -> str:
    return f'volume "{volume}" already bound to a different claim.'


def unfit_volume(volume: str, why: str) -> str:
    return f'Cannot bind to requested volume "{volume}": {why}'


def claim_of_other_mode(claim: str) -> str:
    return (
        f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{claim}" '
        "due to incompatible volumeMode."
    )


def volume_of_other_mode(volume: str) -> str:
    return (
        f'Cannot bind PersistentVolume "{volume}" to requested PersistentVolumeClaim '
        "due to incompatible volumeMode."
    )


def used_by_pods(pods: Sequence[str]) -> str:
    return f"Volume is used by pods: {','.join(pods)}"


def no_plugin_named(provisioner: str) -> str:
    return f"no volume plugin matched name: {provisioner}"


def waiting_for_provisioner(name: str) -> str:
    return (
        f"Waiting for a volume to be created either by the external provisioner '{name}' or manually by the "
        "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
        "correctly registered."
    )


def no_data_source(plugin: str) -> str:
    return f'plugin "{plugin}" is not a CSI plugin. Only CSI plugin can provision a claim with a datasource'


def no_mount_options(class_name: str, options: Sequence[str]) -> str:
    return (
        f'Mount options are not supported by the provisioner but StorageClass "{class_name}" '
        f"has mount options [{' '.join(options)}]"
    )


def node_not_found(why: str) -> str:
    return f"Failed to get target node: {why}"


def provisioning_failed(class_name: str, why: str) -> str:
    return f'Failed to provision volume with StorageClass "{class_name}": {why}'


def volume_too_small(size: str, wanted: str) -> str:
    return f"the plugin created a volume of {size} where {wanted} were asked for"


def volume_without_attributes(wanted: str, actual: str) -> str:
    got = f'"{actual}"' if actual else "none"
    return (
        f"the plugin created a volume with volumeAttributesClassName {got} where volumeAttributesClassName "
        f'"{wanted}" was asked for; use a class of a CSI driver, or a claim without volumeAttributesClassName'
    )


def provisioned(volume: str, plugin: str) -> str:
    return f"Successfully provisioned volume {volume} using {plugin}"


def claim_not_saved(why: str) -> str:
    return f"Error saving claim: {why}"


def volume_not_saved(claim: str, why: str) -> str:
    return f"Error creating provisioned PV object for claim {claim}: {why}. Deleting the volume."


def saved_later(why: str) -> str:
    """The message about a provisioner that keeps the storage and retries."""
    return f"the volume exists, but its PersistentVolume could not be saved and is tried again: {why}"


def cleaned_up(claim: str, volume: str) -> str:
    return f"The storage provisioned for claim {claim} as {volume} is deleted again, nothing is left behind."


def cleanup_failed(claim: str, why: str) -> str:
    return f"Error cleaning provisioned volume for claim {claim}: {why}. Please delete manually."


def in_use(pods: Collection[str]) -> str:
    return f"pods that have a node use the claim: {', '.join(sorted(pods))}"


def rollback_refused(why: str) -> str:
    return f"The binding is not undone: {why}"


def rollback_waits_for(volumes: Sequence[str]) -> str:
    return f"The binding is undone, but its volumes are not gone yet: {', '.join(volumes)}"


# Reasons why the volume that a claim names does not fit it.
TOO_SMALL = "requested PV is too small"
OTHER_CLASS = "storageClassName does not match"
OTHER_ATTRIBUTES = "volumeAttributesClassName does not match"
OTHER_MODE = "incompatible volumeMode"
OTHER_ACCESS_MODES = "incompatible accessMode"


def volume_being_deleted(volume: str) -> str:
    return f'the volume is marked for deletion "{volume}"'


# Reasons why a released volume is not returned; they follow its name.
RETURN_BEING_DELETED = "is being deleted; create a new one when it is gone"
RETURN_BOUND = "is Bound: its claim has it; delete the claim first, if its data is not needed"


def return_in_phase(phase: str | None) -> str:
    return f"is {phase}; only a volume that is Released or Failed can be returned"


def return_of_living_claim(namespace: str | None, name: str | None) -> str:
    return (
        f'belongs to claim "{namespace}/{name}", which still exists with the uid that the volume names; '
        "delete the claim first, if its data is not needed"
    )


def return_not_retained(policy: str | None) -> str:
    return (
        f"has the reclaim policy {policy}, so that its storage may be deleted at any moment; "
        "set persistentVolumeReclaimPolicy to Retain first"
    )


def return_in_binding(binding: str, pod: str) -> str:
    return (
        f"is in the open binding {binding} of pod {pod}; "
        "wait until that has ended (volsched recover --dry-run shows it)"
    )


def return_attached(node: str | None, attachment: str | None) -> str:
    return (
        f'is still attached to node "{node}"; '
        f'delete the pods that use it there, or VolumeAttachment "{attachment}"'
    )


# Phases of volumes and claims that the model does not name.

PENDING = "Pending"
BOUND = "Bound"
RELEASED = "Released"
FAILED = "Failed"
GIVEN_UP = (RELEASED, FAILED)
"""Phases after the claim is deleted; such a volume is not released again, and Failed stays visible."""
