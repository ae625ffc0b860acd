"""The ephemeral-volume controller: creates the claims of pods' templates.

The garbage collector (`workloads.garbage_collector`) deletes a claim together with its pod.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from volsched.kube.storage import Claim
from volsched.kube.workloads import Pod
from volsched.log.commands import Command, Precondition
from volsched.log.database import Database
from volsched.log.events.fold import living
from volsched.log.transaction import execute
from volsched.objects import door
from volsched.objects.rules.admission import CLAIM
from volsched.objects.rules.field_check import UndecodableError
from volsched.objects.rules.object_events import InvalidError
from volsched.objects.surroundings import Subject, read_surroundings
from volsched.pv_controller.rules.reasons import FAILED_BINDING
from volsched.runtime.world import World
from volsched.scheduling.cluster_view import read_object
from volsched.workloads.agenda import Agenda
from volsched.workloads.rules.ownership import ephemeral_claims, has_templates, lacking

BATCH = 256
COMPONENT = "ephemeral-volume-controller"


@dataclass(slots=True)
class EphemeralClaims:
    database: Database
    world: World
    owner: str
    new_uid: Callable[[], str]
    _agenda: Agenda = field(default_factory=Agenda)
    _claims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Pod → its ephemeral claims; both as streams."""
    _pods: dict[str, set[str]] = field(default_factory=dict)
    """Claim → the pods that want it: different pod and volume names may give the same claim name."""

    def update(self, streams: Iterable[str], now: int) -> None:  # noqa: ARG002 - a Part's; nothing here waits
        states = self.world.states
        for stream in streams:
            if stream.startswith("pod/") and (has_templates(states.get(stream)) or stream in self._claims):
                self._update_object(stream)
            elif stream in self._pods:
                self._agenda.add(self._pods[stream])

    def step(self, now: int) -> int:
        with self._agenda.batch(now, BATCH) as pods:
            self._carry_out([it for stream in pods for it in self._commands(stream, now)], now)
        return len(pods)

    def next_due(self) -> int | None:
        return self._agenda.next_due()

    def _update_object(self, stream: str) -> None:
        wanted: tuple[str, ...] = ()
        if has_templates(self.world.states.get(stream)):
            wanted = tuple(f"claim/{key}" for key in ephemeral_claims(self._pod(stream)))
            self._agenda.add((stream,))
        for claim in self._claims.pop(stream, ()):
            self._pods[claim].discard(stream)
            if not self._pods[claim]:
                del self._pods[claim]
        if wanted:
            self._claims[stream] = wanted
            for claim in wanted:
                self._pods.setdefault(claim, set()).add(stream)

    def _pod(self, stream: str) -> Pod:
        state = living(self.world.states, stream)
        assert state is not None
        assert state.manifest is not None
        pod = read_object("pod", state.manifest, state.rv)
        assert isinstance(pod, Pod)
        return pod

    def _commands(self, stream: str, now: int) -> Iterator[tuple[Pod, Command]]:
        state = living(self.world.states, stream)
        if state is None or state.manifest is None:
            return
        pod = self._pod(stream)
        lacks = lacking(pod, state.manifest, dict(self._existing(stream)))
        for manifest in lacks.claims:
            author = door.controller(self.owner, now)
            (around,) = read_surroundings(self.database, [Subject(CLAIM, "", manifest)], zonal_upgrade=False)
            write = door.create(CLAIM, manifest, author, uid=self.new_uid(), around=around)
            # For this very pod: a new pod of its name would not own the claim.
            versions = {stream: state.version}
            yield pod, door.together(write.command, precondition=Precondition(versions=versions))
        for message in lacks.refusals:
            yield pod, self._notice_command(pod, message, now)

    def _existing(self, stream: str) -> Iterator[tuple[str, Claim]]:
        for claim in self._claims.get(stream, ()):
            state = living(self.world.states, claim)
            if state is not None and state.manifest is not None:
                value = read_object("claim", state.manifest, state.rv)
                assert isinstance(value, Claim)
                yield value.key, value

    def _carry_out(self, wanted: list[tuple[Pod, Command]], now: int) -> None:
        outcomes = execute(self.database, [command for _, command in wanted], now=now)
        # Any other refusal means that an object has changed: the log has that, and the pod is examined again.
        invalid = [
            self._notice_command(pod, str(outcome), now)
            for (pod, _), outcome in zip(wanted, outcomes, strict=True)
            if isinstance(outcome, InvalidError | UndecodableError)
        ]
        execute(self.database, invalid, now=now)

    def _notice_command(self, pod: Pod, message: str, now: int) -> Command:
        return door.notice(
            "Pod", pod.key, door.controller(self.owner, now),
            uid=pod.meta.uid, type_="Warning", reason=FAILED_BINDING, message=message,
            component=COMPONENT, once=True,
        )  # fmt: skip
