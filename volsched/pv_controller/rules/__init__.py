"""The PV controller as pure tables: what to do about a claim or a volume, as requests to whoever drives it.

It imports `core` and `model`; a driver needs nothing but what is named here.
"""

from volsched.pv_controller.rules.caches import KINDS_SEEN, Caches
from volsched.pv_controller.rules.claim_sync import sync_claim
from volsched.pv_controller.rules.modes import PARITY, VOLSCHED, ControllerRules, VolumePlugin
from volsched.pv_controller.rules.protection import (
    Protection,
    after_claim_deleted,
    after_volume_deleted,
    claim_protection,
    protect_claim,
    protect_volume,
    volume_protection,
)
from volsched.pv_controller.rules.requests import (
    CLAIM,
    VOLUME,
    Create,
    Delete,
    DeleteAsset,
    Enqueue,
    LiveGet,
    LivePods,
    Notice,
    Pause,
    PluginError,
    Provision,
    Recycle,
    Request,
    StartOperation,
    Steps,
    SyncError,
    UnfinishedError,
    Update,
    VolumeInUseError,
    drive,
)
from volsched.pv_controller.rules.rollback import rollback_refusal
from volsched.pv_controller.rules.view import Held, View, held_claim, held_class, held_pod, held_volume, mode_group
from volsched.pv_controller.rules.volume_sync import sync_volume

__all__ = [
    "CLAIM",
    "KINDS_SEEN",
    "PARITY",
    "VOLSCHED",
    "VOLUME",
    "Caches",
    "ControllerRules",
    "Create",
    "Delete",
    "DeleteAsset",
    "Enqueue",
    "Held",
    "LiveGet",
    "LivePods",
    "Notice",
    "Pause",
    "PluginError",
    "Protection",
    "Provision",
    "Recycle",
    "Request",
    "StartOperation",
    "Steps",
    "SyncError",
    "UnfinishedError",
    "Update",
    "View",
    "VolumeInUseError",
    "VolumePlugin",
    "after_claim_deleted",
    "after_volume_deleted",
    "claim_protection",
    "drive",
    "held_claim",
    "held_class",
    "held_pod",
    "held_volume",
    "mode_group",
    "protect_claim",
    "protect_volume",
    "rollback_refusal",
    "sync_claim",
    "sync_volume",
    "volume_protection",
]
