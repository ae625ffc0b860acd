"""The in-memory data of explain and simulate: a store's present, manifests, or manifests laid over a store.

The command line and the API give the same answers.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection

from volsched.kube.manifest_reader import load_manifests
from volsched.kube.meta import ZONE, zone_of
from volsched.kube.object_values import Object
from volsched.kube.workloads import Node, Pod, StatefulSet
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import BINDING, KIND_OF_NOUN, UnknownKindError, kind_called
from volsched.log.reads.lookups import is_there, keys_of, namespace_names
from volsched.log.reads.tail import event, read_head, state_as_of
from volsched.questions.context import QuestionContext
from volsched.questions.explain.explain import explain_pod, redacted
from volsched.questions.explain.planned_pods import planned_objects, planning_set, set_among, stored_set
from volsched.questions.explain.remedies import failure_remedies
from volsched.questions.explain.stored_decisions import attempts_at, last_attempt, repeated_failures
from volsched.questions.explain.survey import WHOLE_STORE, StoreSample
from volsched.questions.history.moments import position_of, view_in
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
    """Objects in memory for trials: the store is not changed."""

    index: Index
    database: Database | None = None
    picture: Picture | None = None
    objects: Sequence[Object] = ()
    """The objects laid over the store, or, without a store, all objects."""
    sample: StoreSample = WHOLE_STORE

    @property
    def label(self) -> str:
        return "the manifests" if self.database is None else STORE


def sight_of(
    database: Database | None,
    objects: Sequence[Object],
    *,
    profile: Profile,
    then: Mapping[str, State] | None = None,
) -> Sight:
    """The sight: the objects alone, or laid over a store's present state or over the states `then`."""
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
    """The past states of all objects that decisions depend on, and of the bindings in flight."""
    nouns = [noun for noun, kind in KIND_OF_NOUN.items() if kind.value in FIELD_OF]
    with database.read() as connection:
        view, _ = view_in(connection, as_of, now=now)
        return {f"{noun}/{key}": state for noun in (*nouns, BINDING) for key, state in view.every(noun)}


