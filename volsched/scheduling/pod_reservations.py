"""Decisions on request: reservations held under a lease, and a delayed claim bound for a named node."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pydantic_core import from_json
from sqlalchemy import Connection

from volsched.binding.rules import reservations
from volsched.binding.rules.phases import Phase
from volsched.binding.rules.plan import changed_since, promised_since, taken_by_plan
from volsched.binding.rules.reservations import BIND_REQUESTED, NodeChoice, NotToBeBoundError, bind_event, choose
from volsched.kube.workloads import TERMINATED, Pod
from volsched.log.commands import Command, ConflictError, Done, Precondition, Scan
from volsched.log.database import Database
from volsched.log.events.envelope import Event
from volsched.log.events.fold import (
    BindingState,
    Decision,
    ObjectState,
    States,
    binding_stream,
    living,
    origin_version,
    pod_stream,
)
from volsched.log.integrity.side_tables import reservation_key
from volsched.log.reads.decision_audit import attempts_for
from volsched.log.reads.event_audit import EVERYTHING
from volsched.log.reads.lookups import result_of
from volsched.log.reads.open_bindings import surroundings
from volsched.log.reads.tail import state_as_of
from volsched.objects.rules.object_events import notice_event, notice_stream
from volsched.runtime.clock import SECOND, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import Picture, read_object
from volsched.scheduling.index import Index
from volsched.scheduling.planner import Planned, bind_seconds, decider, plan_command, plan_for
from volsched.scheduling.rules.attempts import event_of_attempt, message_of
from volsched.scheduling.rules.configuration import DEFAULT, Configuration
from volsched.scheduling.rules.cycle import Attempt, attempt
from volsched.scheduling.rules.failure_memory import AVOID_SECONDS, nodes_to_avoid
from volsched.scheduling.rules.status import AttemptError, Code, Status
from volsched.scheduling.rules.volume_filter import assume_pod_volumes, not_ready
from volsched.scheduling.unschedulable import ReportedReason, repetition

# One at a time, on a picture that follows the log; threads of a caller wait for each other. A plan that lost a
# race against another writer is decided again.

TRIES = 5
DEFAULT_SECONDS = 60
MOST_SECONDS = 24 * 3600
"""The longest lease. A longer reservation must be renewed, which shows that its owner is alive."""
LONGEST_KEY = 200
ENDED = frozenset({Phase.COMPENSATING, Phase.ROLLED_BACK})
"""Phases in which a reservation has released its claims and volumes, or is about to."""
Append = Callable[[Command], Done]
"""Carries out a command and returns once it is durable; raises its refusal."""


class UnknownPodError(LookupError):
    """The pod or the node does not exist."""


class UnknownReservationError(LookupError):
    """The reservation does not exist."""


class NotToBeReservedError(Exception):
    """The pod cannot get a reservation in its state, or has one already; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    pod: str
    seconds: int = DEFAULT_SECONDS
    node: str | None = None
    """The node to reserve on; None: the best one."""
    pod_uid: str | None = None
    key: str | None = None
    """Idempotency: a repeated request with the same key gets the first answer."""


@dataclass(frozen=True, slots=True)
class ReservationRefused:
    """No node fits. The attempt is stored, with the reasons by set of nodes."""

    attempt: str
    message: str


