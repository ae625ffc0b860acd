"""What must hold once a run has come to rest: all that can be asked of a store, and of those around it."""

from collections.abc import Iterator

from sqlalchemy import Connection, select

from volsched.binding.rules.phases import SETTLED
from volsched.binding.rules.saga import ANNOTATE, PREBIND
from volsched.cluster.foreign_server import ForeignApi
from volsched.cluster.mirror import KINDS_MIRRORED
from volsched.kube.workloads import Pod
from volsched.log import tables
from volsched.log.database import Database
from volsched.log.effects import EffectState
from volsched.log.events.fold import BindingState, State
from volsched.log.events.object_states import binding_stream
from volsched.log.events.streams import NOUN_OF_KIND
from volsched.log.integrity.verify import verify
from volsched.log.rows import VIEWS, object_state
from volsched.objects.observations import without_null_fields
from volsched.questions.invariants import Violation
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index import Index
from volsched.scheduling.rules.cycle import attempt
from volsched.scheduling.rules.failure_memory import Demerits
from volsched.scheduling.rules.node_avoidance import AVOID_SECONDS, nodes_to_avoid
from volsched.scheduling.rules.snapshot import Snapshot
from volsched.scheduling.scheduler import wants_node

_effects = tables.effects
_WRITES_TO_COME = select(_effects.c.binding, _effects.c.lane).where(
    _effects.c.kind.in_((PREBIND, ANNOTATE)), _effects.c.state != EffectState.PARKED
)


def overtaken(connection: Connection, states: dict[str, State]) -> Iterator[Violation]:
    """3: a leg has not ended before the outcome of its write is known. This holds at any moment."""
    for row in connection.execute(_WRITES_TO_COME):
        binding = states.get(binding_stream(row.binding))
        leg = int(row.lane.rpartition("/")[2])
        if isinstance(binding, BindingState) and binding.legs[leg].state in SETTLED:
            yield Violation(3, f"leg {leg} of binding {row.binding} has ended and its write is still to come")


def integrity(database: Database) -> Iterator[Violation]:
    """5 and 6: chain, density, and views that are what the log says."""
    for finding in verify(database).findings:
        yield Violation(5, str(finding))


def same_picture(fresh: Picture, live: Picture) -> Iterator[Violation]:
    """5: the picture that grew with the log is the one that is made from it anew."""
    for field in Snapshot.__dataclass_fields__:
        if field not in _NOT_COMPARED and getattr(fresh.index.snapshot, field) != getattr(
            live.index.snapshot, field
        ):
            yield Violation(
                5, f"{field} of a scheduler that lived through it are not those of one that starts now"
            )


_NOT_COMPARED = ("assumed_volumes", "assumed_claims", "reserved", "promised", "naming", "asking")
"""Overlays compare as identities, a reservation is let go of in its own time, and who names whom stands in the
volumes and claims."""


def no_pod_is_lost(picture: Picture, now: int) -> Iterator[Violation]:
    """3 and 9: whoever waits has no node, and the index says of it what walking all nodes says."""
    # What ended bindings hold of a capacity is let go of in its time, and whoever waits for it is woken then.
    picture.recall(now)
    index, states = picture.index, picture.world.states
    for pod in sorted(index.snapshot.pods.values(), key=lambda it: it.key):
        if not wants_node(pod):
            continue
        avoid = nodes_to_avoid(pod.key, states, since=rfc3339(now - AVOID_SECONDS * SECOND))
        yield from _judged(pod, index, avoid, picture.demerits(pod, now))


def _judged(pod: Pod, index: Index, avoid: frozenset[str], demerits: Demerits) -> Iterator[Violation]:
    found = index.decide(pod, avoid=avoid, demerits=demerits)
    walked = attempt(index.snapshot, pod, profile=index.profile, avoid=avoid, demerits=demerits)
    chosen, choice = (None if it.chosen is None else it.chosen.node for it in (found, walked))
    if chosen != choice:
        yield Violation(9, f"pod/{pod.key} goes to {chosen} by the index and to {choice} by walking all nodes")
    if chosen is not None:
        yield Violation(3, f"pod/{pod.key} could run on {chosen}, and nobody tries any more")


def fresh_picture(database: Database) -> Picture:
    world = World(database)
    picture = Picture(world)
    picture.update(world.catch_up())
    return picture


def mirrored(database: Database, api: ForeignApi) -> Iterator[Violation]:
    """5: our views of a foreign cluster are what it has."""
    with database.read() as connection:
        for kind in KINDS_MIRRORED:
            rows = connection.execute(select(VIEWS[NOUN_OF_KIND[kind]][0])).mappings()
            views = {row["key"]: dict(object_state(dict(row)).manifest or {}) for row in rows}
            there = {_key(it): without_null_fields(it) for it in api.list(kind).objects}
            for key in sorted(views.keys() | there.keys()):
                if views.get(key) != there.get(key):
                    yield Violation(5, f"our view of {kind} {key} is not what the cluster has")


def _key(manifest: object) -> str:
    assert isinstance(manifest, dict)
    found = manifest["metadata"]
    return f"{found['namespace']}/{found['name']}" if "namespace" in found else str(found["name"])
