"""Promises to nodes that are gone: a claim's selected-node that nobody can keep any more.

Such a claim keeps its pod from every node. The annotation is taken off, and the pod decided anew, once the node
has been gone for a minute, no volume was made for the claim and no open binding stands behind it. A node that was
made anew under the same name is another node: what was promised to the one before does not bind it.
"""

from collections.abc import Iterable
from typing import Any

from volsched.kube.manifest import Manifest, annotations, claim_of, is_being_deleted, metadata, spec, uid
from volsched.kube.meta import ROLLBACK, SELECTED_NODE_KEYS
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.object_lives import ObjectLife
from volsched.pv_controller.rules.manifest_edits import with_annotations
from volsched.pv_controller.rules.provision import provisioned_name
from volsched.pv_controller.rules.view import held_claim
from volsched.scheduling.rules.pod_claims import selection_key

GONE_SECONDS = 60
REMOVED = "SelectedNodeRemoved"


def is_promised(claim: State | None) -> bool:
    """At sight: most claims have a volume, and every change of every claim is looked at."""
    return (
        isinstance(claim, ObjectState) and claim.manifest is not None and promised_node(claim.manifest) is not None
    )


def promised_node(claim: Manifest) -> str | None:
    """The node that the claim's volume is to be made for; None where nothing is open about it."""
    node = annotations(claim).get(selection_key(annotations(claim)))
    if node is None or spec(claim).get("volumeName") or is_being_deleted(claim) or ROLLBACK in annotations(claim):
        return None
    return str(node)


def gone_since(nodes: Iterable[ObjectLife], *, promised: int, promised_at: int) -> int | None:
    """Since when the node that was promised the volume is gone, in microseconds; None: it lives.

    `nodes` are all that bore the name, the oldest first; `promised` and `promised_at` are position and time of the
    promise. Where there never was such a node, it has been missing at least since then.
    """
    meant = [node for node in nodes if node.born < promised]
    return meant[-1].ended_at if meant else promised_at


def is_made_for(volume: Manifest, claim: Manifest) -> bool:
    """The volume is, or may yet become, what the claim was promised."""
    ref, own = claim_of(volume) or {}, metadata(claim)
    named = (ref.get("namespace"), ref.get("name")) == (own.get("namespace"), own.get("name"))
    reserved = named and ref.get("uid", "") in ("", uid(claim))
    return reserved or metadata(volume).get("name") == volume_name(claim)


def volume_name(claim: Manifest) -> str:
    """What a provisioner calls the volume that it makes for the claim."""
    return provisioned_name(held_claim(claim).value)


def without_promise(claim: Manifest) -> dict[str, Any]:
    return with_annotations(claim, drop=SELECTED_NODE_KEYS)


def removed(node: str) -> str:
    return (
        f'the node "{node}" that was selected for this claim is gone, and no volume was made there; '
        "the selection was taken off, and the pods that wait for the claim are decided anew"
    )
