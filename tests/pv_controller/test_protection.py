"""What keeps claims and volumes in use from going away, and what their going sets off."""

from typing import Any

import pytest

from tests.pv_controller.controller_world import KEY, Object, bound_pvc, pod, pv, pvc, ref, world
from tests.pv_controller.rows import row
from volsched.kube.meta import PV_PROTECTION, PVC_PROTECTION
from volsched.pv_controller.rules import (
    CLAIM,
    VOLUME,
    Enqueue,
    LivePods,
    after_claim_deleted,
    after_volume_deleted,
    parsed_claim,
    parsed_volume,
)


@row("9.11 volume deleted")
def test_the_claim_of_a_deleted_volume_is_synced_at_once() -> None:
    assert after_volume_deleted(parsed_volume(pv(ref=ref())[1]).value) == Enqueue(CLAIM, KEY)
    assert after_volume_deleted(parsed_volume(pv(ref=ref(uid=""))[1]).value) == Enqueue(CLAIM, KEY)
    assert after_volume_deleted(parsed_volume(pv()[1]).value) is None


@row("9.11 claim deleted")
def test_the_volume_of_a_deleted_claim_is_synced_at_once() -> None:
    assert after_claim_deleted(parsed_claim(bound_pvc()[1]).value) == Enqueue(VOLUME, "pv")
    assert after_claim_deleted(parsed_claim(pvc()[1]).value) is None


def leaving(**kw: Any) -> Object:
    return pvc(**{"deleted": True, "finalizers": (PVC_PROTECTION, "x"), **kw})


@row("9.11 claim protection")
def test_a_claim_is_protected_unless_it_is_going_already() -> None:
    assert world(pvc(finalizers=("x",))).protect_claim().claim().meta.finalizers == ("x", PVC_PROTECTION)
    assert world(pvc(finalizers=(PVC_PROTECTION,))).protect_claim().writes == []
    assert world(leaving(finalizers=("x",))).protect_claim().writes == []


OWNED = [{"kind": "Pod", "name": "da", "uid": "uid-da", "controller": True}]


@row("9.11 claim protection")
@pytest.mark.parametrize(
    ("claim", "user", "kept"),
    [
        (leaving(), pod(node="n1"), True),
        (leaving(), pod(node="n1", phase="Succeeded"), True),
        (leaving(), pod(node="n1", deleted=True, grace=0), True),
        (leaving(), pod(), False),
        (leaving(), pod(node="n1", claim="other"), False),
        (leaving(name="da-ta", owners=OWNED), pod("da", node="n1", ephemeral="ta"), True),
        (leaving(name="da-ta", owners=OWNED), pod("da", node="n1", ephemeral="ta", deleted=True, grace=30), True),
        (leaving(name="da-ta", owners=OWNED), pod("da", node="n1", ephemeral="ta", deleted=True, grace=0), False),
        (leaving(name="da-ta"), pod("da", node="n1", ephemeral="ta"), False),
    ],
    ids=[
        "scheduled", "completed", "shut down", "only pending", "of another claim",
        "ephemeral", "ephemeral, shutting down", "ephemeral, shut down", "ephemeral, not the owner",
    ],
)  # fmt: skip
@pytest.mark.parametrize("seen", [True, False])
def test_a_claim_stays_while_a_pod_with_a_node_uses_it(
    claim: Object, user: Object, kept: bool, seen: bool
) -> None:
    """Also where only the store knows the pod."""
    name = claim[1]["metadata"]["name"]
    given = world(claim, user)
    if not seen:
        given.unseen.add(("Pod", f"db/{user[1]['metadata']['name']}"))
    after = given.protect_claim(f"db/{name}")
    assert (PVC_PROTECTION in after.claim(f"db/{name}").meta.finalizers) is kept


@row("9.11 claim protection")
def test_the_store_is_asked_only_before_a_claim_is_let_go() -> None:
    kept = world(leaving(), pod(node="n1")).protect_claim()
    assert not any(isinstance(request, LivePods) for request in kept.requests)
    gone = world(leaving(finalizers=(PVC_PROTECTION,))).protect_claim()
    assert not gone.has(CLAIM, KEY)


@row("9.11 volume protection")
@pytest.mark.parametrize(
    ("given", "finalizers"),
    [
        (pv(), (PV_PROTECTION,)),
        (pv(phase="Bound", deleted=True, finalizers=(PV_PROTECTION, "x")), (PV_PROTECTION, "x")),
        (pv(phase="Released", deleted=True, finalizers=(PV_PROTECTION, "x")), ("x",)),
        (pv(phase="Released", deleted=True, finalizers=("x",)), ("x",)),
        (pv(phase="Released", finalizers=(PV_PROTECTION,)), (PV_PROTECTION,)),
    ],
)
def test_a_volume_stays_while_it_is_bound(given: Object, finalizers: tuple[str, ...]) -> None:
    assert world(given).protect_volume().volume().meta.finalizers == finalizers
