"""Sync of a claim: check its volume, find one, or have one provisioned."""

from volsched.kube.manifest import is_bound_to
from volsched.kube.meta import BIND_COMPLETED, BOUND_BY_CONTROLLER, ROLLBACK
from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass, Volume
from volsched.pv_controller.rules.bind_writes import (
    bind,
    lose_claim,
    notify_claim,
    reset_claim,
    save_claim,
    with_spec,
)
from volsched.pv_controller.rules.protection import keep_claim_up
from volsched.pv_controller.rules.provision import provision
from volsched.pv_controller.rules.reasons import (
    CLAIM_LOST,
    CLAIM_MISBOUND,
    FAILED_BINDING,
    MISBOUND,
    NO_CONSUMER_YET,
    NO_VOLUME_AND_NO_CLASS,
    NORMAL,
    OTHER_ACCESS_MODES,
    OTHER_ATTRIBUTES,
    OTHER_CLASS,
    OTHER_MODE,
    REFERENCE_LOST,
    TOO_SMALL,
    VOLUME_LOST,
    VOLUME_MISMATCH,
    WAIT_FOR_POD_SCHEDULED,
    WARNING,
    unfit_volume,
    volume_being_deleted,
    volume_taken,
    waiting_for_pods,
)
from volsched.pv_controller.rules.reasons import WAIT_FOR_FIRST_CONSUMER as REASON_WAIT_FOR_FIRST_CONSUMER
from volsched.pv_controller.rules.requests import ControllerRules, Steps, SyncError
from volsched.pv_controller.rules.rollback import roll_back
from volsched.pv_controller.rules.view import Modes, ParsedObject, View, mode_group, waiting_pods
from volsched.scheduling.rules.matching import Search, failed_rules, find_matching_volume
from volsched.scheduling.rules.pod_claims import default_class, selected_node
from volsched.scheduling.rules.reasons import mode_not_set
from volsched.scheduling.rules.status import AttemptError

# The volume that the controller gives to a claim, and whether a volume that the claim names fits.


def is_delayed(view: View, claim: Claim) -> bool:
    """Whether the claim's class leaves the choice of a volume to the scheduler; False if the class is deleted."""
    storage_class = view.storage_class(claim.class_name) if claim.class_name else None
    if storage_class is None:
        return False
    mode = storage_class.value.volume_binding_mode
    if mode is None:
        raise SyncError(mode_not_set(storage_class.value.name))
    return mode == WAIT_FOR_FIRST_CONSUMER


def default_for(view: View, claim: Claim) -> StorageClass | None:
    """The class for a claim that names none; an explicitly empty name means no class."""
    return None if claim.has_class else default_class(storage_class.value for storage_class in view.classes())


def best_match(view: View, claim: Claim, *, delayed: bool) -> ParsedObject[Volume] | None:
    """The best volume: the first group of access modes with a match decides, fewest modes first.

    Only volumes reserved for the claim and free ones of its class can match, in a delayed class only the former:
    no search scans all volumes.
    """
    search = Search(claim=claim, node=None, delay_binding=delayed)
    reserved = sorted(view.volumes_reserved_for(claim.key), key=_name)
    wanted = frozenset(claim.access_modes)
    for modes in sorted((group for group in view.mode_groups() if wanted <= frozenset(group)), key=_rank):
        mine = {volume.value.name: volume for volume in reserved if mode_group(volume.value) == modes}
        try:
            match = find_matching_volume(search, [volume.value for volume in mine.values()])
        except AttemptError as error:
            raise SyncError(f'error finding PV for claim "{claim.key}": {error}') from None
        if match is not None:
            return mine[match.name]
        if not delayed:
            free = view.free_volumes(claim.class_name, modes, claim.size)
            smallest = next((volume for volume in free if not any(failed_rules(search, volume.value))), None)
            if smallest is not None:
                return smallest
    return None


def misfit(volume: Volume, claim: Claim, *, rules: ControllerRules) -> str | None:
    """Why the volume that a claim names does not fit, or None. Selector, phase and node are not checked."""
    if volume.meta.being_deleted:
        return volume_being_deleted(volume.name)
    if rules.bytes_of(volume.size) < rules.bytes_of(claim.size):
        return TOO_SMALL
    if volume.class_name != claim.class_name:
        return OTHER_CLASS
    if (volume.attributes_class or "") != (claim.attributes_class or ""):
        return OTHER_ATTRIBUTES
    if volume.mode != claim.mode:
        return OTHER_MODE
    if not set(claim.access_modes) <= set(volume.access_modes):
        return OTHER_ACCESS_MODES
    return None


def _name(volume: ParsedObject[Volume]) -> str:
    return volume.value.name


def _rank(modes: Modes) -> tuple[int, str]:
    """The order of `matching.find_for_controller`."""
    return len(modes), ",".join(modes)


# Every branch is idempotent; a branch that does nothing has a comment with the reason. Only the stored state
# decides, not history.


