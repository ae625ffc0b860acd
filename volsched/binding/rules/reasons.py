"""Why a binding or one of its legs ended: all messages about it that users see.

Messages that the reference has too are spelled as in the reference.
"""

# Bindings.
RETAIN_ASKED = "on_failure is retain: what was written stays, as the reference leaves it"
OPERATOR = "cancelled by an operator"
RESERVATION_EXPIRED = "the reservation expired: it was neither confirmed nor renewed in time"
RESERVATION_LOST = "the reservation was lost"

# Legs that could not be written, or were not bound.
BINDING_VOLUMES = "binding volumes: "
"""The prefix of errors between the plan and the pod's node, as in the reference."""
DEADLINE_EXCEEDED = f"{BINDING_VOLUMES}context deadline exceeded"
PROVISIONING_FAILED = "provisioning failed"
NOT_FOUND = "not found"
CHANGED = "was changed by somebody else since the plan: Conflict"
FAILED_BEFORE_WRITE = "the binding failed before this leg was written"
NOT_WRITABLE = "a leg could not be written"

# Legs to be undone.
KEPT = "bound and clean: kept for the next plan, which is pinned to it"
HOLDS_DATA = "the claim may hold data and is never unbound; delete the claim to give it up"
CLAIM_GONE = "its claim is gone and may have held data; the volume is reclaimed as its policy says"
NOT_OURS = "it does not carry this binding's stamp: somebody else has written it since"
# Stored with the leg, and the failure memory recognises its beginning: the words cannot change.
REFUSED = "refused: the provisioner gave the node back, and nothing was made"
RETAINED_HALF_BOUND = "S3: half bound, and Kubernetes' PV controller has not completed it; it will when it runs"
RETAINED_NAMED = "S4: the claim names its volume, which Kubernetes never changes; it is being bound"
RETAINED_BOUND = "S5: bound, and Kubernetes never unbinds; the next plan is pinned to it"
RETAINED_NOT_OURS = f"S6: {NOT_OURS}"
RETAINED_CLAIM_GONE_LATE = "S7: its claim is gone and the volume was bound; it is reclaimed as its policy says"
RETAINED_PROVISIONING = "D2: a provisioner was asked and cannot be called back; its volume goes to this claim"
"""On a foreign cluster: the reasons shown by `audit retained`, each with its row of the safe table."""
STILL_PROVISIONING = "undecided: a provisioner may still be working on it; its volume goes to this claim"
UNDONE = "written late, after the leg had ended, and undone"


def taken_object(reason: str) -> tuple[str, str] | None:
    """Kind and key of the object that another writer changed before our write; None for any other reason."""
    kind, _, rest = reason.partition(' "')
    key, quote, told = rest.partition('" ')
    return (kind, key) if quote and told == CHANGED else None


# Pods and nodes that block a binding.
def node_not_found(node: str) -> str:
    return f'failed to get node "{node}": node "{node}" not found'


def pod_not_found(pod: str) -> str:
    return f'pod does not exist any more: pod "{pod}" not found'


def pod_being_deleted(pod: str) -> str:
    return f'pod "{pod}" is being deleted'


def pod_bound_meanwhile(pod: str, node: str) -> str:
    return f'pod "{pod}" was bound to node "{node}" meanwhile'


def company_not_coming(pod: str, node: str) -> str:
    return f'pod "{pod}", which this one counts on, is not coming to node "{node}"'


# Claims and volumes that block a binding.
def claim_not_found(claim: str, check: str) -> str:
    return f'failed to {check}: persistentvolumeclaim "{claim}" not found'


def claim_in_rollback(claim: str) -> str:
    return f'PVC "{claim}" is undergoing rollback'


def claim_lost(claim: str) -> str:
    return f'PVC "{claim}" is lost'


def claim_being_deleted(claim: str) -> str:
    return f'PVC "{claim}" is being deleted'


def claim_bound_elsewhere(claim: str) -> str:
    return f'PVC "{claim}" got bound to a different PV'


def claim_bound_meanwhile(claim: str) -> str:
    return f'PVC "{claim}" was bound meanwhile'


def claim_not_bound_any_more(claim: str) -> str:
    return f'PVC "{claim}" is not bound any more'


def selected_node_reset(claim: str) -> str:
    return f'selectedNode annotation reset for PVC "{claim}"'