@dataclass(slots=True)
class Reserver:
    database: Database
    append: Append
    new_id: Callable[[], str]
    configuration: Configuration = DEFAULT
    picture: Picture = field(init=False)

    def __post_init__(self) -> None:
        self.picture = Picture.on(self.database, self.configuration)

    def reserve(self, request: ReservationRequest, *, actor: str, now: int) -> str | ReservationRefused:
        """The id of the reservation, or the refusal."""
        late: tuple[type[Exception], ...] = (ConflictError, *self.database.refusals)
        for _ in range(TRIES):
            repeated = self._repeated(request)
            if repeated is not None:
                return repeated
            self.picture.catch_up(now)
            pod = self._pod(request)
            planned = self._plan(pod, request, now)
            if isinstance(planned, Attempt):
                return self._refuse(pod, planned, actor)
            try:
                done = self.append(self._command(planned, request, actor))
            except Exception as error:
                # Remove the unwritten plan. If another writer was first, the next decision sees its write.
                self.picture.update(planned.plan.streams)
                if not isinstance(error, late):
                    raise
            else:
                return str(done.result["binding"])
            finally:
                self.picture.wake_up()
        raise NotToBeReservedError(
            f'pod "{request.pod}": the store changed {TRIES} times during its decision; retry'
        )

    def confirm(self, binding: str, *, actor: str, now: int) -> None:
        """Confirm a reservation, so that it is bound. No effect if it is confirmed already, or has ended."""
        seconds = self.configuration.bind_timeout_seconds
        self.append(confirming(self.database, binding, actor=actor, now=now, timeout_seconds=seconds))

    def renew(self, binding: str, *, seconds: int, actor: str, now: int) -> None:
        until = now + seconds * SECOND
        self._append(binding, actor, lambda states: reservations.renew(binding, states, now=now, until=until))

    def cancel(self, binding: str, *, reason: str, actor: str) -> None:
        self.append(cancelling(self.database, binding, reason=reason, actor=actor))

    def _append(self, binding: str, actor: str, decide: Callable[[States], Decision]) -> None:
        self.append(_command_about(self.database, binding, actor, decide))

    def _repeated(self, request: ReservationRequest) -> str | None:
        if request.key is None:
            return None
        with self.database.read() as connection:
            result = result_of(connection, _key(request)) or {}
        if result and result["pod"] != request.pod:
            raise NotToBeReservedError(
                f'key "{request.key}" was used for pod "{result["pod"]}"; give each request a key of its own'
            )
        return str(result["binding"]) if result else None

    def _pod(self, request: ReservationRequest) -> Pod:
        pod, binding = self.picture.index.snapshot.pods.get(request.pod), self.picture.planned.get(request.pod)
        if pod is None:
            raise UnknownPodError(f'pod "{request.pod}" not found')
        if request.pod_uid is not None and pod.meta.uid != request.pod_uid:
            raise NotToBeReservedError(
                f'pod "{request.pod}" has uid {pod.meta.uid}, not {request.pod_uid}: it is another pod'
            )
        if binding is not None:
            state = self.picture.world.binding(binding)
            raise NotToBeReservedError(
                f'pod "{request.pod}" has binding {binding} already ({"open" if state is None else state.state})'
            )
        if pod.node_name:
            raise NotToBeReservedError(f'pod "{request.pod}" is on node "{pod.node_name}" already')
        if pod.meta.being_deleted or pod.phase in TERMINATED:
            raise NotToBeReservedError(f'pod "{request.pod}" has ended or is being deleted')
        if request.node is not None and request.node not in self.picture.index.snapshot.nodes:
            raise UnknownPodError(f'node "{request.node}" not found')
        return pod

    def _plan(self, pod: Pod, request: ReservationRequest, now: int) -> Planned | Attempt:
        """Decide and plan. The picture shows the plan from here on, until it is committed or reverted."""
        decision = self._decide(pod, request.node, now)
        if decision.chosen is None:
            return decision
        waits = not_ready(decision.chosen.answer)
        if waits is not None:
            return Attempt(status=Status(Code.ERROR, (waits,)), claims=decision.claims)
        index = self.picture.index
        node = index.snapshot.nodes[decision.chosen.node]
        try:
            _, taken = assume_pod_volumes(index.snapshot, pod, node, decision.chosen.answer, profile=index.profile)
        except AttemptError as error:
            return Attempt(status=Status(Code.ERROR, (str(error),)), claims=decision.claims)
        planned = plan_for(
            pod,
            decision,
            taken,
            binding=self.new_id(),
            picture=self.picture,
            now=now,
            timeout_seconds=self.configuration.bind_timeout_seconds,
        )
        held = replace(planned.plan, reserved=True, key=request.key or "", deadline=now + request.seconds * SECOND)
        return replace(planned, plan=held)

    def _decide(self, pod: Pod, node: str | None, now: int) -> Attempt:
        index = self.picture.index
        if node is not None:
            return attempt(index.snapshot, pod, profile=index.profile, only={node})
        since = rfc3339(now - AVOID_SECONDS * SECOND)
        avoid = nodes_to_avoid(pod.key, self.picture.world.states, since=since)
        avoid |= self.picture.rejecting_nodes(since)
        return index.decide(pod, avoid=avoid, demerits=self.picture.demerits(pod, now))

    def _command(self, planned: Planned, request: ReservationRequest, actor: str) -> Command:
        command = plan_command(planned, actor=actor, decider=decider(actor))
        result = {"binding": planned.plan.binding, "pod": planned.plan.pod}
        scan = command.precondition.scan
        assert scan is not None
        # The actor also writes objects itself, and this decision did not see those writes.
        precondition = Precondition(
            key=None if request.key is None else _key(request), scan=replace(scan, knows_own=False)
        )
        return replace(
            command,
            decide=lambda states: replace(command.decide(states), result=result),
            precondition=precondition,
        )

    def _refuse(self, pod: Pod, refusal: Attempt, actor: str) -> ReservationRefused:
        """Store the reason; a repeated answer is only counted."""
        decided_at, who, said = self.picture.world.position, decider(actor), message_of(refusal)
        with self.database.read() as connection:
            last = next(iter(attempts_for(connection, pod.key, EVERYTHING, limit=1)), None)
        same = last is not None and (last.pod_uid, last.decider) == (pod.meta.uid, who)
        if last is not None and same and from_json(last.detail).get("message") == said:
            self.append(
                repetition(ReportedReason(pod.meta.uid, last.id, said), actor=actor, decided_at=decided_at)
            )
            return ReservationRefused(str(last.id), said)
        refusal = replace(refusal, in_full=self.picture.index.in_full(pod, refusal))
        made = event_of_attempt(pod, refusal, self.new_id(), decided_at, who)
        self.append(Command(actor=actor, streams=(made.stream,), decide=lambda _: Decision(events=(made,))))
        return ReservationRefused(made.stream.partition("/")[2], said)


