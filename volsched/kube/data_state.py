"""The rule for dirty volumes: whether a claim may hold data, by its `status.dataState`.

The PV controller writes `Clean` when it binds a volume that nobody has used; the node agent writes `Dirty` before
a pod gets at the data. Absent means unknown, and what is unknown is never given to somebody else.
"""

CLEAN = "Clean"
DIRTY = "Dirty"


def may_hold_data(data_state: str | None, *, bound: bool) -> bool:
    """A bound claim may, unless it is known to be clean; one that is not bound yet only where it is known to."""
    return data_state != CLEAN if bound else data_state == DIRTY
