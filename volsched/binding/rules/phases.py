"""The states of a binding and of its legs, and which guards keep them true."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    RESERVED = "reserved"
    """Legs are assumed and nothing is written: held until it is confirmed or its lease ends."""
    PREBINDING = "prebinding"
    """Legs are assumed; their writes are under way."""
    WAITING = "waiting"
    """Every leg is written; the cluster completes them."""
    COMMITTING = "committing"
    """Every leg is bound; the pod is being bound to its node."""
    COMMITTED = "committed"
    COMPENSATING = "compensating"
    """Something failed; legs are voided, released or retained."""
    ROLLED_BACK = "rolled-back"


class LegPhase(StrEnum):
    ASSUMED = "assumed"
    """Decided; whether it is written is not known yet."""
    JOINED = "joined"
    """Another binding writes it; this one only waits for the claim."""
    WRITTEN = "written"
    BOUND = "bound"
    RELEASING = "releasing"
    VOIDED = "voided"
    """Never written."""
    RELEASED = "released"
    """Written and undone."""
    RETAINED = "retained"
    """Left as it is, with the reason."""


SETTLED = frozenset({LegPhase.VOIDED, LegPhase.RELEASED, LegPhase.RETAINED})
"""Legs that need nothing more when their binding fails."""
UNDER_WAY = frozenset({Phase.RESERVED, Phase.PREBINDING, Phase.WAITING})
"""Phases in which a binding can still fail by what is observed."""
REFUSED = "refused: the provisioner gave the node back, and nothing was made"
STILL_PROVISIONING = "undecided: a provisioner may still be working on it; its volume goes to this claim"
"""Reasons of legs that were to be provisioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Each was proven necessary by drills; only tests switch one off, to see that they would notice."""

    lanes: bool = True
    """A leg is released only after the outcome of its write is known."""
    precondition: bool = True
    """A write is refused if the object is not at the version the plan was made on."""
    dirty: bool = True
    """A claim that may hold data is never unbound."""
    stamp: bool = True
    """What does not carry the binding's stamp is not undone: it is somebody else's by now."""
    memory: bool = True
    """Where bindings of a pod failed ranks last in its next decisions."""
    in_flight: bool = True
    """What was decided counts for the next decision as if it were bound."""


ALL_GUARDS = Guards()