def sync_claim(view: View, claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[None]:
    claim = yield from keep_claim_up(claim, rules=rules)
    left: ParsedObject[Claim] | None
    if rules.rollback and ROLLBACK in claim.meta.annotations:
        left = yield from roll_back(view, claim, rules=rules)
    else:
        left = claim
    if left is None:
        # A rollback is in progress, or has just ended: this sync neither binds nor provisions the claim.
        pass
    elif BIND_COMPLETED in left.meta.annotations:
        yield from _check_binding(view, left, rules=rules)
    elif left.value.volume_name == "":
        yield from _find_volume(view, left, rules=rules)
    else:
        yield from _take_named_volume(view, left, rules=rules)


def _find_volume(view: View, claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[None]:
    """Find or provision a volume for a claim that names none."""
    delayed = is_delayed(view, claim.value)
    volume = best_match(view, claim.value, delayed=delayed)
    default = default_for(view, claim.value)
    if volume is not None:
        yield from bind(volume, claim, rules=rules)
    elif default is not None:
        # The changed claim is synced again at once, with that class.
        yield from save_claim(with_spec(claim.manifest, storageClassName=default.name))
    elif delayed and selected_node(claim.value, alpha=rules.alpha_annotations) is None:
        yield from _notify_awaited_pods(view, claim)
        yield from reset_claim(claim, rules=rules)
    elif claim.value.class_name != "":
        # The phase stays until there is a volume.
        yield from provision(view, claim, rules=rules)
    else:
        yield from notify_claim(claim, NORMAL, FAILED_BINDING, NO_VOLUME_AND_NO_CLASS)
        yield from reset_claim(claim, rules=rules)


def _notify_awaited_pods(view: View, claim: ParsedObject[Claim]) -> Steps[None]:
    waiting = waiting_pods(view.pods_using(claim.meta.key))
    if waiting:
        yield from notify_claim(claim, NORMAL, WAIT_FOR_POD_SCHEDULED, waiting_for_pods(waiting))
    else:
        yield from notify_claim(claim, NORMAL, REASON_WAIT_FOR_FIRST_CONSUMER, NO_CONSUMER_YET)


def _take_named_volume(view: View, claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[None]:
    """Bind the volume that the user or a half-done binding named: delayed binding no longer matters."""
    volume = view.volume(claim.value.volume_name)
    if volume is None:
        # The volume may still be created.
        yield from reset_claim(claim, rules=rules)
    elif volume.value.claim_ref is None:
        yield from _take_free_volume(volume, claim, rules=rules)
    elif is_bound_to(volume.value, claim.value):
        # They name each other, so the pair is intended: size and class are not checked.
        yield from bind(volume, claim, rules=rules)
    elif BOUND_BY_CONTROLLER not in claim.meta.annotations:
        # The other claim may be deleted one day.
        yield from notify_claim(claim, WARNING, FAILED_BINDING, volume_taken(volume.value.name))
        yield from reset_claim(claim, rules=rules)
    else:
        # We named the volume ourselves, so a user removed bind-completed. The phase stays for inspection.
        yield from notify_claim(claim, WARNING, FAILED_BINDING, volume_taken(volume.value.name))
        raise SyncError(
            f'invalid binding of claim "{claim.meta.key}" to volume "{volume.value.name}": '
            f'volume already claimed by "{_owner(volume.value)}"'
        )


def _take_free_volume(
    volume: ParsedObject[Volume], claim: ParsedObject[Claim], *, rules: ControllerRules
) -> Steps[None]:
    why = misfit(volume.value, claim.value, rules=rules)
    if why is None:
        yield from bind(volume, claim, rules=rules)
    else:
        yield from notify_claim(claim, WARNING, VOLUME_MISMATCH, unfit_volume(volume.value.name, why))
        yield from reset_claim(claim, rules=rules)


def _check_binding(view: View, claim: ParsedObject[Claim], *, rules: ControllerRules) -> Steps[None]:
    """Check the volume of a claim that was bound once. Lost is not final: every sync checks again."""
    volume = view.volume(claim.value.volume_name) if claim.value.volume_name else None
    ref = volume.value.claim_ref if volume is not None else None
    if claim.value.volume_name == "":
        yield from lose_claim(claim, CLAIM_LOST, REFERENCE_LOST, rules=rules)
    elif volume is None:
        yield from lose_claim(claim, CLAIM_LOST, VOLUME_LOST, rules=rules)
    elif ref is None:
        # The reservation was removed, or our cache lags behind our own write. The same repair covers both.
        yield from bind(volume, claim, rules=rules)
    elif ref.uid == claim.meta.uid:
        # Healthy, or a binding to finish. The name in the reference is not checked; bind corrects it.
        yield from bind(volume, claim, rules=rules)
    else:
        # Another claim's reservation, or one by name only: not the one that this claim made.
        yield from lose_claim(claim, CLAIM_MISBOUND, MISBOUND, rules=rules)


def _owner(volume: Volume) -> str:
    ref = volume.claim_ref
    return f"{ref.namespace}/{ref.name}" if ref is not None else ""
