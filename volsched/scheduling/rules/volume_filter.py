"""PreFilter, Filter, Reserve and Unreserve of a pod's claims: find the nodes that can serve them, assume one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from volsched.kube.display_text import affinity_text, labels_text
from volsched.kube.manifest import bind_volume, reaches
from volsched.kube.meta import ROLLBACK
from volsched.kube.storage import LOST, Claim, Volume
from volsched.kube.workloads import Node, Pod
from volsched.scheduling.rules.attach_limits import attach_budget
from volsched.scheduling.rules.claim_plan import ServedClaims, StaticBinding, serve_claims
from volsched.scheduling.rules.dynamic_volumes import PlannedVolume
from volsched.scheduling.rules.matching import is_unseen
from volsched.scheduling.rules.pod_claims import (
    ClaimUse,
    PodClaims,
    claim_uses,
    classify_claims,
    is_fully_bound,
    is_owned_by,
    selection,
)
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.reasons import (
    BOUND_TO_MISSING_VOLUME,
    NO_VOLUME_TO_BIND,
    NODE_AFFINITY_MISMATCH,
    NOT_ENOUGH_SPACE,
    TOO_MANY_VOLUMES,
    UNBOUND_IMMEDIATE,
    claim_being_deleted,
    claim_in_rollback,
    claim_lost,
    claim_not_created_yet,
    claim_not_found,
    claim_of_other_pod,
)
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.rules.status import (
    SKIP,
    SUCCESS,
    AttemptError,
    Code,
    Failure,
    Miss,
    Rejection,
    Rule,
    Status,
)

# A cycle: classify the claims once (`prefilter`); per node check the bound ones, then search volumes for the
# others, then room to provision the rest (`find_pod_volumes`). The result is the node's decision.

REASON_ORDER = (
    NODE_AFFINITY_MISMATCH,
    NO_VOLUME_TO_BIND,
    NOT_ENOUGH_SPACE,
    BOUND_TO_MISSING_VOLUME,
    TOO_MANY_VOLUMES,
)


# Not frozen, though never modified: created for every node, in a third of the time of a frozen one.
@dataclass(slots=True, kw_only=True)
class NodeAnswer:
    """The result for one node. Without reasons and error it is the decision for that node."""

    bindings: tuple[StaticBinding, ...] = ()
    provisions: tuple[PlannedVolume, ...] = ()
    reasons: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    error: str = ""

    @property
    def fits(self) -> bool:
        return not self.reasons and not self.error

    @property
    def status(self) -> Status:
        if self.error:
            return Status(Code.ERROR, (self.error,))
        if not self.reasons:
            return SUCCESS
        code = Code.UNSCHEDULABLE if self.reasons == (TOO_MANY_VOLUMES,) else Code.UNRESOLVABLE
        return Status(code, self.reasons, self.rejections)


def not_ready(answer: NodeAnswer) -> str | None:
    """The reason why a valid decision cannot be carried out yet; None: it can.

    A volume that no PV controller has synced is about to be written, and a plan would conflict with that write.
    """
    name = next((binding.volume.name for binding in answer.bindings if is_unseen(binding.volume)), None)
    return None if name is None else f'no PV controller has synced persistentvolume "{name}" yet; retry'


def prefilter(snapshot: Snapshot, pod: Pod, *, profile: Profile) -> tuple[Status, PodClaims]:
    """Once per cycle: whether any node may fit, and the pod's claims split by what they need."""
    uses = claim_uses(pod)
    if not uses:
        return SKIP, PodClaims()
    snapshot = profile.view(snapshot)
    for use in uses:
        refusal = _claim_refusal(snapshot, pod, use, profile)
        if refusal is not None:
            return Status(Code.UNRESOLVABLE, (refusal,)), PodClaims()
    try:
        claims = classify_claims(snapshot, pod, once=profile.claims_count_once, uses=uses)
    except AttemptError as error:
        return Status(Code.ERROR, (str(error),)), PodClaims()
    if claims.immediate:
        return Status(Code.UNRESOLVABLE, (UNBOUND_IMMEDIATE,)), claims
    return SUCCESS, claims


def _claim_refusal(snapshot: Snapshot, pod: Pod, use: ClaimUse, profile: Profile) -> str | None:
    """The reason why a claim refuses the pod. Reads the stored claim: an assumption must not hide a deletion."""
    name = use.name
    claim = snapshot.stored_claims.get(use.key)
    if claim is None and use.ephemeral:
        return claim_not_created_yet(name)
    if claim is None:
        return claim_not_found(name)
    if claim.phase == LOST:
        return claim_lost(name, claim.volume_name)
    if claim.meta.being_deleted:
        return claim_being_deleted(name)
    if use.ephemeral and not is_owned_by(claim, pod):
        return claim_of_other_pod(claim.key, pod.key)
    if profile.checks_rollback and ROLLBACK in claim.meta.annotations:
        return claim_in_rollback(name)
    return None


def find_pod_volumes(
    snapshot: Snapshot, pod: Pod, claims: PodClaims, node: Node, *, profile: Profile, limited: bool = True
) -> NodeAnswer:
    """The answer for one node. An error fails the whole attempt, and no result is kept.

    `limited`: drivers of the pod's volumes, or of the candidates, may have an attach limit; else none is counted.
    """
    snapshot = profile.view(snapshot)
    try:
        misplaced = check_bound_claims(snapshot, claims.bound, node, profile=profile)
        slots = attach_budget(snapshot, pod, node) if limited and profile.attach_limits else {}
        served = serve_claims(snapshot, claims, node, profile=profile, slots=slots)
        if served.rejections and slots:
            served = _blame_limits(served, serve_claims(snapshot, claims, node, profile=profile, slots={}))
    except AttemptError as error:
        return NodeAnswer(error=str(error))
    if misplaced is None and not served.rejections:
        return NodeAnswer(bindings=served.bindings, provisions=served.provisions)
    deciding = [rejection for rejection in (misplaced, *served.rejections[:1]) if rejection is not None]
    reasons = {rejection.reason for rejection in deciding}
    return NodeAnswer(
        bindings=served.bindings,
        provisions=served.provisions,
        reasons=tuple(reason for reason in REASON_ORDER if reason in reasons),
        rejections=(*deciding, *served.rejections[1:]),
    )