def provisioning_failed(claim: str) -> str:
    return f'{PROVISIONING_FAILED} for PVC "{claim}"'


def joined_binding_rolled_back(binding: str, claim: str) -> str:
    return f'the binding {binding}, which was to bind PVC "{claim}", was rolled back'


def volume_not_found(volume: str | None) -> str:
    return f'failed to check binding: persistentvolume "{volume}" not found'


def volume_reference_reset(volume: str | None) -> str:
    return f'ClaimRef got reset for pv "{volume}"'


def volume_out_of_reach(volume: str | None, node: str | None) -> str:
    return f'pv "{volume}" node affinity doesn\'t match node "{node}": no matching NodeSelectorTerms'


def changed_since_reserved(named: str) -> str:
    return f"{named} was changed by somebody else since it was reserved"


def claim_keeps_writes(binding: str, why: str | None) -> str:
    return f"binding {binding} was rolled back and this claim keeps what was written: {why}"


def release_given_up(why: str) -> str:
    return f"undecided: the release was given up after {why}"


def given_up(error: str | None) -> str:
    return f"given up: {error}"


def pod_waits_for_gates(pod: str, gates: str) -> str:
    return f'pod "{pod}" is held back by its scheduling gates ({gates}); remove them first'


def claim_gone(claim: str) -> str:
    return f'PersistentVolumeClaim "{claim}" is gone'


def volume_gone(volume: str | None) -> str:
    return f'PersistentVolume "{volume}" is gone'


# A refused write, in the words of the API server, which the reference passes on.
def object_not_found(resource: str, name: str | None) -> str:
    return f'{resource} "{name}" {NOT_FOUND}'


def object_modified(resource: str, name: str | None) -> str:
    return (
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; please apply your '
        "changes to the latest version and try again"
    )


# Why a plan is refused: one of its objects has changed since the decision.
def planned_pod_gone(pod: str, uid: str) -> str:
    return f'pod "{pod}" with uid {uid} is gone'


def planned_pod_runs(pod: str, node: str) -> str:
    return f'pod "{pod}" runs on node "{node}" already'


def planned_pod_taken(pod: str) -> str:
    return f'pod "{pod}" was planned meanwhile'


def planned_node_gone(node: str) -> str:
    return f'node "{node}" is gone'


def planned_claim_gone(claim: str, uid: str) -> str:
    return f'claim "{claim}" with uid {uid} is gone'


def planned_claim_changed(claim: str, *, was_bound: bool) -> str:
    return f'claim "{claim}" is {"not bound any more" if was_bound else "bound meanwhile"}'


def planned_claim_ending(claim: str) -> str:
    return f'claim "{claim}" is being deleted or rolled back'


def planned_claim_elsewhere(claim: str) -> str:
    return f'claim "{claim}" is bound to another volume'


def planned_object_changed(stream: str, version: str | None) -> str:
    return f"{stream} is not at version {version} any more"


# Why a plan is decided again: another process's write since the decision.
CAPACITY_RESERVED = "another plan reserved of the same capacity"
POD_KEEPS_OTHERS_AWAY = "a pod was planned that keeps others away from where it runs"


def node_changed(node: str) -> str:
    return f'node "{node}" has changed'


def drivers_changed(node: str) -> str:
    return f'the drivers of node "{node}" have changed'


def capacity_changed(capacity: str) -> str:
    return f'capacity object "{capacity}" has changed'


def pod_came(pod: str, node: str) -> str:
    return f'pod "{pod}" came to node "{node}"'


def volume_attached(node: str) -> str:
    return f'a volume was attached to node "{node}"'


def capacity_promised(claim: str) -> str:
    return f'claim "{claim}" was promised some of the same capacity'


def claim_promised(claim: str) -> str:
    return f'claim "{claim}" was promised to a node'


def volume_given(volume: str, claim: str) -> str:
    return f'volume "{volume}" was given to claim "{claim}"'


def exclusive_claim_planned(claim: str) -> str:
    return f'a pod with claim "{claim}" was planned'


def neighbour_moved(pod: str) -> str:
    return f'pod "{pod}" came, went or changed, and this one minds who runs near it'


def domain_changed(node: str) -> str:
    return f'node "{node}" has changed, and with it who is near whom'


def pod_placed_apart(stream: str) -> str:
    return f"{stream} was put on a node, and keeps others away from where it runs"
