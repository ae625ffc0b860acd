"""What is explained and simulated on, in memory: a store as it is now, manifests, or manifests laid over a store.

Whoever asks gets the same answer: the command line prints it, the API sends it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from volsched.kube.manifest_reader import load_manifests
from volsched.kube.meta import ZONE, zone_of
from volsched.kube.object_values import Object
from volsched.kube.workloads import Node, Pod
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import KIND_OF_NOUN, UnknownKindError, kind_called
from volsched.log.reads.lookups import is_there, keys_of, namespace_names
from volsched.log.reads.tail import event, read_head, state_as_of
from volsched.questions.context import QuestionContext
from volsched.questions.explain.explain import disclosed, explain_pod
from volsched.questions.explain.remedies import failure_remedies
from volsched.questions.explain.stored_decisions import attempts_at, failing, past_of
from volsched.questions.history.moments import position_of
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
from volsched.scheduling.rules.failure_memory import AVOID_SECONDS, NO_DEMERITS, nodes_to_avoid
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

    @property
    def named(self) -> str:
        return "the manifests" if self.database is None else STORE


def sight_of(database: Database | None, objects: Iterable[Object], *, profile: Profile) -> Sight:
    """Without a store, the objects alone; else they are laid over what is there."""
    if database is None:
        return Sight(index_of(objects, profile=profile))
    world = World(database)
    picture = Picture(world, index=Index(profile=profile))
    picture.update(world.catch_up())
    lay_over(picture.index, objects)
    return Sight(picture.index, database, picture)


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
    told = _explained(seen, _pod(seen, key, namespaces), node=node, now=now)
    if namespaces is None:
        return told
    snapshot = seen.index.snapshot
    there = {it.partition("/")[0] for name in FIELD_OF.values() for it in getattr(snapshot, name) if "/" in it}
    return disclosed(told, there - namespaces)


def _explained(seen: Sight, wanted: Pod, *, node: str | None, now: int) -> dict[str, Any]:
    states = {} if seen.picture is None else seen.picture.world.states
    since = rfc3339(now - AVOID_SECONDS * SECOND)
    rejecting = frozenset[str]() if seen.picture is None else seen.picture.rejecting_nodes(since)
    past, failures = _past(seen, wanted)
    told = explain_pod(
        seen.index,
        wanted,
        only=_node(seen, node),
        avoid=nodes_to_avoid(wanted.key, states, since=since) | rejecting,
        demerits=NO_DEMERITS if seen.picture is None else seen.picture.demerits(wanted, now),
        binding=None if seen.picture is None else seen.picture.planned.get(wanted.key),
    )
    # What is assumed of it counts in the decision; that it has a node, only the pod itself says.
    if failures is not None and not _placed(states, wanted.key):
        told |= _without_a_promise(seen, told, failures)
    else:
        failures = None
    return {"past": past, "failing": failures} | told


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
        if (Pod, pod) not in laid and not is_there(connection, "pod", pod):
            known = [*keys_of(connection, "pod"), *(key for kind, key in laid if kind is Pod)]
            raise _unknown_pod(pod, known, STORE, namespaces)
        if node is not None and (Node, node) not in laid and not is_there(connection, "node", node):
            nodes = [*keys_of(connection, "node"), *(key for kind, key in laid if kind is Node)]
            raise _unknown_node(node, nodes, STORE)


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