def objects_of(manifests: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The objects of manifests; ManifestError with every defect of every manifest."""
    if not manifests:
        return []
    document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return [it.value for it in load_manifests(orjson.dumps(document), source="the body of the request")]


def deciding_profile(context: QuestionContext, name: str | None) -> Profile:
    """The profile of that name, else the one that the schedulers decide with."""
    if name is not None:
        return PROFILES[name]
    return configuration().profile if context.profile is None else context.profile


def explanation(
    sight: Sight, key: str, *, node: str | None, now: int, namespaces: frozenset[str] | None = None
) -> dict[str, Any]:
    """The last decision about a pod, the decision now, and the remedies; UnknownError if it does not exist.

    `namespaces`: the ones that the caller may read; None: all.
    """
    workload = add_planned_pod(sight, key)
    answer = pod_explanation(sight, pod_in(sight, key, namespaces), node=node, now=now)
    return for_caller(sight, answer, workload, namespaces)


def for_caller(
    sight: Sight, answer: dict[str, Any], workload: StatefulSet | None, namespaces: frozenset[str] | None
) -> dict[str, Any]:
    if workload is not None:
        answer["plannedBy"] = f"statefulset {workload.meta.key}"
    if namespaces is None:
        return answer
    snapshot = sight.index.snapshot
    present = {it.partition("/")[0] for name in FIELD_OF.values() for it in getattr(snapshot, name) if "/" in it}
    return redacted(answer, present - namespaces)


def add_planned_pod(sight: Sight, key: str) -> StatefulSet | None:
    """Add a pod that does not exist, if a workload would create it; returns that workload."""
    if key in sight.index.snapshot.pods:
        return None
    states = {} if sight.picture is None else sight.picture.world.states
    set_ = planning_set(
        key, lambda name: set_among(sight.objects, name) or stored_set(states.get(f"statefulset/{name}"))
    )
    if set_ is None:
        return None
    lay_over(sight.index, planned_objects(set_, key, sight.index.snapshot.stored_claims))
    sight.index.settle()
    return set_


def pod_explanation(sight: Sight, pod: Pod, *, node: str | None, now: int) -> dict[str, Any]:
    states = {} if sight.picture is None else sight.picture.world.states
    past, failures = _past_and_failures(sight, pod)
    avoid, demerits = failure_memory(sight, pod, now)
    answer = explain_pod(
        sight.index,
        pod,
        only=_checked_node(sight, node),
        avoid=avoid,
        demerits=demerits,
        binding=None if sight.picture is None else sight.picture.planned.get(pod.key),
        sample=sight.sample,
    )
    # The decision counts the pod's assumption; but only its own manifest shows whether it has a node.
    if failures is not None and not _has_node(states, pod.key):
        answer |= _failing_answer(sight, answer, failures)
        answer.pop("nodeGone", None)
    else:
        failures = None
    return {"past": past, "failing": failures} | answer


def failure_memory(sight: Sight, pod: Pod, now: int) -> tuple[frozenset[str], Demerits]:
    """The nodes that recently rejected the pod, and those where its bindings failed."""
    if sight.picture is None:
        return frozenset(), NO_DEMERITS
    since = rfc3339(now - AVOID_SECONDS * SECOND)
    avoid = nodes_to_avoid(pod.key, sight.picture.world.states, since=since)
    return avoid | sight.picture.rejecting_nodes(since), sight.picture.demerits(pod, now)


def past_explanation(
    database: Database, key: str, *, as_of: str, now: int, namespaces: frozenset[str] | None = None
) -> dict[str, Any]:
    """The decisions about a pod stored up to a moment; nothing is decided again.

    UnknownError if the pod did not exist.
    """
    with database.read() as connection:
        position = position_of(connection, as_of, now=now)
        state = state_as_of(connection, f"pod/{key}", position=position)
        manifest = state.manifest if isinstance(state, ObjectState) else None
        if manifest is None:
            raise UnknownError(f'pod "{key}" did not exist at {as_of} (position {position})')
        attempts = attempts_at(connection, key, uid=manifest["metadata"].get("uid", ""), position=position)
        past, node = last_attempt(connection, attempts, position=position), manifest["spec"].get("nodeName")
        last = event(connection, position)
        present = () if namespaces is None else namespace_names(connection)
        hidden = set(present) - (namespaces or set())
    answer = {
        "pod": key,
        "asOf": {"position": position, "at": None if last is None else rfc3339(last.at)},
        "node": node,
        "fits": bool(node)
        or (past is not None and past["outcome"] == PLANNED and repeated_failures(attempts) is None),
        "past": past,
        "failing": None if node else repeated_failures(attempts),
    }
    return redacted(answer, hidden)


def _failing_answer(sight: Sight, answer: dict[str, Any], failures: dict[str, Any]) -> dict[str, Any]:
    """The answer for a pod whose bindings keep failing: a node that the rules would choose again does not mean
    that its binding will succeed."""
    failed = {it["node"] for it in failures["nodes"]}
    candidates = [answer["chosen"], *answer["runnersUp"]] if answer["chosen"] is not None else []
    untried = [it["node"] for it in candidates if it["node"] not in failed]
    failures["untried"] = untried
    failures["remedies"] = failure_remedies(sight.index.snapshot, failures["nodes"], untried)
    message = answer["message"] if answer["chosen"] is None else failures["nodes"][0]["message"]
    # While a binding is in flight, its claims are held for its node, and the reasons of other nodes do not matter.
    nothing_else: dict[str, Any] = {} if answer["binding"] is None else {"refused": [], "remedies": []}
    return {"node": None, "fits": False, "chosen": None, "runnersUp": [], "message": message} | nothing_else


def _has_node(states: Mapping[str, State], key: str) -> bool:
    state = states.get(f"pod/{key}")
    manifest = state.manifest if isinstance(state, ObjectState) else None
    return manifest is not None and bool(manifest["spec"].get("nodeName"))


def simulation(sight: Sight, scenario: Scenario) -> dict[str, Any]:
    """The outcome of a scenario; UnknownError if it names an object that does not exist."""
    if scenario == Scenario():
        raise QuestionError("nothing to try; name something to drain, to lose, to add or to delete")
    try:
        return outcome_document(simulate(sight.index, scenario))
    except NotThereError as error:
        names = list(getattr(sight.index.snapshot, FIELD_OF[error.kind]))
        near = difflib.get_close_matches(error.name, names, NEAR_NAMES, 0.5) or sorted(names)[:NEAR_NAMES]
        kind = error.kind.__name__.lower()
        there = ", ".join(near) or "none"
        raise UnknownError(f'{kind} "{error.name}" is not in {sight.label}; there are: {there}') from None
    except NoSuchZoneError as error:
        nodes = sight.index.snapshot.nodes.values()
        zones = {zone_of(it.labels) for it in nodes} - {None}
        known_zones = ", ".join(sorted(map(str, zones))) or f"none; nodes say so with the label {ZONE}"
        raise UnknownError(f'no node is in zone "{error}"; zones there: {known_zones}') from None


def named_object(text: str) -> tuple[type[Object], str]:
    """The kind and key of `pv/disk-3` or `pvc/shop/data`; raises UnknownKindError and QuestionError."""
    kind, slash, key = text.partition("/")
    named = kind_called(kind)
    if not slash or not key or named.noun not in KIND_OF_NOUN:
        raise QuestionError(f'"{text[:80]}" is no object; write KIND/NAME, such as pv/disk-3 or pvc/shop/data')
    value = KIND_OF_NOUN[named.noun].value
    if value not in FIELD_OF:
        raise QuestionError(
            f"a {named.singular} plays no part in a decision; delete what belongs to it, such as its pods"
        )
    return value, f"default/{key}" if named.namespaced and "/" not in key else key


def check_names(
    database: Database, objects: Sequence[Object], *, pod: str, node: str | None, namespaces: frozenset[str] | None
) -> None:
    """Raise UnknownError for missing names before the store is loaded, which may hold 100,000 volumes."""
    laid_over = {(type(it), it.meta.key) for it in objects}
    with database.read() as connection:
        if (
            (Pod, pod) not in laid_over
            and not is_there(connection, "pod", pod)
            and planning_set(pod, lambda name: set_among(objects, name) or _set_in_store(connection, name)) is None
        ):
            pods = [*keys_of(connection, "pod"), *(key for kind, key in laid_over if kind is Pod)]
            raise _unknown_pod(pod, pods, STORE, namespaces)
        if node is not None and (Node, node) not in laid_over and not is_there(connection, "node", node):
            nodes = [*keys_of(connection, "node"), *(key for kind, key in laid_over if kind is Node)]
            raise _unknown_node(node, nodes, STORE)


def _set_in_store(connection: Connection, key: str) -> StatefulSet | None:
    if not is_there(connection, "statefulset", key):
        return None
    return stored_set(state_as_of(connection, f"statefulset/{key}", position=read_head(connection).position))


def _unknown_pod(key: str, pods: Iterable[str], where: str, namespaces: frozenset[str] | None) -> UnknownError:
    may_know = [it for it in pods if namespaces is None or it.partition("/")[0] in namespaces]
    return UnknownError(f'pod "{key}" is not in {where}; {_suggestion(key, may_know)}')


def _unknown_node(node: str, nodes: Iterable[str], where: str) -> UnknownError:
    near = difflib.get_close_matches(node, list(nodes), NEAR_NAMES, 0.5)
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    return UnknownError(f'node "{node}" is not in {where}{meant}')


def pod_in(sight: Sight, key: str, namespaces: frozenset[str] | None) -> Pod:
    snapshot = sight.index.snapshot
    pod = snapshot.pods.get(key)
    if pod is None:
        raise _unknown_pod(key, snapshot.pods, sight.label, namespaces)
    if not snapshot.nodes:
        over = "" if sight.database is not None else ", or name the store to lay them over: --db"
        raise QuestionError(f"there is no Node in {sight.label}; add those of: kubectl get nodes -o yaml{over}")
    return pod


def _suggestion(key: str, pods: Sequence[str]) -> str:
    """The suggestion for a pod that does not exist."""
    first, _, name = key.partition("/")
    if namesakes := [it for it in pods if it.partition("/")[2] == name]:
        return f"did you mean {' or '.join(sorted(namesakes)[:NEAR_NAMES])}?"
    with suppress(UnknownKindError):
        kind = kind_called(first).singular
        return f"pods are explained; see volsched uses {kind}/{name}, or volsched describe {kind}/{name}"
    near = difflib.get_close_matches(key, pods, NEAR_NAMES, 0.5) or sorted(pods)[:NEAR_NAMES]
    return f"pods there: {', '.join(near) or 'none'}"


def _checked_node(sight: Sight, node: str | None) -> str | None:
    if node is not None and node not in sight.index.snapshot.nodes:
        raise _unknown_node(node, sight.index.snapshot.nodes, sight.label)
    return node


def _past_and_failures(sight: Sight, pod: Pod) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The last stored attempt, and the failures if the pod keeps failing."""
    if sight.database is None or not pod.meta.uid:
        return None, None
    with sight.database.read() as connection:
        position = read_head(connection).position
        attempts = attempts_at(connection, pod.key, uid=pod.meta.uid, position=position)
        return last_attempt(connection, attempts, position=position), repeated_failures(attempts)
