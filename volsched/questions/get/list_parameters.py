"""Parameters of the questions for bindings, attempts, effects and reservations: lists, and single ones."""

from typing import Annotated

from pydantic import Field

from volsched.binding.executor import QUEUES
from volsched.binding.rules.phases import Phase
from volsched.log.effects import EffectState
from volsched.questions.get.parameters import Namespace
from volsched.questions.parameters import MOST, Parameters, Spelling, api_only, argument, option

LIST_PAGE = 500
Id = Annotated[str, argument("ID"), Field(description="The ID that lists show.")]
OnlyName = Annotated[str | None, api_only(), Field(description="Only this one.")]


class NamedParameters(Parameters):
    """A binding, an attempt or a reservation, which is in the namespace of its pod."""

    name: Id
    namespace: Annotated[
        str, Spelling("path", ("--namespace", "-n"), "NS"), Field(description="Namespace of its pod.")
    ]


class EffectName(Parameters):
    name: Id


class ListParameters(Parameters):
    limit: Annotated[int, option("--limit"), Field(ge=1, le=MOST, description="Items of a page, at most.")] = (
        LIST_PAGE
    )
    after: Annotated[
        str | None,
        option("--after", query="continue"),
        Field(description="The next page: the token that the page before ended with."),
    ] = None
    name: OnlyName = None


class ReservationList(ListParameters):
    namespace: Namespace = None


class DecisionList(ReservationList):
    pod: Annotated[
        str | None,
        api_only(),
        Field(description="Only of this pod: NAME within a namespace, else NAMESPACE/NAME."),
    ] = None
    node: Annotated[str | None, api_only(), Field(description="Only of this node.")] = None

    @property
    def pod_key(self) -> str | None:
        if self.pod is None or "/" in self.pod or self.namespace is None:
            return self.pod
        return f"{self.namespace}/{self.pod}"


class BindingList(DecisionList):
    state: Annotated[Phase | None, api_only(), Field(description="Only in this state.")] = None


class AttemptList(DecisionList):
    outcome: Annotated[str | None, api_only(), Field(description="planned, failed, unschedulable or error.")] = (
        None
    )


class EffectList(ListParameters):
    state: Annotated[EffectState | None, option("--state"), Field(description="Only those in this state.")] = None
    queue: Annotated[
        str | None, option("--queue", choices=QUEUES), Field(description="Only those of this queue.")
    ] = None
