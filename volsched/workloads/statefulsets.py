"""The StatefulSet controller: creates, removes and replaces pods of sets, and keeps revisions and status.

Every write has the precondition that the set is unchanged, so two processes never write twice. The garbage
collector (`workloads.garbage_collector`) deletes the pods of a deleted set.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from volsched.kube.manifest import Manifest, status
from volsched.kube.workloads import StatefulSet
from volsched.log.commands import Command, Precondition
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, living, manifest_of
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.rules.admission import TerminatingError, priority_streams
from volsched.objects.rules.field_check import UndecodableError
from volsched.objects.rules.object_events import ForbiddenError, InvalidError
from volsched.objects.surroundings import Subject, read_surroundings
from volsched.runtime.clock import parse_rfc3339, rfc3339
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import read_object
from volsched.scheduling.queue.entry import SECOND
from volsched.workloads.agenda import Agenda
from volsched.workloads.rules.ownership import controller_of, is_owned
from volsched.workloads.rules.revisions import REVISION
from volsched.workloads.rules.statefulsets import (
    CREATED,
    DELETED,
    FAILED_CREATE,
    Ready,
    Replica,
    SetStep,
    claim_notice,
    is_placed,
    next_step,
    pod_failure_notice,
    pod_notice,
)

BATCH = 64
"""Maximum number of sets examined in one step."""
MOST = 100
"""Maximum number of pods of one set created or removed in one step."""
RETRY = 10 * SECOND
"""The delay before a pod that admission refused is retried."""
COMPONENT = "statefulset-controller"
SET = "statefulset/"
OWNED = ("pod/", "revision/")


@dataclass(slots=True)
class StatefulSets:
    database: Database
    world: World
    owner: str
    new_uid: Callable[[], str]
    ready: Ready = is_placed
    """Whether a pod is ready, so that the next may be created; with node agents, pass `is_running`."""
    grace: int | None = 0
    """The grace period of pods, in seconds; None: their own, with node agents that end them."""
    _agenda: Agenda = field(default_factory=Agenda)
    _owned: dict[str, dict[str, None]] = field(default_factory=dict)
    """Set → its pods and revisions; all as streams."""
    _watched: dict[str, str] = field(default_factory=dict)
    """Pod, claim or revision → the set that has or wants one of that name."""

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        states = self.world.states
        for stream in streams:
            if stream.startswith(OWNED) and (is_owned(states.get(stream)) or stream in self._watched):
                self._update_owned(stream)
            elif stream.startswith(SET):
                self._agenda.add((stream,))
            if stream in self._watched:
                self._agenda.add((self._watched[stream],))

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as sets:
            self._carry_out([it for stream in sets for it in self._due_commands(stream, now)], now)
        return len(sets)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _update_owned(self, stream: str) -> None:
        manifest = manifest_of(self.world.states, stream)
        owner = None if manifest is None else controller_of(manifest)
        if owner is not None and owner.stream.startswith(SET):
            self._owned.setdefault(owner.stream, {})[stream] = None
            self._watched[stream] = owner.stream
        elif (before := self._watched.get(stream)) is not None:
            self._owned.get(before, {}).pop(stream, None)

    def _due_commands(self, stream: str, now: int) -> Iterator[tuple[StatefulSet, str, Command]]:
        """The commands, each with the pod that it concerns; empty: it concerns the set."""
        state = living(self.world.states, stream)
        if state is None or state.manifest is None:
            self._forget(stream)
            return
        set_ = read_object("statefulset", state.manifest, state.rv)
        assert isinstance(set_, StatefulSet)
        pods = _SetInWorld(self, stream, set_)
        step = next_step(set_, state.manifest, pods, ready=self.ready, most=MOST, now=rfc3339(now))
        if step.again is not None and (due := parse_rfc3339(step.again)) is not None:
            self._agenda.put_off(stream, due)
        for pod, command in self._commands(stream, state, set_, step, now):
            yield set_, pod, command

    def _carry_out(self, wanted: list[tuple[StatefulSet, str, Command]], now: int) -> None:
        outcomes = execute(self.database, [command for _, _, command in wanted], now=now)
        # Any other refusal means that an object has changed: the log has that, and the set is examined again.
        notices = []
        for (set_, pod, _), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, ForbiddenError):
                # Admission may allow the pod later, and that change is not watched.
                self._agenda.put_off(f"{SET}{set_.meta.key}", now + RETRY)
                if isinstance(outcome, TerminatingError):
                    # The set mostly goes with its namespace, and needs no report.
                    continue
                why = f'pods "{pod}" is forbidden: {outcome}'
            elif isinstance(outcome, InvalidError | UndecodableError):
                why = str(outcome)
            else:
                continue
            message = pod_failure_notice(pod, set_.meta.name, why)
            notices.append(self._notice_command(set_, "Warning", FAILED_CREATE, message, now, once=True))
        execute(self.database, notices, now=now)

    def _forget(self, stream: str) -> None:
        self._owned.pop(stream, None)
        for name in [name for name, owner in self._watched.items() if owner == stream]:
            del self._watched[name]

    def _commands(
        self, stream: str, state: ObjectState, set_: StatefulSet, step: SetStep, now: int
    ) -> Iterator[tuple[str, Command]]:
        precondition = Precondition(versions={stream: state.version})
        for command in self._revision_commands(set_, step, now):
            yield "", door.together(command, precondition=precondition)
        for planned in step.create:
            for replica in _apart(planned):
                yield (
                    replica.name,
                    door.together(*self._creation_commands(set_, replica, now), precondition=precondition),
                )
        for name in step.remove:
            pod = living(self.world.states, f"pod/{set_.meta.namespace}/{name}")
            if pod is not None:
                delete = door.delete_unchanged(
                    "Pod", pod, door.controller(self.owner, now), grace=self.grace
                ).command
                message = pod_notice("Delete", name, set_.meta.name)
                notice = self._notice_command(set_, "Normal", DELETED, message, now)
                yield name, door.together(delete, notice, precondition=precondition)
        for message in step.blocked:
            yield "", self._notice_command(set_, "Warning", FAILED_CREATE, message, now, once=True)
        # Last: it changes the set's version, which is the precondition of all other commands.
        manifest: Manifest = state.manifest or {}
        kept = {**status(manifest), **step.status}
        if kept != status(manifest):
            author, wanted = door.controller(self.owner, now), {**manifest, "status": kept}
            yield "", door.update("StatefulSet", wanted, author, expected=state, status=True).command

    def _revision_commands(self, set_: StatefulSet, step: SetStep, now: int) -> Iterator[Command]:
        author, namespace = door.controller(self.owner, now), set_.meta.namespace
        if step.new_revision is not None:
            yield door.create(REVISION, step.new_revision, author, uid=self.new_uid()).command
        if step.renumbered is not None:
            yield door.update(REVISION, step.renumbered, author).command
        for name in step.forgotten:
            if (revision := living(self.world.states, f"revision/{namespace}/{name}")) is not None:
                yield door.delete_unchanged(REVISION, revision, author).command

    def _creation_commands(self, set_: StatefulSet, replica: Replica, now: int) -> Iterator[Command]:
        manifests = [("PersistentVolumeClaim", it) for it in replica.claims]
        if replica.pod is not None:
            manifests.append(("Pod", replica.pod))
        subjects = [Subject(kind, "", manifest) for kind, manifest in manifests]
        surroundings = read_surroundings(self.database, subjects, zonal_upgrade=False)
        for (kind, manifest), around in zip(manifests, surroundings, strict=True):
            author = door.controller(self.owner, now)
            yield door.create(kind, manifest, author, uid=self.new_uid(), around=around).command
            name, owner = manifest["metadata"]["name"], set_.meta.name
            is_pod = kind == "Pod"
            message = pod_notice("Create", name, owner) if is_pod else claim_notice(name, replica.name, owner)
            yield self._notice_command(set_, "Normal", CREATED, message, now)

    def _notice_command(
        self, set_: StatefulSet, type_: str, reason: str, message: str, now: int, *, once: bool = False
    ) -> Command:
        return door.notice(
            "StatefulSet", set_.meta.key, door.controller(self.owner, now),
            uid=set_.meta.uid, type_=type_, reason=reason, message=message,
            component=COMPONENT, once=once,
        )  # fmt: skip

    def watch(self, stream: str, set_stream: str) -> Manifest | None:
        """An object that a set wants, or None; the set is examined again when that object changes."""
        self._watched[stream] = set_stream
        return manifest_of(self.world.states, stream)

    def owned_by(self, set_stream: str, prefix: str) -> Iterator[Manifest]:
        for stream in self._owned.get(set_stream, ()):
            manifest = manifest_of(self.world.states, stream) if stream.startswith(prefix) else None
            if manifest is not None:
                yield manifest


def _apart(replica: Replica) -> Iterator[Replica]:
    """Split into separate commands, so that a pod refused by admission does not block its claims."""
    if replica.pod is None or not replica.claims or not priority_streams("Pod", replica.pod):
        yield replica
    else:
        yield replace(replica, pod=None)
        yield replace(replica, claims=())


@dataclass(frozen=True, slots=True)
class _SetInWorld:
    """The world's objects of one set."""

    sets: StatefulSets
    stream: str
    set_: StatefulSet

    def pod(self, name: str, /) -> Manifest | None:
        return self.sets.watch(f"pod/{self.set_.meta.namespace}/{name}", self.stream)

    def claim(self, name: str, /) -> Manifest | None:
        return self.sets.watch(f"claim/{self.set_.meta.namespace}/{name}", self.stream)

    def revision(self, name: str, /) -> Manifest | None:
        return self.sets.watch(f"revision/{self.set_.meta.namespace}/{name}", self.stream)

    def owned(self) -> Iterator[Manifest]:
        return self._ours("pod/")

    def revisions(self) -> Iterator[Manifest]:
        return self._ours("revision/")

    def _ours(self, prefix: str) -> Iterator[Manifest]:
        """The set's own objects. Those of an earlier set of its name are left to the garbage collector."""
        for manifest in self.sets.owned_by(self.stream, prefix):
            owner = controller_of(manifest)
            if owner is not None and owner.uid == self.set_.meta.uid:
                yield manifest
