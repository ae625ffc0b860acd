"""InterPodAffinity: who is where decides."""

from typing import Any

import pytest

from tests.scheduling.plugin_verdicts import refusals, scores, statuses
from tests.support.objects import in_zone, needs, node, pod, read
from volsched.kube.meta import HOSTNAME, ZONE
from volsched.kube.object_values import Object
from volsched.kube.workloads import Pod
from volsched.scheduling.plugins.inter_pod_affinity import InterPodAffinity
from volsched.scheduling.rules.status import Code

NODES = [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b"), node("bare", labels={})]
NOT_NEAR = "node(s) didn't match pod affinity rules"
TOO_NEAR = "node(s) didn't match pod anti-affinity rules"
NOT_WANTED = "node(s) didn't satisfy existing pods anti-affinity rules"
DB = {"matchLabels": {"app": "db"}}


def term(key: str = ZONE, selector: Any = DB, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": selector, **more}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def far(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def liking(weight: int, given: dict[str, Any], *, anti: bool = False) -> dict[str, Any]:
    terms = [{"weight": weight, "podAffinityTerm": given}]
    return {
        "podAntiAffinity" if anti else "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    }


def there(
    name: str, on: str, app: str = "db", *, namespace: str = "db", phase: str = "Running", **more: Any
) -> Pod:
    return pod(name=name, on=on, namespace=namespace, phase=phase, labels={"app": app}, **more)


def refused(wanting: Pod, *others: Object) -> dict[str, str]:
    found = refusals(InterPodAffinity(), wanting, [*NODES, *others])
    return {name: reason for name, (reason,) in found.items()}


EVERYWHERE = dict.fromkeys(["a1", "a2", "b1", "bare"], NOT_NEAR)
OUTSIDE_A = {"b1": NOT_NEAR, "bare": NOT_NEAR}
IN_A = {"a1": TOO_NEAR, "a2": TOO_NEAR}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (near(term()), OUTSIDE_A),
        (near(term(HOSTNAME)), {**OUTSIDE_A, "a2": NOT_NEAR}),
        (near(term(), term(HOSTNAME)), {**OUTSIDE_A, "a2": NOT_NEAR}),
        # No pod is meant by both.
        (near(term(), term(selector={"matchLabels": {"app": "web"}})), EVERYWHERE),
        (near(term(selector={})), OUTSIDE_A),
        (near({"topologyKey": ZONE}), EVERYWHERE),
        (near(term("rack")), EVERYWHERE),
        (far(term()), IN_A),
        (far(term(HOSTNAME)), {"a1": TOO_NEAR}),
        (far(term("rack")), {}),
        (far({"topologyKey": ZONE}), {}),
        (far(term(selector={"matchExpressions": [needs("app", "NotIn", "db")]})), {}),
        ({**near(term()), **far(term(HOSTNAME))}, {**OUTSIDE_A, "a1": TOO_NEAR}),
        (
            near(term(selector={"matchExpressions": [needs("app", "Bogus")]})),
            {"": 'parsing pod: "Bogus" is not a valid label selector operator'},
        ),
    ],
)
def test_required_terms_count_whole_domains(affinity: dict[str, Any], expected: dict[str, str]) -> None:
    assert refused(pod(affinity=affinity), there("db-0", "a1")) == expected


@pytest.mark.parametrize(
    "other",
    [
        there("done", "a1", phase="Succeeded"),
        there("waiting", ""),
        there("lost", "no-such-node"),
        there("app", "a1"),
        there("foreign", "a1", namespace="web"),
    ],
)
def test_pods_that_are_not_there_are_nobodys_neighbours(other: Pod) -> None:
    """Nor is the pod itself, where it was placed before, or one of another namespace."""
    assert refused(pod(affinity=far(term())), other) == {}


@pytest.mark.parametrize(
    ("labels", "others", "expected"),
    [
        ({"app": "db"}, [], {"bare": NOT_NEAR}),
        ({"app": "web"}, [], EVERYWHERE),
        ({"app": "db"}, [there("db-0", "b1")], {"a1": NOT_NEAR, "a2": NOT_NEAR, "bare": NOT_NEAR}),
        # One that is on a node without the label counts nowhere, so it does not count.
        ({"app": "db"}, [there("db-0", "bare")], {"bare": NOT_NEAR}),
    ],
)
def test_the_first_of_pods_that_want_to_be_together_may_begin(
    labels: dict[str, str], others: list[Pod], expected: dict[str, str]
) -> None:
    assert refused(pod(labels=labels, affinity=near(term())), *others) == expected


TEAM_X = {"matchLabels": {"team": "x"}}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {}),
        ({"namespaces": ["web"]}, IN_A),
        ({"namespaces": ["db"]}, {}),
        ({"namespaceSelector": {}}, IN_A),
        ({"namespaceSelector": TEAM_X}, IN_A),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, {}),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}}, IN_A),
        ({"namespaces": ["db"], "namespaceSelector": TEAM_X}, IN_A),
    ],
)
def test_a_term_means_the_namespaces_that_it_names_or_selects(
    more: dict[str, Any], expected: dict[str, str]
) -> None:
    web = read("Namespace", {"metadata": {"name": "web", "labels": {"team": "x"}}})
    other = there("db-0", "a1", namespace="web")
    assert refused(pod(affinity=far(term(**more))), web, other) == expected
    # And the other way round: the pod that is placed has the term.
    web = read("Namespace", {"metadata": {"name": "db", "labels": {"team": "x"}}})
    swapped = {name: value if name != "namespaces" else [_other(value[0])] for name, value in more.items()}
    if "kubernetes.io/metadata.name" in str(more):
        swapped = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "db"}}}
    placed = there("db-0", "a1", namespace="web", affinity=far(term(**swapped)))
    found = refused(pod(labels={"app": "db"}), web, placed)
    assert found == dict.fromkeys(expected, NOT_WANTED)


