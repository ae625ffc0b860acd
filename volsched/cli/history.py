"""`volsched history` and `diff`: the timeline of one object, and how the world differs between two moments."""

from typing import Annotated

import typer

from volsched.cli.answers import (
    AfterOption,
    AnswerForm,
    AsOfOption,
    FormOption,
    LimitOption,
    SinceOption,
    UntilOption,
    asking,
    print_answer,
    window_of,
)
from volsched.cli.console import Exit, fail
from volsched.cli.naming import KindArgument, NamespaceOption, key_of, kind_of, not_found
from volsched.cli.stores import Db, position_of
from volsched.events.streams import BINDING
from volsched.insight import history as timelines
from volsched.insight.answers import UnknownError
from volsched.insight.world_diff import world_diff
from volsched.store.audit_log import window
from volsched.store.log import read_head
from volsched.store.looking import Now

HISTORY_EXAMPLES = """**Examples**

`volsched history pv disk-7` is all that ever happened to a volume, and what it followed from

`volsched history pvc data-0 -n shop --since 2d -o csv`

`volsched history binding 3f2a` is everything that was done for one binding, on all objects
"""
DIFF_EXAMPLES = """**Examples**

`volsched diff --from 2h` is what has changed in the last two hours

`volsched diff pv --from 2025-11-16T22:00:00Z --to 2025-11-17T06:00:00Z -o json`

`volsched diff --from 1200 --to 1300`
"""
COLUMNS = ("position", "at", "actor", "what", "reason", "cause", "causedBy")
BINDING_COLUMNS = ("position", "at", "object", "actor", "what", "reason", "cause")
DIFF_COLUMNS = ("kind", "name", "change", "what", "firstPosition")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Its name, or NAMESPACE/NAME; the ID of a binding.")
]


def history(
    kind: KindArgument,
    name: NameArgument,
    namespace: NamespaceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 100,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Tell all that happened to an object: who did what, when, why, and which event it followed from.

    It is told of deleted objects as well, and goes on if the name is used again.
    """
    named = kind_of(kind)
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until, as_of)
        if named.noun == BINDING:
            answer = timelines.of_binding(connection, name, within, after=after, limit=limit)
        else:
            key = key_of(named, name, namespace)
            try:
                answer = timelines.history(connection, f"{named.noun}/{key}", within, after=after, limit=limit)
            except UnknownError:
                now = Now(connection, read_head(connection).position)
                fail(Exit.NOT_FOUND, not_found(connection, now, kind, key))
    print_answer(answer, BINDING_COLUMNS if named.noun == BINDING else COLUMNS, output)


def diff(
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The first moment: 2h (ago), a time, or a position.")
    ],
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="Only objects of this kind.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The second moment; else now.")] = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Show how the world differs between two moments: what was created, changed and deleted.

    What was changed and changed back does not differ. Events about objects are left out unless asked for: diff ev.
    """
    named = None if kind is None else kind_of(kind)
    if named is not None and not named.is_object:
        fail(Exit.USAGE, f"{named.plural} are no objects; see volsched audit --help")
    with asking(db) as (database, connection):
        first, last = position_of(database, begin), position_of(database, end)
        if first > last:
            fail(Exit.USAGE, f"--from {begin} is later than --to {end}; change them over")
        within = window(connection, first=first + 1, last=last)
        noun = None if named is None else named.noun
        answer = world_diff(connection, within, noun=noun, after=after, limit=limit)
        while not answer.items and answer.after is not None:
            # A page looks at a few thousand events; where none of them made a difference, it is empty.
            answer = world_diff(connection, within, noun=noun, after=answer.after, limit=limit)
    print_answer(answer, DIFF_COLUMNS, output, nothing=f"nothing differs between positions {first} and {last}")
