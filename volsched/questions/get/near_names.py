"""The answer for a name that has no object: when it was deleted, or which names are close."""

import difflib
from typing import TYPE_CHECKING

from volsched.log.events.streams import Named
from volsched.log.reads.views import Look
from volsched.questions.get.documents import namespace_of
from volsched.questions.refusals import UnknownError
from volsched.runtime.clock import rfc3339

if TYPE_CHECKING:
    from sqlalchemy import Connection

SUGGESTED = 3
SHORTEST_START = 4
"""Characters of an id."""


def not_found(look: Look, named: Named, key: str, *, within: str | None = None) -> str:
    """That there is none, and what comes near: other names, another namespace, an earlier time.

    `within` is the one namespace whose names may be shown.
    """
    message = f'{named.title} "{key}" not found'
    if look.position == 0 and (begins := log_beginning(look)) is not None:
        return f"{message}: the log begins at {begins}, and nothing is known of the time before"
    gone = look.deleted_at(named.noun, key)
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
    namespace = key.rpartition("/")[2]
    if named.namespaced and within in (None, namespace) and look.one("namespace", namespace) is not None:
        return f"{message}; {namespace} is a namespace: volsched get {named.plural} -n {namespace}"
    everywhere = " -A" if named.namespaced else ""
    return f"{message}; see what there is: volsched get {named.plural}{everywhere}"


def full_id(look: Look, named: Named, key: str) -> str:
    """The id of the one binding or attempt that begins so; other keys as they are."""
    if named.is_object or len(key) < SHORTEST_START or look.one(named.noun, key) is not None:
        return key
    found = [it for it, _ in look.every(named.noun) if it.startswith(key)]
    if len(found) > 1:
        some = ", ".join(found[:SUGGESTED])
        raise UnknownError(f'several {named.plural} begin with "{key}": {some}; give more of its id')
    return found[0] if found else key


def log_beginning(look: Look) -> str | None:
    """When the first event was written, if it is the past that is looked at."""
    connection = getattr(look, "connection", None)
    if connection is None:
        # The present is read without SQLAlchemy, and knows itself.
        return None
    from volsched.log.reads.tail import event

    first = event(connection, 1)
    return None if first is None else rfc3339(first.at)


def never_was(connection: "Connection", named: Named, key: str, *, within: str | None = None) -> str | None:
    """The same of what never was there; None where it was, for what is gone by now is history too."""
    from volsched.log.reads.as_of import look_at_head

    look = look_at_head(connection)
    if look.source.state_as_of(f"{named.noun}/{key}", look.position) is not None:
        return None
    return not_found(look, named, key, within=within)