def _other(namespace: str) -> str:
    return "db" if namespace == "web" else "web"


@pytest.mark.parametrize(
    ("keys", "version", "expected"),
    [
        ({"matchLabelKeys": ["version"]}, "1", IN_A),
        ({"matchLabelKeys": ["version"]}, "2", {}),
        ({"matchLabelKeys": ["absent"]}, "2", IN_A),
        ({"mismatchLabelKeys": ["version"]}, "1", {}),
        ({"mismatchLabelKeys": ["version"]}, "2", IN_A),
    ],
)
def test_label_keys_narrow_a_term_to_pods_like_the_owner_or_unlike(
    keys: dict[str, Any], version: str, expected: dict[str, str]
) -> None:
    other = pod(name="db-0", on="a1", labels={"app": "db", "version": "1"})
    assert refused(pod(labels={"version": version}, affinity=far(term(**keys))), other) == expected


def test_placed_pods_keep_away_whom_their_terms_mean() -> None:
    placed = there("db-0", "a1", affinity=far(term(selector={"matchLabels": {"app": "web"}})))
    assert refused(pod(labels={"app": "web"}), placed) == {"a1": NOT_WANTED, "a2": NOT_WANTED}
    assert refused(pod(labels={"app": "db"}), placed) == {}


def test_an_eviction_helps_against_anti_affinity_only() -> None:
    found = statuses(
        InterPodAffinity(), pod(affinity={**near(term()), **far(term(HOSTNAME))}), [*NODES, there("x", "a1")]
    )
    assert (found["a1"].code, found["b1"].code) == (Code.UNSCHEDULABLE, Code.UNRESOLVABLE)


@pytest.mark.parametrize(
    ("affinity", "theirs", "expected"),
    [
        (liking(10, term()), {}, {"a1": 100, "a2": 100, "b1": 50, "bare": 0}),
        (liking(10, term(), anti=True), {}, {"a1": 0, "a2": 0, "b1": 50, "bare": 100}),
        (liking(10, term(HOSTNAME)), {}, {"a1": 100, "a2": 100, "b1": 100, "bare": 0}),
        (
            {},
            liking(3, term(selector={"matchLabels": {"app": "web"}})),
            {"a1": 100, "a2": 100, "b1": 50, "bare": 0},
        ),
        # A required affinity of those that are there counts as a weight of 1.
        ({}, near(term(selector={"matchLabels": {"app": "web"}})), {"a1": 100, "a2": 100, "b1": 50, "bare": 0}),
        ({}, {}, {"a1": 0, "a2": 0, "b1": 0, "bare": 0}),
    ],
)
def test_every_pod_that_is_liked_counts_in_its_domain(
    affinity: dict[str, Any], theirs: dict[str, Any], expected: dict[str, int]
) -> None:
    """Two of them in zone a, one in zone b."""
    placed = [there(f"db-{on}", on, affinity=theirs) for on in ("a1", "a2", "b1")]
    assert scores(InterPodAffinity(), pod(labels={"app": "web"}, affinity=affinity), [*NODES, *placed]) == expected
