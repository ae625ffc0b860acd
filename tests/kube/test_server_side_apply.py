"""Field sets and server-side apply: laws that hold for all objects, and what is removed with what."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.call_counts import calls_of
from volsched.kube.field_sets import field_changes, field_set, from_fields_v1, to_fields_v1
from volsched.kube.server_side_apply import APPLY, FieldOwner, applied_fields, created_fields, managed_fields

POD = "V1Pod"
TEXTS = st.sampled_from(["a", "b", "c"])
ENV = st.lists(st.fixed_dictionaries({"name": TEXTS, "value": TEXTS}), min_size=1, unique_by=lambda it: it["name"])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS, "image": TEXTS}, optional={"env": ENV, "args": st.lists(TEXTS, min_size=1)}
    ),
    min_size=1,
    unique_by=lambda it: it["name"],
)
LABELS = st.dictionaries(TEXTS, TEXTS, min_size=1)
PODS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": st.fixed_dictionaries(
            {"name": st.just("p"), "labels": LABELS},
            optional={"finalizers": st.lists(TEXTS, min_size=1, unique=True)},
        ),
    },
    optional={
        "spec": st.dictionaries(st.just("nodeSelector"), LABELS, min_size=1)
        | st.fixed_dictionaries({"containers": CONTAINERS}, optional={"nodeSelector": LABELS})
    },
)
Pod = dict[str, Any]


def owner(name: str) -> FieldOwner:
    return FieldOwner(name, APPLY, "v1", time="t")


def with_owners(manifest: Pod, owners: list[FieldOwner]) -> Pod:
    metadata = {**manifest.get("metadata", {}), "managedFields": managed_fields(owners)}
    return {**manifest, "metadata": metadata}


@given(PODS)
def test_a_set_of_fields_is_what_its_spelling_says(pod: Pod) -> None:
    fields = field_set(pod, POD)
    assert from_fields_v1(to_fields_v1(fields)) == fields


@given(PODS, PODS)
def test_what_has_changed_is_reported_both_ways(old: Pod, new: Pod) -> None:
    forth, back = field_changes(old, new, POD), field_changes(new, old, POD)
    assert forth.removed <= back.changed
    assert back.removed <= forth.changed
    assert field_changes(old, old, POD) == (frozenset(), frozenset())


@given(PODS, PODS)
def test_one_manager_gets_what_it_applied_last_and_nothing_else(first: Pod, last: Pod) -> None:
    live = with_owners(first, created_fields(first, POD, owner("m")))
    done = applied_fields(live, last, POD, owner("m"), force=False)
    assert field_set(done.manifest, POD) == field_set(last, POD)
    again = applied_fields(with_owners(done.manifest, done.owners), last, POD, owner("m"), force=False)
    assert again.manifest == done.manifest
    assert managed_fields(again.owners) == managed_fields(done.owners)


@given(PODS, PODS)
def test_by_force_every_field_that_was_named_is_as_it_was_named(one: Pod, two: Pod) -> None:
    live = with_owners(one, created_fields(one, POD, owner("one")))
    done = applied_fields(live, two, POD, owner("two"), force=True)
    assert not field_changes(done.manifest, two, POD).changed & field_set(two, POD)
    # Nothing of the other's is gone.
    assert not field_changes(one, done.manifest, POD).removed


def test_an_item_goes_with_its_last_owner() -> None:
    both = {"containers": [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]}
    first: Pod = {"metadata": {"name": "p"}, "spec": both}
    live = with_owners(first, created_fields(first, POD, owner("one")))
    second = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "side", "args": ["x"]}]}}
    shared = applied_fields(live, second, POD, owner("two"), force=False)
    main: Pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
    left = applied_fields(with_owners(shared.manifest, shared.owners), main, POD, owner("one"), force=False)
    assert left.manifest["spec"]["containers"][1] == {"name": "side", "args": ["x"]}
    gone = applied_fields(
        with_owners(left.manifest, left.owners), {"metadata": {"name": "p"}}, POD, owner("two"), force=False
    )
    assert gone.manifest["spec"] == main["spec"]


def with_finalizers(names: list[str]) -> Pod:
    return {"metadata": {"name": "p", **({"finalizers": names} if names else {})}}


@pytest.mark.parametrize(
    "applied", [list, lambda names: names[::-1], lambda _: []], ids=["same", "turned", "none"]
)
def test_what_an_apply_costs_grows_with_the_object_and_no_faster(
    applied: Callable[[list[str]], list[str]],
) -> None:
    """A list of some thousand items, applied or left out by a body of a few bytes, would keep a processor busy."""

    def cost(count: int) -> int:
        names = [f"example.com/f{number}" for number in range(count)]
        live = with_owners(with_finalizers(names), created_fields(with_finalizers(names), POD, owner("m")))
        config = with_finalizers(applied(names))
        return calls_of(lambda: managed_fields(applied_fields(live, config, POD, owner("m"), force=False).owners))

    assert cost(400) <= 5 * cost(100)
