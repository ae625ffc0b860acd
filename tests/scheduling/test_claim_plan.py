"""How several claims share the volumes of a node: greedy as the reference, exact where greedy is not enough."""

from dataclasses import replace
from typing import Any

from tests.support.objects import (
    ROX,
    RWO,
    claim,
    csi_node,
    dynamic_class,
    local_volume,
    node,
    pod,
    ref_to,
    storage_class,
    volume,
)
from volsched.scheduling.rules.pod_claims import classify_claims
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND
from volsched.scheduling.rules.snapshot import snapshot_of
from volsched.scheduling.rules.volume_filter import NodeAnswer, find_pod_volumes

SSD = {"matchLabels": {"tier": "ssd"}}


def ask(*objects: Any, claims: tuple[str, ...], on: str = "n1", profile: Profile = VOLSCHED) -> NodeAnswer:
    snapshot = snapshot_of([node("n1"), node("n2"), storage_class(), dynamic_class(), *objects])
    wanting = pod(*claims)
    found = classify_claims(snapshot, wanting, once=True)
    return find_pod_volumes(snapshot, wanting, found, snapshot.nodes[on], profile=profile)


def given(answer: NodeAnswer) -> dict[str, str]:
    return {binding.claim.name: binding.volume.name for binding in answer.bindings}


P1, P2 = volume("p1", "2Gi", labels={"tier": "ssd"}), volume("p2", "3Gi")
DESCENDING = replace(PARITY, largest_claim_first=True)


def test_greedy_is_incomplete_in_either_order_and_exact_is_not() -> None:
    ssd_second = (claim("a", "1Gi"), claim("b", "2Gi", selector=SSD), P1, P2)
    assert given(ask(*ssd_second, claims=("a", "b"), profile=PARITY)) == {"a": "p1"}
    assert given(ask(*ssd_second, claims=("a", "b"), profile=DESCENDING)) == {"b": "p1", "a": "p2"}
    assert given(ask(*ssd_second, claims=("a", "b"))) == {"a": "p2", "b": "p1"}
    ssd_first = (claim("a", "1Gi", selector=SSD), claim("b", "2Gi"), P1, P2)
    assert given(ask(*ssd_first, claims=("a", "b"), profile=PARITY)) == {"a": "p1", "b": "p2"}
    assert given(ask(*ssd_first, claims=("a", "b"), profile=DESCENDING)) == {"b": "p1"}
    assert given(ask(*ssd_first, claims=("a", "b"))) == {"a": "p1", "b": "p2"}


def test_exact_serves_mixed_access_modes() -> None:
    both, once = volume("both", "5Gi", modes=(RWO, ROX)), volume("once", "6Gi", modes=(RWO,))
    claims = (claim("any", "1Gi", modes=(RWO,)), claim("shared", "2Gi", modes=(ROX,)))
    assert not ask(*claims, both, once, claims=("any", "shared"), profile=PARITY).fits
    assert given(ask(*claims, both, once, claims=("any", "shared"))) == {"any": "once", "shared": "both"}


def test_exact_prefers_existing_volumes_then_the_least_capacity() -> None:
    claims = (claim("a", "1Gi", cls="dyn"), claim("b", "2Gi", cls="dyn", selector=SSD))
    volumes = [
        volume("p1", "2Gi", cls="dyn", labels={"tier": "ssd"}),
        volume("p2", "9Gi", cls="dyn"),
        volume("p3", "4Gi", cls="dyn"),
    ]
    answer = ask(*claims, *volumes, claims=("a", "b"))
    assert given(answer) == {"a": "p3", "b": "p1"}
    assert not answer.provisions


def test_exact_keeps_prebound_pairs() -> None:
    wanting = claim("a", "1Gi")
    mine = volume("mine", "2Gi", labels={"tier": "ssd"}, claim_ref=ref_to(wanting, uid=""))
    answer = ask(wanting, claim("b", "2Gi", selector=SSD), mine, volume("free", "1Gi"), claims=("a", "b"))
    assert answer.reasons == (NO_VOLUME_TO_BIND,)
    assert given(answer) == {"a": "mine"}


def test_seed_all_claims_match_on_the_first_or_second_node_by_capacity() -> None:
    world = (
        claim("a", "1Gi"), claim("b", "5Gi"),
        local_volume("n1-small", "2Gi", "n1"), local_volume("n1-large", "9Gi", "n1"),
        local_volume("n2-small", "1Gi", "n2"), local_volume("n2-large", "6Gi", "n2"),
        local_volume("n2-huge", "60Gi", "n2"),
    )  # fmt: skip
    assert given(ask(*world, claims=("a", "b"), on="n1")) == {"a": "n1-small", "b": "n1-large"}
    assert given(ask(*world, claims=("b", "a"), on="n2")) == {"a": "n2-small", "b": "n2-large"}


