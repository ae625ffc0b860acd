"""What is remembered of bindings that failed, for how long, and what it counts for."""

from dataclasses import replace

import pytest

from tests.support.objects import claim, dynamic_class, in_zone, node, pod, read
from volsched.binding.rules.reasons import (
    DEADLINE_EXCEEDED,
    REFUSED,
    RESERVATION_EXPIRED,
    RESERVATION_LOST,
    STILL_PROVISIONING,
)
from volsched.log.events.fold import BindingState, LegState
from volsched.scheduling.index import Index
from volsched.scheduling.queue.entry import SECOND
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.failure_memory import (
    DOMAIN_PAUSE,
    FIRST_PAUSE,
    KEPT,
    LONGEST_PAUSE,
    MOST,
    NO_DEMERITS,
    Demerits,
    Failures,
    demerits,
    pause_after,
)
from volsched.scheduling.rules.profile import PARITY, VOLSCHED
from volsched.scheduling.rules.snapshot import Snapshot, snapshot_of

NOW = 1_800_000_000 * SECOND
NODES = [node("n1"), in_zone("n2", "a"), node("n3"), in_zone("n4", "b")]
WHY = 'binding volumes: provisioning failed for PVC "db/data"'


def ended(
    node: str,
    at: int,
    *,
    uid: str = "uid-app",
    state: str = "rolled-back",
    reason: str | None = WHY,
    leg: str | None = None,
    asked: str = "data",
) -> BindingState:
    legs = (LegState(f"db/{asked}", None, True, False, "released", leg, claim_uid=f"uid-{asked}", dynamic=True),)
    plan = {"pod": "db/app", "pod_uid": uid, "node": node}
    return BindingState(3, plan, at - SECOND, state, False, reason, at, legs)


def remembered(*states: BindingState) -> Failures:
    failures = Failures()
    for place, state in enumerate(states):
        failures.note(f"b{place}", state)
    return failures


def world() -> Snapshot:
    """Nodes without a zone, which a zonal provisioner refuses, between those with one."""
    return snapshot_of([*NODES, dynamic_class(), claim("data", cls="dyn"), claim("more", cls="dyn")])


def chosen(snapshot: Snapshot, failures: Failures, now: int, name: str = "app") -> str:
    """Decided by the rules, as by the index."""
    wanting = pod("data", name=name)
    against = demerits(failures, snapshot, wanting, profile=VOLSCHED, now=now)
    made = attempt(snapshot, wanting, profile=VOLSCHED, demerits=against)
    objects = (it for kind in (snapshot.nodes, snapshot.classes, snapshot.stored_claims) for it in kind.values())
    by_index = Index(objects).decide(wanting, demerits=against)
    assert made.chosen is not None
    assert made.chosen == by_index.chosen
    assert made.runners_up == by_index.runners_up
    return made.chosen.node


def test_a_pod_comes_to_every_other_node_before_it_comes_to_one_twice() -> None:
    snapshot, failures, met = world(), Failures(), []
    for turn in range(8):
        # However long a failure takes to show: those before it count on.
        now = NOW + turn * 700 * SECOND
        met.append(chosen(snapshot, failures, now))
        failures.note(f"b{turn}", ended(met[-1], now + 695 * SECOND))
    assert sorted(met[:4]) == sorted(met[4:]) == ["n1", "n2", "n3", "n4"]


def test_what_failed_ranks_last_however_good_it_is_and_is_not_left_out() -> None:
    only = snapshot_of([node("n1"), dynamic_class(), claim("data", cls="dyn")])
    assert chosen(only, remembered(*[ended("n1", NOW)] * 5), NOW) == "n1"


