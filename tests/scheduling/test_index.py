"""The index as its users meet it."""

from dataclasses import replace

from tests.support.objects import (
    BY_NAME,
    claim,
    dynamic_class,
    in_zone,
    local_volume,
    node,
    pod,
    read,
    storage_class,
)
from volsched.kube.manifest import bind_volume
from volsched.kube.object_values import Object
from volsched.kube.storage import Claim, Volume
from volsched.scheduling.index import Index
from volsched.scheduling.queue.entry import Share
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.profile import PARITY, VOLSCHED
from volsched.scheduling.rules.reasons import NO_VOLUME_TO_BIND
from volsched.scheduling.rules.status import Code


def cluster(*more: object) -> Index:
    index = Index([node("n1"), node("n2"), storage_class(), claim("data", "5Gi")], profile=BY_NAME)
    for value in more:
        index.put(value)  # type: ignore[arg-type]
    return index


def test_the_closest_fit_wins_and_a_tie_goes_to_the_smallest_name() -> None:
    index = cluster(local_volume("large", "50Gi", "n1"), local_volume("close", "5Gi", "n2"))
    made = index.decide(pod("data"))
    assert made.chosen is not None
    assert (made.chosen.node, [it.volume.name for it in made.chosen.answer.bindings]) == ("n2", ["close"])
    index.put(local_volume("as-close", "5Gi", "n1"))
    tied = index.decide(pod("data"))
    assert tied.chosen is not None
    assert tied.chosen.node == "n1"


def test_what_was_taken_is_not_offered_again_until_it_is_free() -> None:
    index = cluster(local_volume("only", "5Gi", "n2"))
    first = index.decide(pod("data")).chosen
    assert first is not None
    binding = first.answer.bindings[0]
    index.put(bind_volume(binding.volume, binding.claim)[0])
    index.put(claim("other", "5Gi"))
    refused = index.decide(pod("other", name="next"))
    assert refused.status.reasons == (f"0/2 nodes are available: 2 {NO_VOLUME_TO_BIND}.",)
    index.put(binding.volume)
    assert index.decide(pod("other", name="next")).chosen is not None


def test_deciding_changes_nothing() -> None:
    index = cluster(local_volume("v", "5Gi", "n1"))
    assert index.decide(pod("data")) == index.decide(pod("data"))


def test_ties_of_one_pod_begin_at_one_place_and_those_of_many_pods_everywhere() -> None:
    """Round the ring of names; of several schedulers each stays in its part while there is a tie to settle."""
    nodes = [node(f"n{number}") for number in range(8)]
    alone, second = Index(nodes), Index(nodes, share=Share(1, 4))
    chosen = [alone.decide(pod(name=f"p{number}")).chosen for number in range(64)]
    again = [alone.decide(pod(name=f"p{number}")).chosen for number in range(64)]
    assert chosen == again
    assert {it.node for it in chosen if it is not None} == {it.name for it in nodes}
    mine = [second.decide(pod(name=f"p{number}")).chosen for number in range(64)]
    assert {it.node for it in mine if it is not None} == {"n2", "n3"}
    made = alone.decide(pod(name="p0"))
    assert made.chosen is not None
    first = int(made.chosen.node[1:])
    assert [it.node for it in made.runners_up] == [f"n{(first + step) % 8}" for step in (1, 2, 3)]


def test_in_parity_ties_go_by_name() -> None:
    index = Index([node("n1"), node("n2")], profile=PARITY)
    made = [index.decide(pod(name=f"p{number}")).chosen for number in range(16)]
    assert {it.node for it in made if it is not None} == {"n1"}


def test_a_pod_without_claims_goes_to_the_first_node() -> None:
    made = cluster().decide(pod())
    assert made.chosen is not None
    assert made.chosen.node == "n1"


def test_without_nodes_nothing_is_available() -> None:
    made = Index([storage_class(), claim("data")]).decide(pod("data"))
    assert (made.status.code, made.status.reasons) == (Code.UNRESOLVABLE, ("no nodes available to schedule pods",))


def test_a_missing_claim_is_reported_in_the_words_of_the_rules() -> None:
    reasons = cluster().decide(pod("gone")).status.reasons
    assert reasons == ('0/2 nodes are available: persistentvolumeclaim "gone" not found.',)


def test_reserved_room_is_not_given_twice() -> None:
    driver = read("CSIDriver", {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}})
    room = {
        "metadata": {"name": "n1", "namespace": "csi"},
        "storageClassName": "dyn",
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "n1"}},
        "capacity": "8Gi",
    }
    index = Index([in_zone("n1", "a"), dynamic_class(), driver, read("CSIStorageCapacity", room)])
    index.put(claim("data", "5Gi", cls="dyn"))
    assert index.decide(pod("data")).chosen is not None
    index.reserve("csi/n1", 5 * 2**30)
    assert index.decide(pod("data")).chosen is None
    index.reserve("csi/n1", 0)
    assert index.decide(pod("data")).chosen is not None


def test_dropping_what_is_not_there_is_nothing() -> None:
    index = cluster()
    index.drop(Volume, "nobody")
    index.drop(Claim, "db/data")
    assert "db/data" not in index.snapshot.stored_claims


def test_explaining_a_node_names_the_volumes_that_came_near() -> None:
    index = cluster(local_volume("small", "1Gi", "n1"))
    only = frozenset(["n1", "no-such-node"])
    verdict = attempt(index.snapshot, pod("data"), profile=VOLSCHED, only=only).verdicts[0]
    assert [miss.volume for miss in verdict.answer.rejections[0].misses] == ["small"]


def test_a_selector_learnt_late_splits_volumes_that_were_alike() -> None:
    index = cluster(
        local_volume("hdd", "5Gi", "n1", labels={"tier": "hdd"}),
        local_volume("ssd", "6Gi", "n2", labels={"tier": "ssd"}),
    )
    picky = replace(claim("picky", "5Gi", selector={"matchLabels": {"tier": "ssd"}}))
    index.put(picky)
    made = index.decide(pod("picky"))
    assert made.chosen is not None
    assert made.chosen.node == "n2"


def test_schedulers_that_run_beside_each_other_settle_ties_at_different_nodes() -> None:
    """The first, like an only one, by name; and each goes on from where it began, round to the others'."""
    nodes = [node(f"n{number}") for number in range(8)]
    chosen, next_best = [], []
    for number in range(4):
        made = Index(nodes, profile=BY_NAME, share=Share(number, 4)).decide(pod())
        assert made.chosen is not None
        chosen.append(made.chosen.node)
        next_best.append([it.node for it in made.runners_up])
    assert chosen == ["n0", "n2", "n4", "n6"]
    assert (next_best[0], next_best[3]) == (["n1", "n2", "n3"], ["n7", "n0", "n1"])


def test_a_tie_is_only_a_tie_whoever_settles_it() -> None:
    objects: list[Object] = [storage_class(), claim("data", "4Gi"), node("a"), node("b"), node("c")]
    objects += [local_volume("x", "5Gi", "a"), local_volume("y", "9Gi", "b"), local_volume("z", "9Gi", "c")]
    made = Index(objects, profile=BY_NAME, share=Share(1, 2)).decide(pod("data"))
    assert made.chosen is not None
    assert (made.chosen.node, [it.node for it in made.runners_up]) == ("a", ["b", "c"])
