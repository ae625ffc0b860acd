"""In which order a node asks whether it takes a pod, and when a claim becomes Dirty (10.1)."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.node_agent.node_scenes import LOCAL, claim, disk, mounts, node, pod
from tests.support.objects import affinity, needs, on_zone, read
from volsched.kube.meta import ROLLBACK, ZONE
from volsched.kube.workloads import Node, Pod
from volsched.node_agent.rules.admission import CHECKS, Admitted, NotYet, Rejected, Verdict, admit

ASKED_BACK = {ROLLBACK: "uid-of-some-pod"}


def verdict(**different: Any) -> Verdict:
    """A pod with two claims; `first` and `second` are pairs of claim and volume."""
    given = different.pop("given", pod("data", "more"))
    data, more = claim("data", bound_to="pv-1"), claim("more", bound_to="pv-2")
    pairs = {"first": (data, disk(data, **LOCAL)), "second": (more, disk(more, **LOCAL)), **different}
    on = pairs.pop("on", node(**{ZONE: "z1"}))
    checks = pairs.pop("checks", CHECKS)
    others = pairs.pop("others", ())
    return admit(given, on, others, mounts(given, pairs["first"], pairs["second"]), checks=checks)


def full(_: Pod, node: Node, others: Sequence[Pod]) -> str | None:
    return f"{node.name} is full" if others else None


def far(name: str = "data") -> Any:
    held = claim(name, bound_to=f"pv-{name}", annotations=ASKED_BACK)
    return held, disk(held, nodeAffinity=on_zone("z2"), **LOCAL)


def test_an_admitted_pod_has_all_its_claims_marked() -> None:
    assert verdict() == Admitted(("db/data", "db/more"))


@pytest.mark.parametrize(
    ("state", "marked"),
    [("Clean", True), (None, True), ("Dirty", False)],
    ids=["clean", "absent, which means dirty", "dirty already"],
)
def test_what_admission_makes_of_a_data_state(state: str | None, marked: bool) -> None:
    held = claim("data", bound_to="pv-1", state=state)
    assert verdict(first=(held, disk(held, **LOCAL))) == Admitted(
        ("db/data", "db/more") if marked else ("db/more",)
    )


def test_a_read_only_mount_counts_as_use() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}]
    given, held = pod(volumes=volumes), claim()
    found = admit(given, node(), (), mounts(given, (held, disk(held, **LOCAL))))
    assert found == Admitted(("db/data",))


@pytest.mark.parametrize(
    ("different", "said"),
    [
        ({"others": [pod()], "checks": [*CHECKS, full], "first": far()}, "n1 is full"),
        ({"given": pod("data", "more", nodeSelector={ZONE: "z9"}), "first": far()}, "node affinity/selector"),
        ({"first": far()}, 'the node affinity of PersistentVolume "pv-data" excludes node "n1"'),
        (
            {"first": (None, None), "second": far("more")},
            'the node affinity of PersistentVolume "pv-more" excludes node "n1"',
        ),
        (
            {"first": (None, None), "second": (claim("more", bound_to=None, annotations=ASKED_BACK), None)},
            '"db/more" is undergoing rollback',
        ),
    ],
    ids=["check before reach", "selector before reach", "reach before rollback", "reach before mounting",
         "rollback before mounting"],
)  # fmt: skip
def test_the_first_reason_in_order_turns_the_pod_away(different: dict[str, Any], said: str) -> None:
    found = verdict(**different)
    assert isinstance(found, Rejected)
    assert said in found.message


def test_a_check_that_passes_is_not_the_end_of_it() -> None:
    assert verdict(checks=[*CHECKS, full]) == Admitted(("db/data", "db/more"))


@pytest.mark.parametrize("state", ["Clean", "Dirty"])
def test_a_claim_that_is_asked_back_is_never_marked(state: str) -> None:
    held = claim("more", bound_to="pv-2", annotations=ASKED_BACK, state=state)
    assert isinstance(verdict(second=(held, disk(held, **LOCAL))), Rejected)


def test_nothing_is_marked_while_one_claim_cannot_be_mounted() -> None:
    """The mark would be final, and the other claims could never be asked back."""
    found = verdict(second=(claim("more", bound_to=None), None))
    assert isinstance(found, NotYet)
    assert "db/more" in found.message


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity(*terms)["required"]}}


def containers(cpu: str) -> list[dict[str, Any]]:
    return [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]


def evicting(**taint: str) -> dict[str, Any]:
    return {"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute", **taint}]}}


TOLERATING = [{"key": "maintenance", "operator": "Exists"}]
SMALL = {"status": {"allocatable": {"cpu": "2", "pods": "2"}}}


@pytest.mark.parametrize(
    ("spec", "of_node", "said"),
    [
        ({}, {}, None),
        ({"nodeSelector": {ZONE: "z1"}}, {}, None),
        ({"nodeSelector": {ZONE: "z2"}}, {}, "affinity/selector"),
        ({"nodeSelector": {"rack": ""}}, {}, "affinity/selector"),
        ({"affinity": required({"matchExpressions": [needs(ZONE, "In", "z1")]})}, {}, None),
        ({"affinity": required({"matchExpressions": [needs(ZONE, "NotIn", "z1")]})}, {}, "affinity/selector"),
        ({"affinity": required({"matchFields": [needs("metadata.name", "In", "n2")]})}, {}, "affinity/selector"),
        ({"affinity": required()}, {}, "affinity/selector"),
        ({"containers": containers("1")}, SMALL, None),
        ({"containers": containers("1500m")}, SMALL, "Insufficient cpu"),
        ({"containers": containers("3")}, {}, None),
        ({}, {"status": {"allocatable": {"pods": "1"}}}, "Too many pods"),
        ({}, evicting(), "taint maintenance:NoExecute"),
        ({"tolerations": TOLERATING}, evicting(), None),
        ({}, evicting(effect="NoSchedule"), None),
    ],
)
def test_the_node_asks_again_what_a_kubelet_asks(
    spec: dict[str, Any], of_node: dict[str, Any], said: str | None
) -> None:
    """Beside one other pod that wants a whole cpu."""
    host: Node = read("Node", {"metadata": {"name": "n1", "labels": {ZONE: "z1"}}, **of_node})
    found = admit(pod(**spec), host, [pod(containers=containers("1"))], ())
    if said is None:
        assert found == Admitted()
    else:
        assert isinstance(found, Rejected)
        assert said in found.message
