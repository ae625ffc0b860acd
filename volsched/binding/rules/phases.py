"""The states of a binding and of its legs, and the guards that keep them correct."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    RESERVED = "reserved"
    """Legs are assumed and nothing is written: held until it is confirmed or the lease ends."""
    PREBINDING = "prebinding"
    """Legs are assumed; their writes are in flight."""
    WAITING = "waiting"
    """Every leg is written; the cluster completes them."""
    COMMITTING = "committing"
    """Every leg is bound; the pod is being bound to its node."""
    COMMITTED = "committed"
    COMPENSATING = "compensating"
    """The binding failed; legs are voided, released or retained."""
    ROLLED_BACK = "rolled-back"


class LegPhase(StrEnum):
    PLANNED = "planned"
    """Decided; its write is not queued yet: on foreign objects the nomination, or static legs, go first."""
    ASSUMED = "assumed"
    """Decided; the outcome of its write is not known yet."""
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
    """Left in place, with the reason."""


SETTLED = frozenset({LegPhase.VOIDED, LegPhase.RELEASED, LegPhase.RETAINED})
"""Legs that need nothing more when their binding fails."""
UNDER_WAY = frozenset({Phase.RESERVED, Phase.PREBINDING, Phase.WAITING})
"""Phases in which a change in the cluster can still fail a binding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Drills proved each necessary; only tests switch one off, to check that they would notice."""

    lanes: bool = True
    """A leg is released only after the outcome of its write is known."""
    precondition: bool = True
    """A write is refused if the object is not at the version the plan was made on."""
    dirty: bool = True
    """A claim that may hold data is never unbound."""
    stamp: bool = True
    """An object without the binding's stamp is not undone: it belongs to another writer now."""
    memory: bool = True
    """Nodes on which bindings of a pod failed rank last in its next decisions."""
    in_flight: bool = True
    """A decision counts for the next decision as if it were bound."""


ALL_GUARDS = Guards()
