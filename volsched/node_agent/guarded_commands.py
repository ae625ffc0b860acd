"""Commands over several objects, refused unless everything that they were decided on is still as it was seen."""

from collections.abc import Callable, Collection, Iterable, Mapping

from volsched.log.commands import Command, Precondition, Scan
from volsched.log.events.decision import Decision, States
from volsched.log.events.envelope import NewEvent


def if_still_so(
    seen: Mapping[str, int],
    decide: Callable[[States], Iterable[NewEvent]],
    *,
    actor: str,
    besides: Collection[str] = (),
    scan: Scan | None = None,
) -> Command:
    """Several objects changed as one, if everything that was seen is still so.

    `seen` says of each stream at which version its object was (0: there was none); `besides` are streams that may
    be written whatever has become of them.
    """

    def decided(states: States) -> Decision:
        return Decision(events=tuple(decide(states)))

    precondition = Precondition(objects=seen, scan=scan)
    return Command(actor=actor, streams=(*seen, *besides), decide=decided, precondition=precondition)
