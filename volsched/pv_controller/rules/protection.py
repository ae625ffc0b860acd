"""Finalizers that keep claims and volumes in use from going away, and what to sync when one is gone."""

from collections.abc import Iterable
from enum import Enum

from volsched.kube.meta import PV_PROTECTION, PVC_PROTECTION, Metadata
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Pod
from volsched.pv_controller.rules.claim_users import protects
from volsched.pv_controller.rules.manifest_edits import with_finalizers
from volsched.pv_controller.rules.phases import BOUND
from volsched.pv_controller.rules.requests import CLAIM, VOLUME, Enqueue, LivePods, Steps
from volsched.pv_controller.rules.view import Held, View, held_pod
from volsched.pv_controller.rules.writes import save_claim, save_volume


class Protection(Enum):
    """What to do with the finalizer."""

    ADD = "add"
    KEEP = "keep"
    REMOVE = "remove"


def after_claim_deleted(claim: Claim) -> Enqueue | None:
    """Its volume is released at once, not at the next resync."""
    return Enqueue(VOLUME, claim.volume_name) if claim.volume_name else None


def after_volume_deleted(volume: Volume) -> Enqueue | None:
    """Its claim is told at once that its data is lost."""
    ref = volume.claim_ref
    return None if ref is None else Enqueue(CLAIM, f"{ref.namespace}/{ref.name}")


def claim_protection(claim: Claim, pods: Iterable[Held[Pod]]) -> Protection:
    return _protection(claim.meta, PVC_PROTECTION, in_use=any(protects(pod, claim) for pod in pods))


def volume_protection(volume: Volume) -> Protection:
    return _protection(volume.meta, PV_PROTECTION, in_use=volume.phase == BOUND)


def protect_claim(view: View, claim: Held[Claim]) -> Steps[None]:
    wanted = claim_protection(claim.value, view.pods_using(claim.meta.key))
    if wanted is Protection.REMOVE:
        # A pod that our cache does not know yet may be starting; only the store can tell.
        manifests = yield LivePods(claim.meta.namespace)
        wanted = claim_protection(claim.value, [held_pod(manifest) for manifest in manifests])
    else:
        pass
    finalizers = _changed(claim.meta.finalizers, PVC_PROTECTION, wanted)
    if finalizers != claim.meta.finalizers:
        yield from save_claim(with_finalizers(claim.manifest, finalizers))
    else:
        # Protected, or gone from our care.
        pass


def protect_volume(volume: Held[Volume]) -> Steps[None]:
    finalizers = _changed(volume.meta.finalizers, PV_PROTECTION, volume_protection(volume.value))
    if finalizers != volume.meta.finalizers:
        yield from save_volume(with_finalizers(volume.manifest, finalizers))
    else:
        pass


def _protection(meta: Metadata, finalizer: str, *, in_use: bool) -> Protection:
    if not meta.being_deleted:
        return Protection.KEEP if finalizer in meta.finalizers else Protection.ADD
    if finalizer not in meta.finalizers:
        # It may not be added any more.
        return Protection.KEEP
    return Protection.KEEP if in_use else Protection.REMOVE


def _changed(finalizers: tuple[str, ...], finalizer: str, wanted: Protection) -> tuple[str, ...]:
    if wanted is Protection.ADD:
        changed = (*finalizers, finalizer)
    elif wanted is Protection.REMOVE:
        changed = tuple(name for name in finalizers if name != finalizer)
    else:
        changed = finalizers
    return changed
