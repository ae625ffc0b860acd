"""The answer for a name without an object: the time of its deletion, or similar names."""

import difflib
from typing import TYPE_CHECKING

from volsched.log.events.streams import Named
from volsched.log.reads.views import StoreView
from volsched.questions.get.documents import namespace_of
from volsched.questions.refusals import UnknownError
from volsched.runtime.clock import rfc3339

if TYPE_CHECKING:
    from sqlalchemy import Connection

SUGGESTED = 3
SHORTEST_START = 4
"""The shortest abbreviation of an id, in characters."""


def not_found(view: StoreView, named: Named, key: str, *, within: str | None = None) -> str:
    """The message that an object does not exist, with a suggestion: similar names, a namespace, an earlier time.

    `within` is the only namespace whose names may be shown.
    """
    message = f'{named.title} "{key}" not found'
    if view.position == 0 and (begins := log_beginning(view)) is not None:
        return f"{message}: the log begins at {begins}, and nothing is known of the time before"
    deleted_at = view.deleted_at(named.noun, key)
    if deleted_at is not None:
        return f"{message}: it was deleted at position {deleted_at}; see it with --as-of {deleted_at - 1}"
    by_name: dict[str, list[str]] = {}
    for it, state in view.every(named.noun):
        if within is None or not named.namespaced or namespace_of(it, state) == within:
            by_name.setdefault(it.rpartition("/")[2], []).append(it)
    names = difflib.get_close_matches(key.rpartition("/")[2], by_name, SUGGESTED, cutoff=0.5)
    suggestions = [it for name in names for it in by_name[name]][:SUGGESTED]
    if suggestions:
        return f"{message}; did you mean {' or '.join(suggestions)}?"
    namespace = key.rpartition("/")[2]
    if named.namespaced and within in (None, namespace) and view.one("namespace", namespace) is not None:
        return f"{message}; {namespace} is a namespace: volsched get {named.plural} -n {namespace}"
    flag = " -A" if named.namespaced else ""
    return f"{message}; see what there is: volsched get {named.plural}{flag}"


def full_id(view: StoreView, named: Named, key: str) -> str:
    """The id of the one binding or attempt that begins with `key`; other keys are returned unchanged."""
    if named.is_object or len(key) < SHORTEST_START or view.one(named.noun, key) is not None:
        return key
    ids = [it for it, _ in view.every(named.noun) if it.startswith(key)]
    if len(ids) > 1:
        examples = ", ".join(ids[:SUGGESTED])
        raise UnknownError(f'several {named.plural} begin with "{key}": {examples}; give more of its id')
    return ids[0] if ids else key


def log_beginning(view: StoreView) -> str | None:
    """When the first event was written; None if the view is of the present."""
    connection = getattr(view, "connection", None)
    if connection is None:
        # The present is read without SQLAlchemy, and is never before the beginning.
        return None
    from volsched.log.reads.tail import event

    first = event(connection, 1)
    return None if first is None else rfc3339(first.at)


def unknown_message(connection: "Connection", named: Named, key: str, *, within: str | None = None) -> str | None:
    """The message for an object that never existed; None if it did: a deleted object has a history."""
    from volsched.log.reads.as_of import view_at_head

    view = view_at_head(connection)
    if view.source.state_as_of(f"{named.noun}/{key}", view.position) is not None:
        return None
    return not_found(view, named, key, within=within)
