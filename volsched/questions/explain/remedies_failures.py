"""What would help a pod whose bindings keep failing. These are not tried: who failed is not ours to try.

The rules say that the nodes would do, so no change to pod or claims is looked for. What is told is who has to act,
and how to find out more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from volsched.binding.rules.effect_writes import CHANGED
from volsched.binding.rules.leg_conditions import DEADLINE_EXCEEDED, PROVISIONING_FAILED
from volsched.kube.meta import ZONE
from volsched.kube.storage import Claim
from volsched.scheduling.rules.snapshot import Snapshot

AGAIN = "the pod is tried again by itself"


def failure_remedies(snapshot: Snapshot, groups: Iterable[Mapping[str, Any]], untried: list[str]) -> list[str]:
    """The likeliest first, none of them twice."""
    groups = list(groups)
    found = [text for group in groups for text in _for(snapshot, group)]
    failed = ", ".join(dict.fromkeys(group["node"] for group in groups))
    if untried:
        found.append(f"keep it off {failed}, as with: kubectl cordon {failed.split(', ')[0]}")
    return list(dict.fromkeys(found))


def _for(snapshot: Snapshot, group: Mapping[str, Any]) -> Iterator[str]:
    reason, claim = str(group["reason"]), snapshot.claim(group["claim"] or "")
    named = group["volume"]
    if PROVISIONING_FAILED in reason and claim is not None:
        yield from _provisioning(snapshot, group, claim)
    elif reason == DEADLINE_EXCEEDED and claim is not None:
        maker = _provisioner(snapshot, claim)
        yield (
            f'see that provisioner "{maker}" of class "{claim.class_name}" runs and what it says: '
            f"volsched describe pvc {claim.key}"
        )
        yield "give it more time: annotation volsched.io/bind-timeout-seconds on the pod"
    elif named is not None and (reason.endswith(CHANGED) or "ClaimRef" in reason or "different PV" in reason):
        yield f"find out who else writes volume {named}: volsched audit who pv {named}"
    elif "node affinity" in reason:
        yield (
            f"the volume cannot be reached from {group['node']}: correct the node's labels, or what the "
            "provisioner says of where it makes volumes"
        )
    else:
        yield f"see what was done: volsched history binding {group['binding']}"


def _provisioning(snapshot: Snapshot, group: Mapping[str, Any], claim: Claim) -> Iterator[str]:
    maker, node = _provisioner(snapshot, claim), snapshot.nodes.get(group["node"])
    said = f"it says: {group['words']}" if group["words"] else f"what it says: volsched describe pvc {claim.key}"
    yield f'have provisioner "{maker}" serve class "{claim.class_name}", and {AGAIN}; {said}'
    if node is not None and ZONE not in node.labels and any(ZONE in it.labels for it in snapshot.nodes.values()):
        yield f"label {node.name} with its zone, as other nodes are: kubectl label node {node.name} {ZONE}=ZONE"
    modes = ", ".join(claim.access_modes)
    yield (
        f'add a PersistentVolume of at least {claim.size} (class "{claim.class_name}", {modes}) for '
        f"{claim.key}: a volume that is there goes before one to be made"
    )


def _provisioner(snapshot: Snapshot, claim: Claim) -> str:
    held = snapshot.classes.get(claim.class_name)
    return "unknown" if held is None else held.provisioner
