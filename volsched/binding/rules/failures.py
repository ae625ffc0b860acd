"""A decision that came to nothing, told as the reference tells it: what the pod is told, and what is kept of it.

The reference writes its objects, waits, and where that fails says so in the pod's condition and in an event.
Here the binding says why in its own words; these are made the reference's, and stored with
the attempt that chose the node, next to the leg that failed and what its provisioner said.
"""

from dataclasses import dataclass
from typing import Any

from volsched.binding.rules.effect_writes import CHANGED, NOT_FOUND
from volsched.binding.rules.saga import Stage
from volsched.kube.manifest import is_being_deleted, spec, uid
from volsched.log.events.decision import States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import AttemptState, BindingState, LegState
from volsched.log.events.object_states import living, origin_version, pod_stream
from volsched.objects.rules.notices import notice_event, notice_stream
from volsched.scheduling.rules.pod_scheduled import FAILED_SCHEDULING, SCHEDULER_ERROR, refused_conditions

PLUGINS = {"PreBind": "VolumeBinding", "Bind": "DefaultBinder"}
MOST_CHARACTERS = 1024
"""Of a message that a pod is told; the reference cuts it there."""
CUT = " ..."


@dataclass(frozen=True, slots=True)
class BindingFailure:
    binding: str
    state: BindingState
    stage: Stage
    reason: str
    """The binding's own words."""
    index: int | None = None

    @property
    def leg(self) -> LegState | None:
        return None if self.index is None else self.state.legs[self.index]

    @property
    def message(self) -> str:
        """As kube-scheduler words it."""
        said = f'running {self.stage} plugin "{PLUGINS[self.stage]}": {_as_reference(self.reason, self.leg)}'
        return said if len(said) <= MOST_CHARACTERS else said[: MOST_CHARACTERS - len(CUT)] + CUT

    @property
    def attempt(self) -> str:
        """A plan and its attempt have one id."""
        return f"attempt/{self.binding}"

    @property
    def notice(self) -> str:
        plan = self.state.plan
        return notice_stream("Pod", plan["pod"], plan["pod_uid"], FAILED_SCHEDULING, self.message)

    @property
    def streams(self) -> tuple[str, ...]:
        return (pod_stream(self.state), self.attempt, self.notice)


def kept(failure: BindingFailure, states: States, *, words: str | None) -> NewEvent | None:
    """What is stored with the attempt; None where nobody's attempt chose the node. `words`: of the provisioner."""
    if not isinstance(states.get(failure.attempt), AttemptState):
        return None
    leg = failure.leg
    about = {} if leg is None else {"claim": leg.claim, "volume": leg.volume}
    data: dict[str, Any] = {"message": failure.message, "stage": failure.stage, "reason": failure.reason}
    data |= {name: it for name, it in {**about, "words": words}.items() if it is not None}
    return NewEvent(stream=failure.attempt, type="AttemptFailed", data=data, binding=failure.binding)


def told(failure: BindingFailure, states: States, *, component: str, now: str) -> tuple[NewEvent, ...]:
    """The pod's condition and the event about it; nothing where the pod is gone, going, or placed after all."""
    stream, plan = pod_stream(failure.state), failure.state.plan
    pod = living(states, stream)
    if pod is None or pod.manifest is None or uid(pod.manifest) != plan["pod_uid"]:
        return ()
    if is_being_deleted(pod.manifest) or spec(pod.manifest).get("nodeName"):
        return ()
    events = []
    # What lives in a foreign cluster is written there, or nowhere.
    if origin_version(pod) is None:
        conditions = refused_conditions(pod.manifest, reason=SCHEDULER_ERROR, message=failure.message, now=now)
        if conditions is not None:
            data = {"patch": {"status": {"conditions": conditions}}}
            events.append(NewEvent(stream=stream, type="PodChanged", data=data, binding=failure.binding))
    notice = notice_event(
        states.get(failure.notice), failure.notice, kind="Pod", key=plan["pod"], uid=plan["pod_uid"],
        type_="Warning", reason=FAILED_SCHEDULING, message=failure.message, component=component, now=now,
        binding=failure.binding,
    )  # fmt: skip
    return (*events, notice)


def _as_reference(reason: str, leg: LegState | None) -> str:
    """A write that was refused is told in the words of the API server, which the reference passes on."""
    if leg is None or not reason.endswith((CHANGED, NOT_FOUND)) or reason.startswith("binding volumes: "):
        return reason
    resource, name = "persistentvolumes", leg.volume
    if leg.dynamic:
        resource, name = "persistentvolumeclaims", leg.claim.rpartition("/")[2]
    if reason.endswith(NOT_FOUND):
        return f'{resource} "{name}" not found'
    changed = "the object has been modified; please apply your changes to the latest version and try again"
    return f'Operation cannot be fulfilled on {resource} "{name}": {changed}'