def test_seed_two_of_three_claims_match_refuses_the_node_unless_the_third_is_provisioned() -> None:
    volumes = (local_volume("x", "5Gi", "n1"), local_volume("y", "6Gi", "n1"))
    static = (claim("a", "1Gi"), claim("b", "1Gi"), claim("c", "1Gi"))
    assert ask(*static, *volumes, claims=("a", "b", "c")).reasons == (NO_VOLUME_TO_BIND,)
    mixed = (claim("a", "1Gi"), claim("b", "1Gi"), claim("c", "1Gi", cls="dyn"))
    answer = ask(*mixed, *volumes, claims=("a", "b", "c"))
    assert answer.fits
    assert [provision.claim.name for provision in answer.provisions] == ["c"]


def test_seed_unsuitable_volumes_fall_back_to_provisioning() -> None:
    answer = ask(claim("a", cls="dyn"), volume("tiny", "1Gi", cls="dyn"), claims=("a",))
    assert answer.fits
    assert not answer.bindings
    assert len(answer.provisions) == 1


def test_seed_prebound_volumes_are_not_matched_for_other_claims() -> None:
    taken = volume("taken", "10Gi", claim_ref=ref_to(claim("other"), uid=""))
    assert ask(claim("a", "1Gi"), taken, claims=("a",)).reasons == (NO_VOLUME_TO_BIND,)


def test_ten_claims_that_all_have_to_make_room_are_served() -> None:
    """The smallest volume carries every label, so greedy gives the most wanted one to the least picky claim."""
    volumes = [volume(f"p{k}", f"{10 + k}Gi", labels={f"l{i}": "y" for i in range(10 - k)}) for k in range(10)]
    claims = [claim(f"c{k}", "1Gi", selector={"matchLabels": {f"l{k}": "y"}}) for k in range(10)]
    names = tuple(f"c{k}" for k in range(10))
    assert not ask(*volumes, *claims, claims=names, profile=PARITY).fits
    assert given(ask(*volumes, *claims, claims=names)) == {f"c{k}": f"p{9 - k}" for k in range(10)}
    too_picky = [claim(f"c{k}", "1Gi", selector={"matchLabels": {"l5": "y"}}) for k in range(10)]
    assert ask(*volumes, *too_picky, claims=names).reasons == (NO_VOLUME_TO_BIND,)


def test_exact_makes_room_for_slots_that_others_need() -> None:
    """Greedy gives the last attach slot to a claim that a local volume would do for."""
    limits = {"csi_example_com": 1}
    supply = (
        volume("disk", "1Gi", cls="dyn"),
        local_volume("local", "2Gi", "n1", cls="dyn"),
        csi_node("n1", **limits),
    )
    committed = claim("z", "1Gi", cls="dyn", selected="n1")
    answer = ask(claim("a", "1Gi", cls="dyn"), committed, *supply, claims=("a", "z"))
    assert (given(answer), len(answer.provisions)) == ({"a": "local"}, 1)
    prebound = claim("b", "5Gi", cls="dyn")
    mine = volume("mine", "5Gi", cls="dyn", claim_ref=ref_to(prebound))
    answer = ask(claim("a", "1Gi", cls="dyn"), prebound, mine, *supply, claims=("a", "b"))
    assert given(answer) == {"a": "local", "b": "mine"}


def test_exact_may_provision_for_a_claim_pinned_elsewhere() -> None:
    pinned = claim("a", "1Gi", cls="dyn")
    elsewhere = local_volume("far", "9Gi", "n2", cls="dyn", claim_ref=ref_to(pinned))
    answer = ask(pinned, claim("b", "2Gi"), elsewhere, volume("free", "2Gi"), claims=("a", "b"))
    assert (given(answer), [provision.claim.name for provision in answer.provisions]) == ({"b": "free"}, ["a"])


def test_many_equal_claims_that_compete_for_one_slot_are_served() -> None:
    limits = {"csi_example_com": 1}
    names = tuple(f"c{k}" for k in range(14))
    claims = [claim(name, "10Gi") for name in names]
    last = claim("last", "20Gi", selector=SSD)
    locals_ = [local_volume(f"l{k:02}", f"{30 + k}Gi", "n1") for k in range(14)]
    disk = volume("disk", "25Gi", labels={"tier": "ssd"})
    answer = ask(*claims, last, *locals_, disk, csi_node("n1", **limits), claims=(*names, "last"))
    assert answer.fits
    assert given(answer)["last"] == "disk"