def test_failures_are_forgotten_together_after_a_pause_that_grows_with_each() -> None:
    one = remembered(ended("n1", NOW))
    assert one.of_pod("uid-app", NOW + FIRST_PAUSE - 1) == {"n1": 1}
    assert one.of_pod("uid-app", NOW + FIRST_PAUSE) == {}
    two = remembered(ended("n1", NOW - FIRST_PAUSE), ended("n2", NOW))
    assert two.of_pod("uid-app", NOW + 2 * FIRST_PAUSE - 1) == {"n1": 1, "n2": 1}
    assert two.of_pod("uid-app", NOW + 2 * FIRST_PAUSE) == {}
    assert [pause_after(count) // FIRST_PAUSE for count in (1, 2, 3, 4, 5, 6)] == [1, 2, 4, 8, 16, 32]
    assert pause_after(7) == pause_after(MOST) == LONGEST_PAUSE


def test_what_is_too_old_does_not_count() -> None:
    failures = remembered(ended("n1", NOW - KEPT), ended("n2", NOW))
    assert failures.of_pod("uid-app", NOW + 1) == {"n2": 1}
    assert failures.of_pod("uid-app", NOW + FIRST_PAUSE) == {}


def test_of_many_failures_the_last_are_kept() -> None:
    failures = remembered(*(ended(f"n{turn}", NOW + turn) for turn in range(2 * MOST)))
    assert set(failures.of_pod("uid-app", NOW + 2 * MOST)) == {f"n{turn}" for turn in range(MOST, 2 * MOST)}


@pytest.mark.parametrize(
    "state",
    [
        ended("n1", NOW, state="committed", reason=None),
        ended("n1", NOW, reason=RESERVATION_EXPIRED),
        ended("n1", NOW, reason=f"{RESERVATION_LOST}: something"),
        ended("n1", NOW, uid="uid-of-its-namesake"),
    ],
)
def test_what_is_no_failure_of_the_pod_is_not_remembered(state: BindingState) -> None:
    assert remembered(state).of_pod("uid-app", NOW) == {}


def test_the_order_in_which_failures_are_read_makes_no_difference() -> None:
    states = [ended(f"n{turn % 3}", NOW + turn * SECOND, leg=REFUSED) for turn in range(9)]
    forward, backward = Failures(), Failures()
    for place, state in enumerate(states):
        forward.note(f"b{place}", state)
    for place, state in reversed(list(enumerate(states))):
        backward.note(f"b{place}", state)
    assert forward == backward


# --- a class and its topology domains -------------------------------------------------------------------


def against(failures: Failures, now: int, snapshot: Snapshot | None = None) -> Demerits:
    """Of a pod that has not failed itself."""
    seen = world() if snapshot is None else snapshot
    return demerits(failures, seen, pod("more", name="other"), profile=VOLSCHED, now=now)


@pytest.mark.parametrize(
    ("reason", "leg", "counts"),
    [
        (WHY, REFUSED, True),
        (DEADLINE_EXCEEDED, STILL_PROVISIONING, True),
        (WHY, STILL_PROVISIONING, False),
        (WHY, None, False),
    ],
)
def test_a_refusal_counts_for_all_pods_against_the_domain_for_a_short_while(
    reason: str, leg: str | None, counts: bool
) -> None:
    failures, snapshot = remembered(ended("n1", NOW, reason=reason, leg=leg)), world()
    found = against(failures, NOW + DOMAIN_PAUSE - 1)
    assert [name for name, it in snapshot.nodes.items() if found.of(it)] == (["n1", "n3"] if counts else [])
    assert against(failures, NOW + DOMAIN_PAUSE) == NO_DEMERITS


def test_a_failure_of_its_own_counts_more_than_the_domain() -> None:
    failures = remembered(ended("n1", NOW, leg=REFUSED))
    mine = demerits(failures, world(), pod("data"), profile=VOLSCHED, now=NOW)
    assert [mine.of(it) for it in world().nodes.values()] == [3, 0, 1, 0]


def test_the_domain_is_what_the_driver_says_it_is() -> None:
    racks = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r2"}
    nodes = [replace(it, meta=replace(it.meta, labels={**it.labels, "rack": racks[it.name]})) for it in NODES]
    drivers = [{"name": "csi.example.com", "nodeID": "n1", "topologyKeys": ["rack"]}]
    keyed = read("CSINode", {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    snapshot = snapshot_of([*world().classes.values(), *world().stored_claims.values(), *nodes, keyed])
    found = against(remembered(ended("n1", NOW, leg=REFUSED)), NOW, snapshot)
    assert [it.name for it in snapshot.nodes.values() if found.of(it)] == ["n1", "n2"]


def test_another_class_has_nothing_to_do_with_it() -> None:
    failures = remembered(ended("n1", NOW, leg=REFUSED))
    elsewhere = snapshot_of([*world().nodes.values(), dynamic_class(), claim("more", cls="dyn"), claim("data")])
    assert against(failures, NOW, elsewhere) == NO_DEMERITS


def test_a_claim_or_a_node_that_is_gone_says_nothing() -> None:
    failures = remembered(ended("n1", NOW, leg=REFUSED))
    whole = world()
    assert against(failures, NOW, replace(whole, nodes={})) == NO_DEMERITS
    gone = {key: it for key, it in whole.stored_claims.items() if key != "db/data"}
    assert against(failures, NOW, replace(whole, stored_claims=gone)) == NO_DEMERITS


def test_parity_remembers_nothing() -> None:
    failures = remembered(ended("n1", NOW, leg=REFUSED))
    assert demerits(failures, world(), pod("data"), profile=PARITY, now=NOW) == NO_DEMERITS
