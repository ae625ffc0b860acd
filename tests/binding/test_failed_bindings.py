"""What refuses a pod ranks last from then on: in the scheduler, after a restart, decided again and explained."""

from dataclasses import replace

import pytest

from tests.support.clusters import node, pod
from tests.support.storage import CLAIM, ZONE, Cluster, asked, made_by
from volsched.binding.rules.reasons import REFUSED
from volsched.kube.meta import BINDING_STAMP, SELECTED_NODE
from volsched.lab.drills.redecision import redecide
from volsched.log.database import Database
from volsched.log.reads.tail import read_head
from volsched.provisioning.simulated import SIMULATED, Simulated
from volsched.questions.source import explanation, sight_of
from volsched.runtime.clock import SECOND
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.rules.configuration import Configuration
from volsched.scheduling.rules.profile import PARITY, VOLSCHED, Profile

PODS = 8
MISFIT = "n2"
"""Without a zone: every rule accepts it, and a zonal provisioner refuses it."""


def zonal(database: Database, *, profile: Profile = VOLSCHED, pods: int = PODS) -> Cluster:
    nodes = [node("n1", **{ZONE: "a"}), node(MISFIT), node("n3", **{ZONE: "b"}), node("n4", **{ZONE: "c"})]
    made = Cluster(
        database,
        [made_by(SIMULATED), *nodes],
        provisioners=[Simulated()],
        configuration=Configuration(profile),
    )
    for number in range(pods):
        made.create(asked(f"data-{number}", "1Gi"), pod(f"app-{number}", f"data-{number}"))
    return made


def plans(cluster: Cluster) -> dict[str, list[str]]:
    """Pod → the nodes it was planned on, in that order."""
    found: dict[str, list[str]] = {}
    for row in cluster.bindings():
        found.setdefault(row.pod, []).append(row.node)
    return found


def all_placed(cluster: Cluster) -> bool:
    return all(cluster.node_of(f"app-{number}") is not None for number in range(PODS))


def test_no_pod_comes_to_a_node_that_refused_it_while_another_would_take_it(database: Database) -> None:
    cluster = zonal(database)
    cluster.until(lambda: all_placed(cluster))
    met = plans(cluster)
    assert all(len(nodes) <= 2 and nodes[-1] != MISFIT for nodes in met.values())
    # Ties begin elsewhere for every pod, so some met it first, and others never did.
    assert 0 < sum(MISFIT in nodes for nodes in met.values()) < PODS


def test_a_definite_refusal_is_recorded_as_refused(database: Database) -> None:
    cluster = zonal(database)
    cluster.until(lambda: all_placed(cluster))
    failed = [row for row in cluster.bindings() if row.node == MISFIT]
    legs = [leg for row in failed for leg in cluster.legs(row.id)]
    assert {(leg.state, leg.reason) for leg in legs} == {("released", REFUSED)}


def refused_once(cluster: Cluster) -> str:
    """A pod that was refused and is not planned again yet."""
    cluster.until(lambda: any(row.state == "rolled-back" for row in cluster.bindings()))
    return str(next(row.pod for row in cluster.bindings() if row.state == "rolled-back"))


def test_nothing_of_a_refused_claim_is_left_on_it(database: Database) -> None:
    cluster = zonal(database)
    name = refused_once(cluster).replace("app", "data")
    marks = cluster.cluster.get(CLAIM, name)["metadata"]["annotations"]
    assert not {BINDING_STAMP, SELECTED_NODE} & marks.keys()


def test_whoever_starts_now_remembers_the_same(database: Database) -> None:
    cluster = zonal(database)
    refused_once(cluster)
    cluster.until(lambda: all_placed(cluster))
    cluster.settle()
    fresh = World(database)
    fresh.catch_up()
    assert fresh.failures
    assert fresh.failures == cluster.system.world.failures


def test_it_is_explained_as_it_will_be_decided(database: Database) -> None:
    cluster = zonal(database)
    key = refused_once(cluster)
    told = explanation(sight_of(database, (), profile=VOLSCHED), key, node=None, now=cluster.now)
    cluster.until(lambda: all_placed(cluster))
    assert told["failing"]["untried"][0] == plans(cluster)[key][1]
    assert {it["node"] for it in told["failing"]["nodes"]} == {MISFIT}


def test_history_is_decided_again_as_it_was(database: Database) -> None:
    cluster = zonal(database)
    # One after the other, so that each request was decided on all that was recorded before it.
    cluster.system.scheduler.batch = 1
    cluster.until(lambda: all_placed(cluster), steps=400)
    with database.read() as connection:
        until = read_head(connection).position
    again = redecide(database, profile=VOLSCHED, after=0, until=until)
    assert any(len(nodes) > 1 for nodes in plans(cluster).values())
    assert again.verdicts == {"the same": sum(map(len, plans(cluster).values()))}
    forgetful = redecide(database, profile=replace(VOLSCHED, remembers_failures=False), after=0, until=until)
    assert {it.again.node for it in forgetful.changed} == {MISFIT}


@pytest.mark.parametrize("profile", [PARITY, replace(VOLSCHED, remembers_failures=False)], ids=lambda it: it.name)
def test_without_the_memory_a_pod_is_planned_on_the_refusing_node_again_and_again(
    database: Database, profile: Profile
) -> None:
    """As the reference does; this is what the tests above would see."""
    cluster = zonal(database, profile=replace(profile, ties_by_pod=True))
    key = refused_once(cluster)
    cluster.wait(60)
    assert set(plans(cluster)[key]) == {MISFIT}
    assert len(plans(cluster)[key]) > 4


def test_the_memory_of_a_pod_ends_and_the_node_is_as_good_as_any_again(database: Database) -> None:
    cluster = zonal(database)
    key = refused_once(cluster)
    picture = Picture(World(database))
    picture.catch_up(cluster.now)
    wanting = picture.index.snapshot.pods[key]
    assert picture.demerits(wanting, cluster.now).nodes == {MISFIT: 1}
    assert not picture.demerits(wanting, cluster.now + 60 * SECOND)
