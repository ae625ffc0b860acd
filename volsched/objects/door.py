"""THE write door: create, update, patch, apply, delete, bind, unassign, edit and notice as commands.

CLI, HTTP, library, controllers, node agent, provisioners and the port's local adapter write objects only through
this module, so the same manifest gets the same answer from all of them. The rules decide what is allowed
(`rules.admission`); the origin of a write is data (`Author`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from volsched.kube.kinds import KINDS, key_of
from volsched.kube.manifest import metadata
from volsched.kube.server_side_apply import APPLY, STATUS
from volsched.log.commands import Command, ConflictError, Precondition
from volsched.log.events.fold import NOTHING, Decision, ObjectState, States, living, versioned
from volsched.log.events.streams import stream_of
from volsched.objects.object_write import Author, ObjectWrite
from volsched.objects.rules.admission import (
    NO_CONTEXT,
    AdmissionContext,
    AdmittedWrite,
    Creation,
    admit_applied,
    admit_change,
    admit_deletion,
    admit_server_side,
)
from volsched.objects.rules.evictions import evict_pod
from volsched.objects.rules.object_events import (
    NotFoundError,
    changed_event,
    notice_event,
    notice_stream,
)
from volsched.objects.rules.pod_assignment import bind_pod, unassign_pod
from volsched.runtime.clock import rfc3339
from volsched.workloads.rules.ownership import FOREGROUND, ORPHAN

Manifest = Mapping[str, Any]


class Dependents(StrEnum):
    """How the dependents of a deleted object are handled, in the values of `propagationPolicy`."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


_FINALIZERS = {Dependents.FOREGROUND: FOREGROUND, Dependents.ORPHAN: ORPHAN}


def controller(actor: str, now: int) -> Author:
    return Author(actor, rfc3339(now))


# --- writes of one object -------------------------------------------------------------------------------


def create(
    kind: str,
    manifest: Manifest,
    author: Author,
    *,
    uid: str,
    key: str | None = None,
    around: AdmissionContext = NO_CONTEXT,
    status: Manifest | None = None,
) -> ObjectWrite:
    """Create the object; refused if the name is taken. `status` is for controllers."""
    creation = _creation(kind, manifest, author, uid, key, around, status)
    return ObjectWrite(kind, creation.key, author, creation.admit, beside=creation.streams)


def apply(
    kind: str,
    manifest: Manifest,
    author: Author,
    *,
    uid: str,
    around: AdmissionContext = NO_CONTEXT,
) -> ObjectWrite:
    """Create the object if it does not exist, else apply the manifest to it."""
    creation = _creation(kind, manifest, author, uid, None, around, None)
    return ObjectWrite(
        kind, creation.key, author, lambda states: admit_applied(creation, states), beside=creation.streams
    )


def apply_server_side(
    kind: str,
    key: str,
    manifest: Manifest,
    author: Author,
    *,
    uid: str,
    force: bool,
    status: bool = False,
    around: AdmissionContext = NO_CONTEXT,
) -> ObjectWrite:
    """Create the object, or set the fields that the manifest names; `force` takes ownership from
    other managers."""
    creation = replace(_creation(kind, manifest, author, uid, key, around, None), by=author.owner(kind, APPLY))

    def decide(states: States) -> AdmittedWrite:
        return admit_server_side(creation, states, force=force, status=status)

    return ObjectWrite(kind, key, author, decide, beside=creation.streams, reworks=True)


def update(
    kind: str,
    manifest: Manifest,
    author: Author,
    *,
    key: str | None = None,
    expected: ObjectState | None = None,
    status: bool = False,
    around: AdmissionContext = NO_CONTEXT,
    reworks: bool = False,
) -> ObjectWrite:
    """Replace the object. A main update leaves the status alone, a status update everything else.

    It is conditional on the manifest's resourceVersion, or on the version of the `expected` object.
    """
    wanted = manifest if expected is None else _at_version(manifest, expected)
    change = _Change(kind, key or key_of(kind, manifest), author, status, around)
    return change.write(lambda _: wanted, same_uid=True, reworks=reworks)


def patch(
    kind: str,
    key: str,
    change: Callable[[dict[str, Any]], Manifest],
    author: Author,
    *,
    status: bool = False,
    around: AdmissionContext = NO_CONTEXT,
) -> ObjectWrite:
    """Change the object; `change` computes the wanted object from the present one with its version."""
    return _Change(kind, key, author, status, around).write(change, same_uid=False, reworks=True)


def delete(
    kind: str,
    key: str,
    author: Author,
    *,
    uid: str | None = None,
    version: str | None = None,
    grace: int | None = 0,
    dependents: Dependents = Dependents.BACKGROUND,
) -> ObjectWrite:
    """Delete the object; with finalizers it is only marked for deletion. `grace`: the seconds that a pod has to
    terminate; None: the pod's own. `dependents`: how the objects that it owns are handled."""
    stream, kind_ = stream_of(kind, key), KINDS[kind]

    def decide(states: States) -> AdmittedWrite:
        return admit_deletion(
            states.get(stream), kind_, key, now=author.now, uid=uid, rv=version, grace=grace,
            finalizer=_FINALIZERS.get(dependents),
        )  # fmt: skip

    return ObjectWrite(kind, key, author, decide)


def delete_unchanged(kind: str, state: ObjectState, author: Author, *, grace: int | None = 0) -> ObjectWrite:
    """Delete the object if it still has the version that was read."""
    manifest = state.manifest or {}
    uid = metadata(manifest).get("uid")
    return delete(kind, key_of(kind, manifest), author, uid=uid, version=str(state.rv), grace=grace)