def confirming(database: Database, binding: str, *, actor: str, now: int, timeout_seconds: int) -> Command:
    """The command that confirms a reservation; the pod may set the time-out of its binding."""

    def decide(states: States) -> Decision:
        state = states.get(binding_stream(binding))
        pod = living(states, pod_stream(state)) if isinstance(state, BindingState) else None
        value = None if pod is None or pod.manifest is None else read_object("pod", pod.manifest, pod.rv)
        seconds = bind_seconds(value, timeout_seconds) if isinstance(value, Pod) else timeout_seconds
        return reservations.confirm(binding, states, now=now, deadline=now + seconds * SECOND)

    return _command_about(database, binding, actor, decide)


def cancelling(database: Database, binding: str, *, reason: str, actor: str) -> Command:
    """The command that cancels a reservation. No effect if it is confirmed already, or has ended."""
    return _command_about(
        database, binding, actor, lambda states: reservations.cancel(binding, states, reason=reason)
    )


def _command_about(database: Database, binding: str, actor: str, decide: Callable[[States], Decision]) -> Command:
    """A command on a reservation and the objects around it. Raises UnknownReservationError."""
    with database.read() as connection:
        reservation(connection, binding)
        streams = surroundings(database, connection, [binding])
    return Command(actor=actor, streams=tuple(dict.fromkeys((binding_stream(binding), *streams))), decide=decide)


def reservation(connection: Connection, binding: str) -> BindingState:
    """The reservation's state in the log; raises for a binding that never was a reservation."""
    state = state_as_of(connection, binding_stream(binding), position=2**62)
    if not isinstance(state, BindingState) or not state.plan.get("reserved"):
        raise UnknownReservationError(f'reservation "{binding}" not found')
    return state


def _key(request: ReservationRequest) -> str:
    """Keys of reservations are separate from those of other commands and of other namespaces: a caller with access
    to one namespace must not learn of requests in another.
    """
    return reservation_key(request.pod, request.key or "")


# A delayed claim bound on request: decided on the current store, written if that is unchanged.

COMPONENT = "volsched"


class InFlightError(Exception):
    """A binding in flight has the claim; the caller must wait."""


def choose_now(
    database: Database, claim: str, node: str, *, now: int, configuration: Configuration = DEFAULT
) -> tuple[Picture, NodeChoice]:
    """The choice for the claim on the node now; what bindings in flight hold is excluded."""
    world = World(database)
    picture = Picture(world, Index(profile=configuration.profile), configuration.capacity_hold_seconds * SECOND)
    picture.update(world.catch_up())
    picture.recall(now)
    owner = picture.owners.get(claim)
    if owner is not None:
        raise InFlightError(f'claim "{claim}" is being bound by binding {owner}; see volsched recover')
    choice = choose(picture.index.snapshot, claim, node, profile=configuration.profile)
    if origin_version(_object_state(picture, choice.written)) is not None:
        raise NotToBeBoundError(
            f'claim "{claim}" lives in another cluster and is written only there; bind it there'
        )
    return picture, choice


def binding_alone(picture: Picture, choice: NodeChoice, *, actor: str, reason: str, now: int) -> Command:
    """The command that binds the claim. ConflictError if the objects that it was decided on changed since."""
    claim = choice.claim
    streams = dict.fromkeys((f"claim/{claim.key}", choice.written))
    message = f"{choice.description}, asked for by {actor}: {reason}"
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
            # Versions of streams, not of objects: an assumption made since counts too.
            versions={stream: _object_state(picture, stream).version for stream in streams},
            # Concurrent requests of one caller share an actor: the other request must not count as our own.
            scan=Scan(picture.world.position, outdated, knows_own=False),
        ),
    )


def _object_state(picture: Picture, stream: str) -> ObjectState:
    state = picture.world.states[stream]
    assert isinstance(state, ObjectState)
    return state
