"""A delayed claim bound on request: decided on the store as it is, written if that is still so."""

from volsched.binding.rules.bind_claim import BIND_REQUESTED, NodeChoice, NotToBeBoundError, bind_event, choose
from volsched.binding.rules.plan_conflicts import changed_since, promised_since, taken_by_plan
from volsched.log.commands import Command, Precondition, Scan
from volsched.log.database import Database
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import Event
from volsched.log.events.fold import ObjectState
from volsched.log.events.object_states import origin_version
from volsched.objects.rules.notices import notice_event, notice_stream
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture
from volsched.scheduling.index import Index
from volsched.scheduling.rules.configuration import DEFAULT, Configuration

COMPONENT = "volsched"


class InFlightError(Exception):
    """A binding in flight has the claim; whoever is second waits."""


def choose_now(
    database: Database, claim: str, node: str, *, now: int, configuration: Configuration = DEFAULT
) -> tuple[Picture, NodeChoice]:
    """What the claim would get as things stand, with what bindings in flight hold taken off."""
    world = World(database)
    picture = Picture(world, Index(profile=configuration.profile), configuration.capacity_hold_seconds * SECOND)
    picture.update(world.catch_up())
    picture.recall(now)
    owner = picture.owners.get(claim)
    if owner is not None:
        raise InFlightError(f'claim "{claim}" is being bound by binding {owner}; see volsched recover')
    choice = choose(picture.index.snapshot, claim, node, profile=configuration.profile)
    if origin_version(_held(picture, choice.written)) is not None:
        raise NotToBeBoundError(
            f'claim "{claim}" lives in another cluster and is written only there; bind it there'
        )
    return picture, choice


def binding_alone(picture: Picture, choice: NodeChoice, *, actor: str, reason: str, now: int) -> Command:
    """Refused (ConflictError) if the claim, the volume or what decided about the node has changed since."""
    claim = choice.claim
    streams = dict.fromkeys((f"claim/{claim.key}", choice.written))
    message = f"{choice.said}, asked for by {actor}: {reason}"
    notice = notice_stream("PersistentVolumeClaim", claim.key, claim.meta.uid, BIND_REQUESTED, message)
    here = changed_since(choice.node, set() if choice.room is None else {choice.room.capacity})
    promised = promised_since({claim.key})

    def outdated(event: Event) -> str | None:
        return here(event) or promised(event) or taken_by_plan(event, {claim.key})

    def decide(states: States) -> Decision:
        said = notice_event(
            states.get(notice), notice, kind="PersistentVolumeClaim", key=claim.key, uid=claim.meta.uid,
            type_="Normal", reason=BIND_REQUESTED, message=message, component=COMPONENT, now=rfc3339(now),
        )  # fmt: skip
        return Decision(events=(bind_event(choice, states, reason=reason), said))

    return Command(
        actor=actor,
        streams=(*streams, notice),
        decide=decide,
        precondition=Precondition(
            # Versions of streams, not of objects: an assumption that was laid on since counts too.
            versions={stream: _held(picture, stream).version for stream in streams},
            # Whoever asks for it twice at once goes by one name: the other request must not be taken for our own.
            scan=Scan(picture.world.position, outdated, knows_own=False),
        ),
    )


def _held(picture: Picture, stream: str) -> ObjectState:
    state = picture.world.states[stream]
    assert isinstance(state, ObjectState)
    return state
