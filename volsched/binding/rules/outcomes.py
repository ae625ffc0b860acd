"""Work that is said to be done, against the binding as the log has it: is the outcome recorded there?"""

from volsched.binding.rules.late_writes import UNDO
from volsched.binding.rules.phases import SETTLED, LegPhase, Phase
from volsched.binding.rules.saga import ANNOTATE, BIND_POD, PREBIND, RELEASE
from volsched.log.events.fold import BindingState

KINDS = frozenset({PREBIND, ANNOTATE, RELEASE, BIND_POD, UNDO})
_BEFORE_POD = frozenset({Phase.RESERVED, Phase.PREBINDING, Phase.WAITING, Phase.COMMITTING})


def contradiction(kind: str, part: str, state: BindingState) -> str | None:
    """Why work of this kind on this part of the binding, a leg's number or `pod`, cannot be over; None: it can."""
    if kind == BIND_POD:
        return f"the log has the binding {state.state}" if state.state in _BEFORE_POD else None
    if not part.isdecimal() or int(part) >= len(state.legs):
        return f"the log has a binding of {len(state.legs)} legs, and none with number {part}"
    leg = state.legs[int(part)]
    waits = (
        (state.open and leg.state == LegPhase.ASSUMED)
        if kind in (PREBIND, ANNOTATE)
        else (kind == RELEASE and leg.state not in SETTLED)
    )
    return f"the log has leg {part} {leg.state}" if waits else None