def evict(
    key: str,
    author: Author,
    *,
    budgets: tuple[str, ...],
    uid: str | None = None,
    version: str | None = None,
    grace: int | None = None,
) -> ObjectWrite:
    """Delete a pod if its budget allows it; `budgets` are the streams of the budgets in its namespace."""
    stream = stream_of("Pod", key)

    def decide(states: States) -> AdmittedWrite:
        known = {budget: states.get(budget) for budget in budgets}
        event, charged = evict_pod(
            states.get(stream), key, known, now=author.now, uid=uid, rv=version, grace=grace
        )
        return AdmittedWrite(event, charged)

    return ObjectWrite("Pod", key, author, decide, beside=budgets)


def bind(
    key: str,
    node: str,
    author: Author,
    *,
    uid: str | None = None,
    expected_uid: str | None = None,
    expected_version: str | None = None,
    notes: Mapping[str, str] | None = None,
) -> ObjectWrite:
    """Assign a pod that has no node. `uid` identifies the pod: another one of that name counts as not found.

    `expected_uid` and `expected_version` are preconditions instead, and fail as conflicts.
    """
    stream = stream_of("Pod", key)

    def decide(states: States) -> AdmittedWrite:
        pod = living(states, stream)
        if pod is None:
            raise NotFoundError(f'Pod "{key}" not found')
        own = metadata(pod.manifest or {}).get("uid", "")
        expected = (("uid", expected_uid, own), ("resourceVersion", expected_version, str(pod.rv)))
        for field, wanted, have in expected:
            if wanted and wanted != have:
                message = f'Pod "{key}" has {field} {have}, not {wanted}'
                raise ConflictError(message, subject=f'Pod "{key}"', field=field, wanted=wanted, have=have)
        return AdmittedWrite(bind_pod(pod, key, uid=uid or own, node=node, now=author.now, notes=notes))

    return ObjectWrite("Pod", key, author, decide)


def unassign(key: str, author: Author, *, uid: str, reason: str) -> ObjectWrite:
    """Take the pod off the node that rejected it; refused once any of its containers has started."""
    stream = stream_of("Pod", key)

    def decide(states: States) -> AdmittedWrite:
        return AdmittedWrite(unassign_pod(states.get(stream), key, uid=uid, reason=reason, now=author.now))

    return ObjectWrite("Pod", key, author, decide)


# --- commands of controllers ----------------------------------------------------------------------------


def edit(stream: str, patch: Manifest, *, actor: str) -> Command:
    """An unvalidated patch of an object that its controller has read; add the precondition with `together`."""
    event = changed_event(stream, patch)
    return Command(actor=actor, streams=(stream,), decide=lambda _: Decision(events=(event,)))


def notice(
    kind: str, key: str, author: Author, *, uid: str, type_: str, reason: str, message: str, component: str,
    place: str | None = None, once: bool = False,
) -> Command:  # fmt: skip
    """A Kubernetes event about the object. A repeat is counted; with `once`, it is not emitted again."""
    stream = place or notice_stream(kind, key, uid, reason, message)

    def decide(states: States) -> Decision:
        state = states.get(stream)
        if once and state is not None:
            return NOTHING
        event = notice_event(
            state, stream, kind=kind, key=key, uid=uid, type_=type_, reason=reason, message=message,
            component=component, now=author.now,
        )  # fmt: skip
        return Decision(events=(event,))

    return Command(actor=author.actor, streams=(stream,), decide=decide)


def together(*commands: Command, precondition: Precondition) -> Command:
    """One command for all of these, executed together or not at all, under this precondition."""
    streams = dict.fromkeys(stream for command in commands for stream in command.streams)

    def decide(states: States) -> Decision:
        return Decision(events=tuple(event for it in commands for event in it.decide(states).events))

    return Command(actor=commands[0].actor, streams=tuple(streams), decide=decide, precondition=precondition)


def unchanged(objects: Mapping[str, int], *, actor: str) -> Command:
    """Writes nothing; refused where one of the objects is at another version (0: it must not exist).

    Preconditions are re-checked under the log's lock; irreversible calls are allowed after it.
    """
    precondition = Precondition(objects=objects)
    return Command(actor=actor, streams=(), decide=lambda _: NOTHING, precondition=precondition)


# --- inside ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    kind: str
    key: str
    author: Author
    status: bool
    around: AdmissionContext

    def write(self, change: Callable[[dict[str, Any]], Manifest], *, same_uid: bool, reworks: bool) -> ObjectWrite:
        stream, kind = stream_of(self.kind, self.key), KINDS[self.kind]
        owner = self.author.owner(self.kind)
        if self.status and not owner.subresource:
            owner = replace(owner, subresource=STATUS)

        def decide(states: States) -> AdmittedWrite:
            state = living(states, stream)
            if state is None:
                raise NotFoundError(f'{self.kind} "{self.key}" not found')
            return admit_change(
                state, kind, change(versioned(state)), origin=self.author.origin, status=self.status,
                same_uid=same_uid, around=self.around, by=owner,
            )  # fmt: skip

        return ObjectWrite(self.kind, self.key, self.author, decide, reworks=reworks)


def _creation(
    kind: str, manifest: Manifest, author: Author, uid: str, key: str | None, around: AdmissionContext,
    status: Manifest | None,
) -> Creation:  # fmt: skip
    return Creation(
        kind=KINDS[kind], key=key or key_of(kind, manifest), manifest=manifest, uid=uid, now=author.now,
        origin=author.origin, around=around, status=status, by=author.owner(kind),
    )  # fmt: skip


def _at_version(manifest: Manifest, expected: ObjectState) -> Manifest:
    return {**manifest, "metadata": {**metadata(manifest), "resourceVersion": str(expected.rv)}}
