"""Reserve and unreserve: lay a node's decision over the stored objects, or take it off again.

Everything is computed before anything is answered, so a failure leaves no trace of the objects before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from volsched.kube.claim_reference import bind_volume
from volsched.kube.storage import Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.pod_claims import claim_uses, is_fully_bound, selection
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import AttemptError
from volsched.scheduling.rules.volume_filter import NodeAnswer, check_bound_claims


@dataclass(frozen=True, slots=True)
class AssumedVolume:
    """A volume as it will be written for the claim; unchanged where it names the claim completely already."""

    volume: Volume
    claim: Claim
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    all_bound: bool = False
    """Every claim of the pod is bound already: there is nothing to write and nothing to wait for."""
    volumes: tuple[AssumedVolume, ...] = ()
    claims: tuple[Claim, ...] = ()
    """Claims to provision, as they will be written: with the selected node."""


def assume_pod_volumes(
    snapshot: Snapshot, pod: Pod, node: Node, decision: NodeAnswer | None, *, profile: Profile
) -> tuple[Snapshot, Reservation]:
    """The snapshot with the decision assumed. Raises AttemptError, and then nothing is assumed."""
    if decision is None:
        return snapshot, Reservation(all_bound=True)
    stored, seen = snapshot.as_written(), profile.view(snapshot)
    keys = dict.fromkeys(use.key for use in claim_uses(pod))
    claims = [stored.claim(key) for key in keys]
    if all(claim is not None and is_fully_bound(claim) for claim in claims):
        if profile.rechecks_bound_claims:
            _recheck(snapshot, [claim for claim in claims if claim is not None], node, profile)
        return snapshot, Reservation(all_bound=True)
    volumes = [it for claim in claims if claim is not None and (it := _in_flight(seen, claim)) is not None]
    assumed_volumes = snapshot.assumed_volumes
    for binding in decision.bindings:
        bound, changed = bind_volume(binding.volume, binding.claim)
        if changed:
            assumed_volumes = assumed_volumes.assume(bound, stored=snapshot.stored_volumes.get(bound.key))
        volumes.append(AssumedVolume(bound, binding.claim, changed))
    selected, assumed_claims = [], snapshot.assumed_claims
    for provision in decision.provisions:
        claim = _with_selected_node(provision.claim, node, alpha=profile.writes_alpha_annotations)
        assumed_claims = assumed_claims.assume(claim, stored=snapshot.stored_claims.get(claim.key))
        selected.append(claim)
    # Which volumes name which claims has changed, and is found out by whoever asks next.
    assumed = replace(stored, assumed_volumes=assumed_volumes, assumed_claims=assumed_claims)
    return assumed, Reservation(volumes=tuple(volumes), claims=tuple(selected))


def revert_assumed_pod_volumes(snapshot: Snapshot, reservation: Reservation) -> Snapshot:
    """Idempotent; what was written meanwhile has another version and is not touched."""
    volumes, claims = snapshot.assumed_volumes, snapshot.assumed_claims
    for assumed in reservation.volumes:
        volumes = volumes.restore(assumed.volume)
    for claim in reservation.claims:
        claims = claims.restore(claim)
    return replace(snapshot.as_written(), assumed_volumes=volumes, assumed_claims=claims)


def _in_flight(seen: Snapshot, claim: Claim) -> AssumedVolume | None:
    """A claim that counts as bound though it is not: there is nothing to write, but something to wait for."""
    shown = seen.claim(claim.key)
    volume = None if shown is None or is_fully_bound(claim) else seen.volume(shown.volume_name)
    if volume is None or shown is None or not is_fully_bound(shown):
        return None
    return AssumedVolume(volume, claim, changed=False)


def _recheck(snapshot: Snapshot, claims: Sequence[Claim], node: Node, profile: Profile) -> None:
    """Claims may have become bound while the cycle ran, and to volumes that this node cannot reach."""
    misplaced = check_bound_claims(snapshot, claims, node, profile=profile)
    if misplaced is not None:
        raise AttemptError(f'claim "{misplaced.claim}" was bound meanwhile: {misplaced.reason}')


def _with_selected_node(claim: Claim, node: Node, *, alpha: bool) -> Claim:
    annotations = {**claim.meta.annotations, **selection(node.name, alpha=alpha)}
    return replace(claim, meta=replace(claim.meta, annotations=annotations))
