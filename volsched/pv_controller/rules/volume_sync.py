"""One look at a volume: free, reserved, bound, or left by its claim and to be reclaimed.

A volume never ties itself to a claim; where a binding is half done the claim is synced. And a volume is never
released because a cache does not know the claim.
"""

from volsched.kube.meta import PROVISIONED_BY, ObjectReference
from volsched.kube.storage import AVAILABLE, Claim, Volume
from volsched.pv_controller.rules.bind_writes import unbind
from volsched.pv_controller.rules.modes import ControllerRules
from volsched.pv_controller.rules.normalization import DELETE, keep_volume_up
from volsched.pv_controller.rules.phases import BOUND, GIVEN_UP, RELEASED
from volsched.pv_controller.rules.reasons import (
    VOLUME_MISMATCH,
    WARNING,
    claim_of_other_mode,
    volume_of_other_mode,
)
from volsched.pv_controller.rules.reclaim import reclaim
from volsched.pv_controller.rules.requests import CLAIM, Enqueue, LiveGet, Steps
from volsched.pv_controller.rules.view import Held, View, held_claim
from volsched.pv_controller.rules.writes import move_volume, tell_claim, tell_volume


def sync_volume(view: View, volume: Held[Volume], *, rules: ControllerRules) -> Steps[None]:
    volume = yield from keep_volume_up(volume, rules=rules)
    ref = volume.value.claim_ref
    if ref is None:
        yield from move_volume(volume, AVAILABLE)
    elif ref.uid == "":
        # Reserved by a user, for a claim that may not exist yet; syncing the claim will fill in the uid.
        yield from move_volume(volume, AVAILABLE)
    else:
        claim = yield from _claim_of(view, volume.value, ref, rules=rules)
        if claim is None:
            yield from _release(view, volume, rules=rules)
        else:
            yield from _sync_with(view, volume, claim, rules=rules)


def _sync_with(view: View, volume: Held[Volume], claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    """The volume's claim lives. Does it point back?"""
    if claim.value.volume_name == "" and claim.value.mode != volume.value.mode:
        # The claim's search will never take this volume, so both sides are told instead of being synced for ever.
        yield from tell_volume(volume, WARNING, VOLUME_MISMATCH, claim_of_other_mode(claim.value.name))
        yield from tell_claim(claim, WARNING, VOLUME_MISMATCH, volume_of_other_mode(volume.value.name))
    elif claim.value.volume_name == "":
        # The binding is completed, or in a rollback undone, where the claim is synced. The phase says nothing new.
        yield Enqueue(CLAIM, claim.meta.key)
    elif claim.value.volume_name == volume.value.name:
        yield from move_volume(volume, BOUND)
    elif PROVISIONED_BY in volume.meta.annotations and volume.value.reclaim_policy == DELETE:
        # Made for a claim that found another one meanwhile: nobody ever used it.
        yield from _release(view, volume, rules=rules)
    else:
        yield from unbind(volume)


def _release(view: View, volume: Held[Volume], *, rules: ControllerRules) -> Steps[None]:
    if volume.value.phase in GIVEN_UP:
        # Released already; or Failed, which stays to be seen while reclaiming is tried again.
        released = volume
    else:
        released = yield from move_volume(volume, RELEASED)
    yield from reclaim(view, released, rules=rules)


def _claim_of(
    view: View, volume: Volume, ref: ObjectReference, *, rules: ControllerRules
) -> Steps[Held[Claim] | None]:
    """The claim that the volume belongs to, None if that one is gone; a namesake is not it."""
    key = f"{ref.namespace}/{ref.name}"
    claim = view.claim(key)
    if claim is None and (volume.phase not in GIVEN_UP or rules.safe_release):
        # A scheduler or a provisioner may have heard of the claim before our cache did.
        claim = yield from _live_claim(key)
    else:
        # The reference trusts its cache about volumes that it has released before.
        pass
    if claim is not None and claim.meta.uid != ref.uid:
        # Made anew under its name; or the cache still has the old one, and the volume is for the new.
        claim = yield from _live_claim(key)
    else:
        pass
    return claim if claim is not None and claim.meta.uid == ref.uid else None


def _live_claim(key: str) -> Steps[Held[Claim] | None]:
    manifest = yield LiveGet(CLAIM, key)
    return None if manifest is None else held_claim(manifest)
