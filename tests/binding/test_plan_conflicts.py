"""Which event of another writer makes a plan worthless, and which does not."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from volsched.binding.rules.plan import Plan, PlannedLeg, may_outdate, outdated
from volsched.kube.meta import SELECTED_NODE
from volsched.log.events.envelope import Event, canonical
from volsched.scheduling.rules.dynamic_volumes import PROMISED_ROOM

LEG = PlannedLeg(claim="db/data", claim_uid="u1", volume="disk", rv="1")
BOUND = PlannedLeg(claim="db/log", claim_uid="u2", volume="log", rv="", bound=True)


def plan_of(*, legs: tuple[PlannedLeg, ...] = (LEG, BOUND), **fields: Any) -> Plan:
    return Plan(binding="b1", pod="db/a", pod_uid="u", node="n1", legs=legs, decided_at=1, deadline=2, **fields)


PLAIN, MINDS = plan_of(), plan_of(minds=True)
ALONE = plan_of(exclusive=frozenset({"db/log"}))
ROOMY = plan_of(legs=(replace(LEG, volume=None, capacity="kube-system/room", bytes=1),))


def event(stream: str, type_: str, data: dict[str, Any], binding: str | None = None) -> Event:
    return Event(
        position=2, stream=stream, version=1, type=type_, schema=1, at=0, actor="other", cause=None,
        binding=binding, data=canonical(data), hash=b"",
    )  # fmt: skip


def patched(stream: str, type_: str, binding: str | None = None, **patch: Any) -> Event:
    return event(stream, type_, {"patch": patch}, binding)


def claim_ref(name: str) -> dict[str, Any]:
    return {"spec": {"claimRef": {"namespace": "db", "name": name}}}


def planned(claim: str, **more: Any) -> Event:
    return event("binding/b2", "BindingPlanned", {"legs": [{"claim": claim, "claim_uid": "u", "rv": ""}], **more})


@pytest.mark.parametrize(
    ("plan", "happened", "void"),
    [
        # The node itself.
        (PLAIN, patched("node/n1", "NodeChanged", metadata={"labels": {"a": "b"}}), True),
        (PLAIN, patched("node/n1", "NodeChanged", status={"allocatable": {"cpu": "1"}}), True),
        (PLAIN, patched("node/n1", "NodeChanged", status={"conditions": []}), False),
        (PLAIN, patched("node/n1", "NodeChanged", status={"conditions": [], "volumesInUse": ["x"]}), False),
        (PLAIN, patched("node/n2", "NodeChanged", spec={"taints": []}), False),
        (PLAIN, event("node/n1", "NodeDeleted", {}), True),
        (PLAIN, patched("pod/db/b", "PodAssumed", "b2", spec={"nodeName": "n1"}), True),
        (PLAIN, patched("pod/db/b", "PodAssumed", "b2", spec={"nodeName": "n2"}), False),
        (PLAIN, patched("pod/db/b", "PodChanged", "b2", spec={"nodeName": "n1"}), False),
        (PLAIN, patched("pod/db/b", "PodCreated", spec={"nodeName": "n1"}), True),
        # Its claims.
        (PLAIN, patched("volume/other", "VolumeChanged", **claim_ref("data")), True),
        (PLAIN, patched("volume/other", "VolumeCreated", **claim_ref("data")), True),
        (PLAIN, patched("volume/other", "VolumeChanged", **claim_ref("else")), False),
        (PLAIN, patched("volume/other", "VolumeChanged", status={"phase": "Bound"}), False),
        (PLAIN, patched("claim/db/data", "ClaimChanged", metadata={"annotations": {SELECTED_NODE: "n2"}}), True),
        (PLAIN, patched("claim/db/data", "ClaimChanged", metadata={"labels": {"a": "b"}}), False),
        (PLAIN, patched("claim/db/else", "ClaimChanged", metadata={"annotations": {SELECTED_NODE: "n2"}}), False),
        (PLAIN, planned("db/log"), False),
        (ALONE, planned("db/log"), True),
        (ALONE, planned("db/log2"), False),
        # The pod.
        (PLAIN, planned("db/else", pod="db/a"), True),
        (PLAIN, planned("db/else", pod="db/a2"), False),
        # Those that keep away, and those to be near to.
        (PLAIN, planned("db/else", repels=True), True),
        (PLAIN, patched("pod/db/b", "PodChanged", metadata={"labels": {"app": "x"}}), False),
        (MINDS, patched("pod/db/b", "PodAssumed", "b2", spec={"nodeName": "n2"}), True),
        (MINDS, event("pod/db/b", "PodFreed", {"binding": "b2"}, "b2"), True),
        (MINDS, event("pod/db/b", "PodDeleted", {}), True),
        (MINDS, patched("pod/db/b", "PodCreated", spec={"nodeName": "n2"}), True),
        (MINDS, patched("pod/db/b", "PodCreated", metadata={"labels": {"app": "x"}}, spec={}), False),
        (MINDS, patched("pod/db/b", "PodChanged", metadata={"labels": {"app": "x"}}), True),
        (MINDS, patched("pod/db/b", "PodChanged", metadata={"deletionTimestamp": "now"}), True),
        (MINDS, patched("pod/db/b", "PodChanged", status={"phase": "Running"}), False),
        (MINDS, patched("pod/db/b", "PodChanged", status={"phase": "Failed"}), True),
        (MINDS, patched("pod/db/b", "PodChanged", status={"conditions": []}), False),
        (MINDS, patched("node/n2", "NodeChanged", metadata={"labels": {"zone": "b"}}), True),
        (MINDS, patched("node/n2", "NodeChanged", status={"conditions": []}), False),
    ],
)
def test_what_makes_a_plan_worthless(plan: Plan, happened: Event, void: bool) -> None:
    assert (outdated(plan)(happened) is not None) is void


STREAMS = (
    "node/n1", "node/n2", "csinode/n1", "pod/db/b", "claim/db/data", "volume/other", "attachment/at",
    "capacity/kube-system/room",
)  # fmt: skip
PATCHES: tuple[dict[str, Any], ...] = (
    {},
    claim_ref("data"),
    {"spec": {"nodeName": "n1"}},
    {"spec": {"nodeName": "n1", "affinity": {"podAntiAffinity": {}}}},
    {"spec": {"nodeName": "n2", "source": {"persistentVolumeName": "disk"}}},
    {"metadata": {"labels": {"app": "x"}}},
    {"metadata": {"deletionTimestamp": "now"}},
    {"metadata": {"annotations": {SELECTED_NODE: "n1"}}},
    {"metadata": {"annotations": {PROMISED_ROOM: '{"capacity":"kube-system/room","node":"n1","bytes":1}'}}},
    {"status": {"phase": "Succeeded"}},
    {"status": {"allocatable": {"cpu": "1"}}},
    {"status": {"conditions": []}},
)


def test_what_no_plan_is_asked_about_makes_none_worthless() -> None:
    """`may_outdate` stands before every plan of a batch."""
    plans = [outdated(it) for it in (PLAIN, MINDS, ALONE, ROOMY)]
    happened = [
        patched(stream, f"{stream.partition('/')[0].capitalize()}{change}", binding, **patch)
        for stream, change, binding, patch in product(
            STREAMS, ("Created", "Changed", "Deleted", "Assumed", "Freed"), (None, "b2"), PATCHES
        )
    ]
    room = {"claim": "db/else", "claim_uid": "u", "rv": "", "capacity": "kube-system/room"}
    happened += [
        planned("db/log"),
        planned("db/else", repels=True),
        event("binding/b2", "BindingPlanned", {"legs": [room]}),
        event("binding/b2", "BindingMoved", {"state": "waiting", "open": True}, "b2"),
        event("attempt/a", "AttemptMade", {"pod": "db/b", "node": "n1"}),
    ]
    decisive = [it for it in happened if any(why(it) is not None for why in plans)]
    assert {it.stream for it in decisive} == {*STREAMS, "binding/b2"}
    assert [it for it in decisive if not may_outdate(it)] == []
    usual = [
        patched("pod/db/b", "PodChanged", "b2", spec={"nodeName": "n1"}),
        patched("pod/db/b", "PodChanged", status={"phase": "Running"}),
        patched("volume/other", "VolumeChanged", "b2", **claim_ref("data")),
        patched("claim/db/data", "ClaimChanged", status={"phase": "Bound"}),
        event("binding/b2", "LegMoved", {"leg": 0, "state": "bound", "open": True}, "b2"),
    ]
    assert not any(map(may_outdate, usual))
