"""One look at a claim: find it a volume, have one made, or see whether the one it has is still there.

Every branch may be entered again any number of times; a branch that does nothing says why. No branch knows what
happened before: what is stored now decides.
"""

from volsched.kube.claim_reference import is_bound_to
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, ROLLBACK
from volsched.kube.storage import Claim, Volume
from volsched.pv_controller.rules.bind_writes import bind
from volsched.pv_controller.rules.claim_users import waiting_pods
from volsched.pv_controller.rules.manifest_edits import with_spec
from volsched.pv_controller.rules.modes import ControllerRules
from volsched.pv_controller.rules.normalization import keep_claim_up
from volsched.pv_controller.rules.provision import provision
from volsched.pv_controller.rules.reasons import (
    CLAIM_LOST,
    CLAIM_MISBOUND,
    FAILED_BINDING,
    MISBOUND,
    NO_CONSUMER_YET,
    NO_VOLUME_AND_NO_CLASS,
    NORMAL,
    REFERENCE_LOST,
    VOLUME_LOST,
    VOLUME_MISMATCH,
    WAIT_FOR_FIRST_CONSUMER,
    WAIT_FOR_POD_SCHEDULED,
    WARNING,
    unfit_volume,
    volume_taken,
    waiting_for_pods,
)
from volsched.pv_controller.rules.requests import Steps, SyncError
from volsched.pv_controller.rules.rollback import roll_back
from volsched.pv_controller.rules.view import Held, View
from volsched.pv_controller.rules.volume_choice import best_match, default_for, is_delayed, misfit
from volsched.pv_controller.rules.writes import lose_claim, reset_claim, save_claim, tell_claim
from volsched.scheduling.rules.pod_claims import selected_node


def sync_claim(view: View, claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    claim = yield from keep_claim_up(claim, rules=rules)
    left: Held[Claim] | None
    if rules.rollback and ROLLBACK in claim.meta.annotations:
        left = yield from roll_back(view, claim, rules=rules)
    else:
        left = claim
    if left is None:
        # A rollback is under way, or has just ended: nothing binds or provisions the claim in this sync.
        pass
    elif BIND_COMPLETED in left.meta.annotations:
        yield from _check_binding(view, left, rules=rules)
    elif left.value.volume_name == "":
        yield from _find_volume(view, left, rules=rules)
    else:
        yield from _take_named_volume(view, left, rules=rules)


def _find_volume(view: View, claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    """The claim does not care which volume it gets."""
    delayed = is_delayed(view, claim.value)
    volume = best_match(view, claim.value, delayed=delayed)
    default = default_for(view, claim.value)
    if volume is not None:
        yield from bind(volume, claim, rules=rules)
    elif default is not None:
        # The changed claim comes back at once, now as one of that class.
        yield from save_claim(with_spec(claim.manifest, storageClassName=default.name))
    elif delayed and selected_node(claim.value, alpha=rules.alpha_annotations) is None:
        yield from _tell_who_is_awaited(view, claim)
        yield from reset_claim(claim, rules=rules)
    elif claim.value.class_name != "":
        # Whatever the phase says stays until a volume is there.
        yield from provision(view, claim, rules=rules)
    else:
        yield from tell_claim(claim, NORMAL, FAILED_BINDING, NO_VOLUME_AND_NO_CLASS)
        yield from reset_claim(claim, rules=rules)


def _tell_who_is_awaited(view: View, claim: Held[Claim]) -> Steps[None]:
    waiting = waiting_pods(view.pods_using(claim.meta.key))
    if waiting:
        yield from tell_claim(claim, NORMAL, WAIT_FOR_POD_SCHEDULED, waiting_for_pods(waiting))
    else:
        yield from tell_claim(claim, NORMAL, WAIT_FOR_FIRST_CONSUMER, NO_CONSUMER_YET)


def _take_named_volume(view: View, claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    """The user named the volume, or a binding was half done. Delayed binding is not asked: the choice is made."""
    volume = view.volume(claim.value.volume_name)
    if volume is None:
        # It may still be created.
        yield from reset_claim(claim, rules=rules)
    elif volume.value.claim_ref is None:
        yield from _take_free_volume(volume, claim, rules=rules)
    elif is_bound_to(volume.value, claim.value):
        # Both sides name each other, so both meant it: size and class are not asked.
        yield from bind(volume, claim, rules=rules)
    elif BOUND_BY_CONTROLLER not in claim.meta.annotations:
        # The other claim may be deleted one day.
        yield from tell_claim(claim, WARNING, FAILED_BINDING, volume_taken(volume.value.name))
        yield from reset_claim(claim, rules=rules)
    else:
        # We named the volume ourselves, so somebody took bind-completed away. The phase is left to be looked at.
        yield from tell_claim(claim, WARNING, FAILED_BINDING, volume_taken(volume.value.name))
        raise SyncError(
            f'invalid binding of claim "{claim.meta.key}" to volume "{volume.value.name}": '
            f'volume already claimed by "{_owner(volume.value)}"'
        )


def _take_free_volume(volume: Held[Volume], claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    why = misfit(volume.value, claim.value, rules=rules)
    if why is None:
        yield from bind(volume, claim, rules=rules)
    else:
        yield from tell_claim(claim, WARNING, VOLUME_MISMATCH, unfit_volume(volume.value.name, why))
        yield from reset_claim(claim, rules=rules)


def _check_binding(view: View, claim: Held[Claim], *, rules: ControllerRules) -> Steps[None]:
    """The claim was bound once. Lost is not final: the same questions are asked again at every sync."""
    volume = view.volume(claim.value.volume_name) if claim.value.volume_name else None
    ref = volume.value.claim_ref if volume is not None else None
    if claim.value.volume_name == "":
        yield from lose_claim(claim, CLAIM_LOST, REFERENCE_LOST, rules=rules)
    elif volume is None:
        yield from lose_claim(claim, CLAIM_LOST, VOLUME_LOST, rules=rules)
    elif ref is None:
        # The reservation was taken off, or our cache is behind our own write. Both are repaired in the same way.
        yield from bind(volume, claim, rules=rules)
    elif ref.uid == claim.meta.uid:
        # All is well, or a binding is to be finished. The name in the reference is not asked; bind puts it right.
        yield from bind(volume, claim, rules=rules)
    else:
        # Somebody else's, or reserved by name only: that is not the reservation that this claim once made.
        yield from lose_claim(claim, CLAIM_MISBOUND, MISBOUND, rules=rules)


def _owner(volume: Volume) -> str:
    ref = volume.claim_ref
    return f"{ref.namespace}/{ref.name}" if ref is not None else ""
