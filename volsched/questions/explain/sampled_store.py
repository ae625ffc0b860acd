"""Explaining a pod of a large store from a sample of its volumes, with the same answer as from the whole store.

A few of each group of similar free volumes are read: of the storage classes that the pod requests if a decision
finds a node, of every class if it finds none. Bound volumes, with their claims, affect no other pod's decision
unless they take attach slots: if no node was found, those are read that an explanation may name, the nearest of
all and those within reach of the nodes that it judges.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest import reaches
from volsched.kube.object_values import Object
from volsched.kube.quantity import INT64_MAX
from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Pod
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState
from volsched.log.garbage_pause import collector_resting
from volsched.log.reads.lookups import count_of
from volsched.log.reads.tail import read_head, state_as_of
from volsched.log.reads.volume_outlines import (
    VolumeOutline,
    free_volumes,
    load_but_outlined,
    load_volumes,
    settled_volumes,
)
from volsched.questions.explain.explain import stuck_claims
from volsched.questions.explain.remedies import first_nodes
from volsched.questions.explain.remedies_volumes import created_claim
from volsched.questions.explain.survey import NodeSurroundings, StoreSample, is_small, sampled_nodes
from volsched.questions.explain.volume_sample import for_decision, for_remedies, nearest_anywhere
from volsched.questions.simulate.changes import lay_over
from volsched.questions.source import (
    Sight,
    add_planned_pod,
    failure_memory,
    for_caller,
    pod_explanation,
    pod_in,
)
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture, read_object
from volsched.scheduling.index import Index
from volsched.scheduling.rules.pod_claims import claim_uses
from volsched.scheduling.rules.profile import Profile
from volsched.scheduling.rules.snapshot import Snapshot

MANY_VOLUMES = 2_000
"""With fewer volumes than this, all are read."""


def explanation_from_sample(
    database: Database,
    objects: Sequence[Object],
    key: str,
    *,
    profile: Profile,
    now: int,
    node: str | None = None,
    namespaces: frozenset[str] | None = None,
) -> dict[str, Any] | None:
    """The same answer as `explanation` of the whole store; None if the store is small enough to read whole."""
    with database.read() as connection, collector_resting():
        volumes = count_of(connection, "volume")
        if volumes < MANY_VOLUMES or is_small(nodes=count_of(connection, "node"), on_each=volumes):
            return None
        claims = _claims_that_matter(connection, objects, key)
        sight = _sight_without_volumes(connection, database, objects, profile, claims)
        workload = add_planned_pod(sight, key)
        pod = pod_in(sight, key, namespaces)
        _load(connection, sight, (it.volume_name for it in _surroundings(sight, pod).claims() if it.volume_name))
        fits = _fits(connection, sight, pod, node, now)
        nodes = None if fits else _load_what_may_be_named(connection, sight, pod, node, claims)
    assert sight.picture is not None
    read = sum(1 for stream in sight.picture.world.states if stream.startswith("volume/"))
    answer = pod_explanation(replace(sight, sample=StoreSample(volumes - read, nodes)), pod, node=node, now=now)
    return for_caller(sight, answer, workload, namespaces)


def _claims_that_matter(connection: Connection, objects: Sequence[Object], key: str) -> set[str] | None:
    """The claims of the pod and of objects laid over the store; None if a workload must create the pod first."""
    pods = [it for it in objects if isinstance(it, Pod)]
    if all(it.meta.key != key for it in pods):
        state = state_as_of(connection, f"pod/{key}", position=read_head(connection).position)
        if not isinstance(state, ObjectState) or state.manifest is None:
            return None
        stored = read_object("pod", state.manifest, state.rv)
        assert isinstance(stored, Pod)
        pods.append(stored)
    refs = (it.claim_ref for it in objects if isinstance(it, Volume))
    return {
        *(use.key for pod in pods for use in claim_uses(pod)),
        *(it.key for it in objects if isinstance(it, Claim)),
        *(f"{ref.namespace}/{ref.name}" for ref in refs if ref is not None),
    }


def _sight_without_volumes(
    connection: Connection,
    database: Database,
    objects: Sequence[Object],
    profile: Profile,
    claims: set[str] | None,
) -> Sight:
    loaded = load_but_outlined(connection, claims=claims)
    world = World(database, loaded.position, loaded.states)
    for binding, state in loaded.failed:
        world.failures.note(binding, state)
    picture = Picture(world, index=Index(profile=profile))
    picture.update(world.states)
    lay_over(picture.index, objects)
    sight = Sight(picture.index, database, picture, objects)
    named_volumes = [it.volume_name for it in objects if isinstance(it, Claim)]
    named_volumes += [it.volume_name for it in objects if isinstance(it, VolumeAttachment)]
    _load(connection, sight, filter(None, named_volumes))
    return sight


def _fits(connection: Connection, sight: Sight, pod: Pod, node: str | None, now: int) -> bool:
    """Whether the pod fits, with as many volumes as a decision needs; False if the question is about one node."""
    if node is not None or stuck_claims(sight.index.snapshot, pod):
        return False
    claims = _surroundings(sight, pod).unbound_claims()
    sizes = _sizes(claims)
    if sizes:
        outlines = free_volumes(connection, classes={it.class_name for it in claims}, least=min(sizes))
        _load(connection, sight, for_decision(_without_laid_over(sight, outlines), sizes=sizes))
    avoid, demerits = failure_memory(sight, pod, now)
    return sight.index.decide(replace(pod, node_name=""), avoid=avoid, demerits=demerits).chosen is not None


def _load_what_may_be_named(
    connection: Connection, sight: Sight, pod: Pod, node: str | None, claims: set[str] | None
) -> Sequence[str] | None:
    """Returns the sampled nodes; None if a node is asked about."""
    free = _without_laid_over(sight, free_volumes(connection))
    settled = [] if claims is None else _without_laid_over(sight, settled_volumes(connection, but_of=claims))
    sizes = _sizes_after_remedies(sight.index.snapshot, pod)
    for outlines in (free, settled):
        _load(connection, sight, nearest_anywhere(outlines, sizes=sizes))
    unplaced = replace(pod, node_name="")
    sampled = None if node is not None else sampled_nodes(sight.index, unplaced, _surroundings(sight, unplaced))
    asked = first_nodes(sight.index) if node is None else [node]
    judged = _reach(sight, dict.fromkeys([pod.node_name, *asked, *(sampled or ())]))
    _load(connection, sight, for_remedies(free, sizes=sizes, judged=judged, others=len(sizes)))
    _load(connection, sight, for_remedies(settled, sizes=sizes, judged=judged))
    return sampled


def _reach(sight: Sight, names: Iterable[str]) -> Callable[[str | None], bool]:
    """Whether one of the nodes reaches volumes of an affinity."""
    match_fields, known = sight.index.profile.enforce_match_fields, sight.index.snapshot.nodes
    nodes = [known[name] for name in names if name in known]

    def within(affinity: str | None) -> bool:
        spec = {} if affinity is None else {"nodeAffinity": orjson.loads(affinity)}
        volume = read_object("volume", {"metadata": {"name": ""}, "spec": spec}, 0)
        assert isinstance(volume, Volume)
        return any(reaches(volume, node, enforce_match_fields=match_fields) for node in nodes)

    return within


def _surroundings(sight: Sight, pod: Pod) -> NodeSurroundings:
    return NodeSurroundings(sight.index.snapshot, pod, sight.index.profile)


def _without_laid_over(sight: Sight, outlines: Iterable[VolumeOutline]) -> list[VolumeOutline]:
    """Without those that have other content here: they would stand for volumes that they are not like."""
    laid_over = {it.name for it in sight.objects if isinstance(it, Volume)}
    return [it for it in outlines if it.key not in laid_over]


def _sizes_after_remedies(snapshot: Snapshot, pod: Pod) -> list[int]:
    """The sizes of all claims of the pod. A remedy may recreate a bound one, or create a missing one."""
    uses = {use.key: use for use in claim_uses(pod)}
    return _sizes(snapshot.claim(key) or created_claim(snapshot, pod, use) for key, use in uses.items())


def _sizes(claims: Iterable[Claim]) -> list[int]:
    return [min(claim.size.value(), INT64_MAX) for claim in claims]


def _load(connection: Connection, sight: Sight, keys: Iterable[str]) -> None:
    """Read these volumes with their claims into the index, except those laid over the store or read before."""
    assert sight.picture is not None
    known = sight.picture.world.states
    keys = [key for key in keys if f"volume/{key}" not in known]
    laid_over = {f"volume/{it.name}" for it in sight.objects if isinstance(it, Volume)}
    laid_over |= {f"claim/{it.key}" for it in sight.objects if isinstance(it, Claim)}
    states = {stream: state for stream, state in load_volumes(connection, keys).items() if stream not in laid_over}
    sight.picture.world.begin(states)
    sight.picture.update(states)
    sight.index.settle()
