"""Which volume the controller gives to a claim, and whether one that the claim asks for will do."""

from volsched.kube.storage import WAIT_FOR_FIRST_CONSUMER, Claim, StorageClass, Volume
from volsched.pv_controller.rules.modes import ControllerRules
from volsched.pv_controller.rules.requests import SyncError
from volsched.pv_controller.rules.view import Held, Modes, View, mode_group
from volsched.scheduling.rules.matching import Search, failed_rules, find_matching_volume
from volsched.scheduling.rules.pod_claims import default_class, mode_not_set
from volsched.scheduling.rules.status import AttemptError


def is_delayed(view: View, claim: Claim) -> bool:
    """Its class leaves the choice of a volume to the scheduler. A claim whose class is gone is not delayed."""
    held = view.storage_class(claim.class_name) if claim.class_name else None
    if held is None:
        return False
    mode = held.value.volume_binding_mode
    if mode is None:
        raise SyncError(mode_not_set(held.value.name))
    return mode == WAIT_FOR_FIRST_CONSUMER


def default_for(view: View, claim: Claim) -> StorageClass | None:
    """The class for a claim that names none; an explicitly empty name asks for none."""
    return None if claim.has_class else default_class(held.value for held in view.classes())


def best_match(view: View, claim: Claim, *, delayed: bool) -> Held[Volume] | None:
    """The first group of access modes with a match decides, fewest modes first.

    Only volumes reserved for the claim and free ones of its class can match, in a delayed class only the former:
    no search walks over all volumes.
    """
    search = Search(claim=claim, node=None, delay_binding=delayed)
    reserved = sorted(view.volumes_reserved_for(claim.key), key=_name)
    wanted = frozenset(claim.access_modes)
    for modes in sorted((group for group in view.mode_groups() if wanted <= frozenset(group)), key=_rank):
        mine = {held.value.name: held for held in reserved if mode_group(held.value) == modes}
        try:
            found = find_matching_volume(search, [held.value for held in mine.values()])
        except AttemptError as error:
            raise SyncError(f'error finding PV for claim "{claim.key}": {error}') from None
        if found is not None:
            return mine[found.name]
        if not delayed:
            free = view.free_volumes(claim.class_name, modes, claim.size)
            smallest = next((held for held in free if not any(failed_rules(search, held.value))), None)
            if smallest is not None:
                return smallest
    return None


def misfit(volume: Volume, claim: Claim, *, rules: ControllerRules) -> str | None:
    """Why the volume that a claim asks for by name will not do, or None. Selector, phase and node are not read."""
    if volume.meta.being_deleted:
        return f'the volume is marked for deletion "{volume.name}"'
    if rules.bytes_of(volume.size) < rules.bytes_of(claim.size):
        return "requested PV is too small"
    if volume.class_name != claim.class_name:
        return "storageClassName does not match"
    if (volume.attributes_class or "") != (claim.attributes_class or ""):
        return "volumeAttributesClassName does not match"
    if volume.mode != claim.mode:
        return "incompatible volumeMode"
    if not set(claim.access_modes) <= set(volume.access_modes):
        return "incompatible accessMode"
    return None


def _name(held: Held[Volume]) -> str:
    return held.value.name


def _rank(modes: Modes) -> tuple[int, str]:
    """As `matching.find_for_controller` orders them."""
    return len(modes), ",".join(modes)
