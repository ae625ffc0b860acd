"""Commands over several objects, refused unless everything that they were decided on is still as it was seen."""

from collections.abc import Callable, Collection, Iterable, Mapping

from volsched.log.commands import Command, ConflictError, Seen
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import NewEvent
from volsched.log.events.fold import ObjectState, State


def if_still_so(
    seen: Mapping[str, int],
    decide: Callable[[States], Iterable[NewEvent]],
    *,
    actor: str,
    besides: Collection[str] = (),
    guard: Seen | None = None,
) -> Command:
    """Several objects changed as one, if everything that was seen is still so.

    `seen` says of each stream at which version its object was (0: there was none); `besides` are streams that may
    be written whatever has become of them.
    """

    def decided(states: States) -> Decision:
        for stream, version in seen.items():
            if version_of(states.get(stream)) != version:
                raise ConflictError(f"{stream} was changed by somebody else")
        return Decision(events=tuple(decide(states)))

    return Command(actor=actor, streams=(*seen, *besides), decide=decided, seen=guard)


def version_of(state: State | None) -> int:
    """The version of the object; 0 where there is none, or none any more."""
    return state.rv if isinstance(state, ObjectState) and state.manifest is not None else 0