def _blame_limits(limited: ServedClaims, unlimited: ServedClaims) -> ServedClaims:
    """Blame attach limits only if the claims could be served without them: then an eviction could help."""
    if unlimited.rejections:
        return unlimited
    return replace(
        limited,
        rejections=tuple(replace(rejection, reason=TOO_MANY_VOLUMES) for rejection in limited.rejections),
    )


def check_bound_claims(
    snapshot: Snapshot, claims: Sequence[Claim], node: Node, *, profile: Profile
) -> Rejection | None:
    """The first bound claim whose volume is missing or cannot be reached from the node."""
    for claim in claims:
        volume = snapshot.volume(claim.volume_name)
        if volume is None:
            failure = Failure(Rule.VOLUME_EXISTS, f'PersistentVolume "{claim.volume_name}"', "no such volume")
            return Rejection(reason=BOUND_TO_MISSING_VOLUME, claim=claim.key, failures=(failure,))
        if profile.translate is not None:
            volume = profile.translate(volume, snapshot.csi_nodes.get(node.name))
        if not reaches(volume, node, enforce_match_fields=profile.enforce_match_fields):
            failure = Failure(Rule.NODE_AFFINITY, affinity_text(volume), labels_text(node.labels))
            miss = Miss(volume.name, (failure,))
            return Rejection(reason=NODE_AFFINITY_MISMATCH, claim=claim.key, misses=(miss,))
    return None


# Assume a node's decision: lay it over the stored objects, or remove it again.
#
# The reference calls this Reserve and Unreserve; a reservation here is `binding.rules.reservations`.
#
# Everything is computed before anything is returned, so a failure leaves no partial assumption.


@dataclass(frozen=True, slots=True)
class AssumedVolume:
    """A volume as it will be written for the claim; unchanged if it names the claim completely already."""

    volume: Volume
    claim: Claim
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedDecision:
    all_bound: bool = False
    """Whether every claim of the pod is bound already, with nothing to write or to wait for."""
    volumes: tuple[AssumedVolume, ...] = ()
    claims: tuple[Claim, ...] = ()
    """The claims to provision, as they will be written: with the selected node."""


def assume_pod_volumes(
    snapshot: Snapshot, pod: Pod, node: Node, decision: NodeAnswer | None, *, profile: Profile
) -> tuple[Snapshot, AssumedDecision]:
    """The snapshot with the decision assumed. Raises AttemptError, and then nothing is assumed."""
    if decision is None:
        return snapshot, AssumedDecision(all_bound=True)
    stored, view = snapshot.as_written(), profile.view(snapshot)
    keys = dict.fromkeys(use.key for use in claim_uses(pod))
    claims = [stored.claim(key) for key in keys]
    if all(claim is not None and is_fully_bound(claim) for claim in claims):
        if profile.rechecks_bound_claims:
            _recheck(snapshot, [claim for claim in claims if claim is not None], node, profile)
        return snapshot, AssumedDecision(all_bound=True)
    volumes = [it for claim in claims if claim is not None and (it := _in_flight(view, claim)) is not None]
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
    # The maps between volumes and claims are stale now; the next reader recomputes them.
    assumed = replace(stored, assumed_volumes=assumed_volumes, assumed_claims=assumed_claims)
    return assumed, AssumedDecision(volumes=tuple(volumes), claims=tuple(selected))


def revert_assumed_pod_volumes(snapshot: Snapshot, assumption: AssumedDecision) -> Snapshot:
    """Remove an assumption. Idempotent: objects written meanwhile have another version and are not touched."""
    volumes, claims = snapshot.assumed_volumes, snapshot.assumed_claims
    for assumed in assumption.volumes:
        volumes = volumes.restore(assumed.volume)
    for claim in assumption.claims:
        claims = claims.restore(claim)
    return replace(snapshot.as_written(), assumed_volumes=volumes, assumed_claims=claims)


def _in_flight(view: Snapshot, claim: Claim) -> AssumedVolume | None:
    """The volume of a claim that counts as bound before its update is written: only the wait is left."""
    shown = view.claim(claim.key)
    volume = None if shown is None or is_fully_bound(claim) else view.volume(shown.volume_name)
    if volume is None or shown is None or not is_fully_bound(shown):
        return None
    return AssumedVolume(volume, claim, changed=False)


def _recheck(snapshot: Snapshot, claims: Sequence[Claim], node: Node, profile: Profile) -> None:
    """Check again the claims that were bound during the cycle: the node may not reach their volumes."""
    misplaced = check_bound_claims(snapshot, claims, node, profile=profile)
    if misplaced is not None:
        raise AttemptError(f'claim "{misplaced.claim}" was bound meanwhile: {misplaced.reason}')


def _with_selected_node(claim: Claim, node: Node, *, alpha: bool) -> Claim:
    annotations = {**claim.meta.annotations, **selection(node.name, alpha=alpha)}
    return replace(claim, meta=replace(claim.meta, annotations=annotations))
