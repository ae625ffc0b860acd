"""What to tell where there is no object of a name: when it went, or which names come near.

The command line ends with it, and the API answers with it.
"""

import difflib

from sqlalchemy import Connection

from volsched.log.events.fold import ObjectState
from volsched.log.events.kind_names import Named
from volsched.log.reads.as_of import Look, Now
from volsched.log.reads.tail import read_head, state_as_of
from volsched.questions.get.cells import namespace_of

SUGGESTED = 3


def not_found(connection: Connection, look: Look, named: Named, key: str, *, within: str | None = None) -> str:
    """That there is none, and what comes near: other names, another namespace, an earlier time.

    `within` is the one namespace of which names may be told.
    """
    message = f'{named.title} "{key}" not found'
    gone = _deleted_at(connection, look, named, key)
    if gone is not None:
        return f"{message}: it was deleted at position {gone}; see it with --as-of {gone - 1}"
    by_name: dict[str, list[str]] = {}
    for it, state in look.every(named.noun):
        if within is None or not named.namespaced or namespace_of(it, state) == within:
            by_name.setdefault(it.rpartition("/")[2], []).append(it)
    names = difflib.get_close_matches(key.rpartition("/")[2], by_name, SUGGESTED, cutoff=0.5)
    near = [it for name in names for it in by_name[name]][:SUGGESTED]
    if near:
        return f"{message}; did you mean {' or '.join(near)}?"
    everywhere = " -A" if named.namespaced else ""
    return f"{message}; see what there is: volsched get {named.plural}{everywhere}"


def never_was(connection: Connection, named: Named, key: str, *, within: str | None = None) -> str | None:
    """The same of what never was there; None where it was, for what is gone by now is history too."""
    position = read_head(connection).position
    if state_as_of(connection, f"{named.noun}/{key}", position=position) is not None:
        return None
    return not_found(connection, Now(connection, position), named, key, within=within)


def _deleted_at(connection: Connection, look: Look, named: Named, key: str) -> int | None:
    last = state_as_of(connection, f"{named.noun}/{key}", position=look.position)
    return last.rv if isinstance(last, ObjectState) and last.manifest is None and last.rv else None
