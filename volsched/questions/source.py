"""What is explained and simulated on, in memory: a store as it is now, manifests, or manifests laid over a store.

Whoever asks gets the same answer: the command line prints it, the API sends it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest_reader import load_manifests
from volsched.kube.meta import ZONE, zone_of
from volsched.kube.object_values import Object
from volsched.kube.quantity import INT64_MAX
from volsched.kube.storage import Claim, Volume, VolumeAttachment
from volsched.kube.workloads import Node, Pod, StatefulSet
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import BINDING, KIND_OF_NOUN, UnknownKindError, kind_called
from volsched.log.reads.free_volumes import free_count, free_volumes, load_but_free, load_volumes
from volsched.log.reads.lookups import count_of, is_there, keys_of, namespace_names
from volsched.log.reads.tail import event, read_head, state_as_of
from volsched.questions.context import QuestionContext
from volsched.questions.explain.explain import disclosed, explain_pod, waiting_in_vain
from volsched.questions.explain.planned_pods import laid_set, planned_objects, planning_set, stored_set
from volsched.questions.explain.remedies import failure_remedies
from volsched.questions.explain.stored_decisions import attempts_at, failing, past_of
from volsched.questions.explain.survey import NodeSurroundings, is_small
from volsched.questions.explain.volume_sample import for_decision, for_remedies
from volsched.questions.history.moments import look_in, position_of
from volsched.questions.refusals import QuestionError, UnknownError
from volsched.questions.simulate.changes import index_of, lay_over
from volsched.questions.simulate.simulate import (
    NoSuchZoneError,
    NotThereError,
    Scenario,
    outcome_document,
    simulate,
)
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.settings import configuration
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index import Index
from volsched.scheduling.rules.attempts import PLANNED
from volsched.scheduling.rules.failure_memory import AVOID_SECONDS, NO_DEMERITS, Demerits, nodes_to_avoid
from volsched.scheduling.rules.profile import PROFILES, Profile
from volsched.scheduling.rules.snapshot import FIELD_OF

NEAR_NAMES = 5
STORE = "the store"


@dataclass(frozen=True, slots=True)
class Sight:
    """Objects as they are, in memory: whatever is tried on them, the store is not touched."""

    index: Index
    database: Database | None = None
    picture: Picture | None = None
    objects: Sequence[Object] = ()
    """What was laid over the store, or is all there is."""
    left_out: int = 0
    """Volumes of the store that were not read: those in the index stand for them."""

    @property
    def named(self) -> str:
        return "the manifests" if self.database is None else STORE


def sight_of(
    database: Database | None,
    objects: Sequence[Object],
    *,
    profile: Profile,
    then: Mapping[str, State] | None = None,
) -> Sight:
    """Without a store, the objects alone; else they are laid over what is there, or was there `then`."""
    if database is None:
        return Sight(index_of(objects, profile=profile), objects=objects)
    world = World(database)
    picture = Picture(world, index=Index(profile=profile))
    if then is None:
        picture.update(world.catch_up())
    else:
        world.begin(then)
        picture.update(then)
    lay_over(picture.index, objects)
    return Sight(picture.index, database, picture, objects)


def states_as_of(database: Database, as_of: str, *, now: int) -> dict[str, State]:
    """All objects that decide, and the bindings under way, as they were."""
    nouns = [noun for noun, kind in KIND_OF_NOUN.items() if kind.value in FIELD_OF]
    with database.read() as connection:
        look, _ = look_in(connection, as_of, now=now)
        return {f"{noun}/{key}": state for noun in (*nouns, BINDING) for key, state in look.every(noun)}


def objects_of(manifests: Sequence[Mapping[str, Any]]) -> list[Object]:
    """ManifestError with every defect of every manifest."""
    if not manifests:
        return []
    listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return [it.value for it in load_manifests(orjson.dumps(listed), source="the body of the request")]


def deciding_profile(context: QuestionContext, name: str | None) -> Profile:
    """The profile of that name, else the one that the schedulers decide with."""
    if name is not None:
        return PROFILES[name]
    return configuration().profile if context.profile is None else context.profile


def explained(
    seen: Sight, key: str, *, node: str | None, now: int, namespaces: frozenset[str] | None = None
) -> dict[str, Any]:
    """What was decided about a pod, what would be decided now, and what would help; UnknownError without it.

    `namespaces`: those of which whoever asks may know; None: all.
    """
    workload = _plan(seen, key)
    told = _explained(seen, _pod(seen, key, namespaces), node=node, now=now)
    return _named(seen, told, workload, namespaces)


def _named(
    seen: Sight, told: dict[str, Any], workload: StatefulSet | None, namespaces: frozenset[str] | None
) -> dict[str, Any]:
    if workload is not None:
        told["plannedBy"] = f"statefulset {workload.meta.key}"
    if namespaces is None:
        return told
    snapshot = seen.index.snapshot
    there = {it.partition("/")[0] for name in FIELD_OF.values() for it in getattr(snapshot, name) if "/" in it}
    return disclosed(told, there - namespaces)


def _plan(seen: Sight, key: str) -> StatefulSet | None:
    """Adds a pod that is not there, where a workload would make it; returns that workload."""
    if key in seen.index.snapshot.pods:
        return None
    states = {} if seen.picture is None else seen.picture.world.states
    set_ = planning_set(
        key, lambda name: laid_set(seen.objects, name) or stored_set(states.get(f"statefulset/{name}"))
    )
    if set_ is None:
        return None
    lay_over(seen.index, planned_objects(set_, key, seen.index.snapshot.stored_claims))
    seen.index.settle()
    return set_


def _explained(seen: Sight, wanted: Pod, *, node: str | None, now: int) -> dict[str, Any]:
    states = {} if seen.picture is None else seen.picture.world.states
    past, failures = _past(seen, wanted)
    avoid, demerits = _memory(seen, wanted, now)
    told = explain_pod(
        seen.index,
        wanted,
        only=_node(seen, node),
        avoid=avoid,
        demerits=demerits,
        binding=None if seen.picture is None else seen.picture.planned.get(wanted.key),
        left_out=seen.left_out,
    )
    # What is assumed of it counts in the decision; that it has a node, only the pod itself says.
    if failures is not None and not _placed(states, wanted.key):
        told |= _without_a_promise(seen, told, failures)
    else:
        failures = None
    return {"past": past, "failing": failures} | told


def _memory(seen: Sight, wanted: Pod, now: int) -> tuple[frozenset[str], Demerits]:
    """The nodes that rejected the pod a short while ago, and those where its bindings failed."""
    if seen.picture is None:
        return frozenset(), NO_DEMERITS
    since = rfc3339(now - AVOID_SECONDS * SECOND)
    avoid = nodes_to_avoid(wanted.key, seen.picture.world.states, since=since)
    return avoid | seen.picture.rejecting_nodes(since), seen.picture.demerits(wanted, now)


# A pod of a large store is explained without reading every volume: free volumes that are alike stand for each
# other. Where a decision finds a node, a few of the classes that the pod asks for are enough; where it finds
# none, some of all.

MANY_VOLUMES = 2_000
"""Free volumes from which on it is worth looking which of them have to be read."""


def explained_in_part(
    database: Database,
    objects: Sequence[Object],
    key: str,
    *,
    profile: Profile,
    now: int,
    node: str | None = None,
    namespaces: frozenset[str] | None = None,
) -> dict[str, Any] | None:
    """The same as `explained` of the whole store; None where that has to be read: it is small."""
    with database.read() as connection:
        free = free_count(connection)
        if free < MANY_VOLUMES or is_small(nodes=count_of(connection, "node"), on_each=free):
            return None
        seen = _sight_without_free(connection, database, objects, profile)
        workload = _plan(seen, key)
        pod = _pod(seen, key, namespaces)
        read = _read_for_decision(connection, seen, pod, node, now)
        if read is None:
            claims = len(_waiting(seen, pod))
            read = _put_free(connection, seen, for_remedies(free_volumes(connection), claims=claims))
    told = _explained(replace(seen, left_out=free - read), pod, node=node, now=now)
    return _named(seen, told, workload, namespaces)


def _sight_without_free(
    connection: Connection, database: Database, objects: Sequence[Object], profile: Profile
) -> Sight:
    loaded = load_but_free(connection)
    world = World(database, loaded.position, loaded.states)
    for binding, state in loaded.failed:
        world.failures.note(binding, state)
    picture = Picture(world, index=Index(profile=profile))
    picture.update(world.states)
    lay_over(picture.index, objects)
    seen = Sight(picture.index, database, picture, objects)
    named = [it.volume_name for it in objects if isinstance(it, Claim)]
    named += [it.volume_name for it in objects if isinstance(it, VolumeAttachment)]
    _put_free(connection, seen, filter(None, named))
    return seen


def _read_for_decision(connection: Connection, seen: Sight, pod: Pod, node: str | None, now: int) -> int | None:
    """The volumes read, where the pod then fits; None: that it fits is not known, or not all that is asked."""
    if node is not None or waiting_in_vain(seen.index.snapshot, pod):
        return None
    claims = _waiting(seen, pod)
    sizes = [min(claim.size.value(), INT64_MAX) for claim in claims]
    outlines = free_volumes(connection, classes={it.class_name for it in claims}, least=min(sizes, default=0))
    read = _put_free(connection, seen, for_decision(outlines, sizes=sizes)) if sizes else 0
    avoid, demerits = _memory(seen, pod, now)
    made = seen.index.decide(replace(pod, node_name=""), avoid=avoid, demerits=demerits)
    return None if made.chosen is None else read


def _waiting(seen: Sight, pod: Pod) -> list[Claim]:
    return NodeSurroundings(seen.index.snapshot, pod, seen.index.profile).waiting()


def _put_free(connection: Connection, seen: Sight, keys: Iterable[str]) -> int:
    """Reads these volumes into the index, where nothing is laid over them; returns how many of them it has."""
    assert seen.picture is not None
    laid = {it.name for it in seen.objects if isinstance(it, Volume)}
    states = load_volumes(connection, [it for it in keys if it not in laid])
    seen.picture.world.begin(states)
    seen.picture.update(states)
    seen.index.settle()
    return len(states)


def explained_as_of(
    database: Database, key: str, *, as_of: str, now: int, namespaces: frozenset[str] | None = None
) -> dict[str, Any]:
    """What was stored of a pod up to a moment; nothing is decided again. UnknownError where it was not there."""
    with database.read() as connection:
        position = position_of(connection, as_of, now=now)
        state = state_as_of(connection, f"pod/{key}", position=position)
        manifest = state.manifest if isinstance(state, ObjectState) else None
        if manifest is None:
            raise UnknownError(f'pod "{key}" was not there at {as_of} (position {position})')
        tried = attempts_at(connection, key, uid=manifest["metadata"].get("uid", ""), position=position)
        past, node = past_of(connection, tried, position=position), manifest["spec"].get("nodeName")
        last = event(connection, position)
        known = () if namespaces is None else namespace_names(connection)
        hidden = set(known) - (namespaces or set())
    told = {
        "pod": key,
        "asOf": {"position": position, "at": None if last is None else rfc3339(last.at)},
        "node": node,
        "fits": bool(node) or (past is not None and past["outcome"] == PLANNED and failing(tried) is None),
        "past": past,
        "failing": None if node else failing(tried),
    }
    return disclosed(told, hidden)


def _without_a_promise(seen: Sight, told: dict[str, Any], failures: dict[str, Any]) -> dict[str, Any]:
    """The rules would take a node again, and have taken it before: that says nothing of a pod that fails after."""
    failed = {it["node"] for it in failures["nodes"]}
    would_do = [told["chosen"], *told["runnersUp"]] if told["chosen"] is not None else []
    untried = [it["node"] for it in would_do if it["node"] not in failed]
    failures["untried"] = untried
    failures["remedies"] = failure_remedies(seen.index.snapshot, failures["nodes"], untried)
    message = told["message"] if told["chosen"] is None else failures["nodes"][0]["message"]
    # While a binding is under way its claims are held for its node, and what the others say is of no use.
    held: dict[str, Any] = {} if told["binding"] is None else {"refused": [], "remedies": []}
    return {"node": None, "fits": False, "chosen": None, "runnersUp": [], "message": message} | held


def _placed(states: Mapping[str, State], key: str) -> bool:
    state = states.get(f"pod/{key}")
    manifest = state.manifest if isinstance(state, ObjectState) else None
    return manifest is not None and bool(manifest["spec"].get("nodeName"))


def simulated(seen: Sight, scenario: Scenario) -> dict[str, Any]:
    """What would become of the pods; UnknownError where the scenario names what is not there."""
    if scenario == Scenario():
        raise QuestionError("nothing to try; name something to drain, to lose, to add or to delete")
    try:
        return outcome_document(simulate(seen.index, scenario))
    except NotThereError as error:
        known = list(getattr(seen.index.snapshot, FIELD_OF[error.kind]))
        near = difflib.get_close_matches(error.name, known, NEAR_NAMES, 0.5) or sorted(known)[:NEAR_NAMES]
        what = error.kind.__name__.lower()
        there = ", ".join(near) or "none"
        raise UnknownError(f'{what} "{error.name}" is not in {seen.named}; there are: {there}') from None
    except NoSuchZoneError as error:
        nodes = seen.index.snapshot.nodes.values()
        zones = {zone_of(it.labels) for it in nodes} - {None}
        known_zones = ", ".join(sorted(map(str, zones))) or f"none; nodes say so with the label {ZONE}"
        raise UnknownError(f'no node is in zone "{error}"; zones there: {known_zones}') from None


def named_object(text: str) -> tuple[type[Object], str]:
    """`pv/disk-3`, `pvc/shop/data`; raises UnknownKindError and QuestionError."""
    kind, slash, key = text.partition("/")
    named = kind_called(kind)
    if not slash or not key or named.noun not in KIND_OF_NOUN:
        raise QuestionError(f'"{text[:80]}" is no object; write KIND/NAME, such as pv/disk-3 or pvc/shop/data')
    value = KIND_OF_NOUN[named.noun].value
    if value not in FIELD_OF:
        raise QuestionError(
            f"a {named.singular} decides nothing here; delete what it stands for, such as its pods"
        )
    return value, f"default/{key}" if named.namespaced and "/" not in key else key


def check_names(
    database: Database, objects: Sequence[Object], *, pod: str, node: str | None, namespaces: frozenset[str] | None
) -> None:
    """UnknownError before a store is loaded, which may hold 100,000 volumes, for names that are not there."""
    laid = {(type(it), it.meta.key) for it in objects}
    with database.read() as connection:
        if (
            (Pod, pod) not in laid
            and not is_there(connection, "pod", pod)
            and planning_set(pod, lambda name: laid_set(objects, name) or _set_in_store(connection, name)) is None
        ):
            known = [*keys_of(connection, "pod"), *(key for kind, key in laid if kind is Pod)]
            raise _unknown_pod(pod, known, STORE, namespaces)
        if node is not None and (Node, node) not in laid and not is_there(connection, "node", node):
            nodes = [*keys_of(connection, "node"), *(key for kind, key in laid if kind is Node)]
            raise _unknown_node(node, nodes, STORE)


def _set_in_store(connection: Connection, key: str) -> StatefulSet | None:
    if not is_there(connection, "statefulset", key):
        return None
    return stored_set(state_as_of(connection, f"statefulset/{key}", position=read_head(connection).position))


def _unknown_pod(key: str, pods: Iterable[str], where: str, namespaces: frozenset[str] | None) -> UnknownError:
    may_know = [it for it in pods if namespaces is None or it.partition("/")[0] in namespaces]
    return UnknownError(f'pod "{key}" is not in {where}; {_instead_of(key, may_know)}')


def _unknown_node(node: str, nodes: Iterable[str], where: str) -> UnknownError:
    near = difflib.get_close_matches(node, list(nodes), NEAR_NAMES, 0.5)
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    return UnknownError(f'node "{node}" is not in {where}{meant}')


def _pod(seen: Sight, key: str, namespaces: frozenset[str] | None) -> Pod:
    snapshot = seen.index.snapshot
    wanted = snapshot.pods.get(key)
    if wanted is None:
        raise _unknown_pod(key, snapshot.pods, seen.named, namespaces)
    if not snapshot.nodes:
        over = "" if seen.database is not None else ", or name the store to lay them over: --db"
        raise QuestionError(f"there is no Node in {seen.named}; add those of: kubectl get nodes -o yaml{over}")
    return wanted


def _instead_of(key: str, pods: Sequence[str]) -> str:
    """What somebody meant who asked for a pod that is not there."""
    first, _, name = key.partition("/")
    if elsewhere := [it for it in pods if it.partition("/")[2] == name]:
        return f"did you mean {' or '.join(sorted(elsewhere)[:NEAR_NAMES])}?"
    with suppress(UnknownKindError):
        kind = kind_called(first).singular
        return f"pods are explained; see volsched uses {kind}/{name}, or volsched describe {kind}/{name}"
    near = difflib.get_close_matches(key, pods, NEAR_NAMES, 0.5) or sorted(pods)[:NEAR_NAMES]
    return f"pods there: {', '.join(near) or 'none'}"


def _node(seen: Sight, node: str | None) -> str | None:
    if node is not None and node not in seen.index.snapshot.nodes:
        raise _unknown_node(node, seen.index.snapshot.nodes, seen.named)
    return node


def _past(seen: Sight, wanted: Pod) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The last attempt as it is kept, and the failures, if it keeps failing."""
    if seen.database is None or not wanted.meta.uid:
        return None, None
    with seen.database.read() as connection:
        position = read_head(connection).position
        tried = attempts_at(connection, wanted.key, uid=wanted.meta.uid, position=position)
        return past_of(connection, tried, position=position), failing(tried)
