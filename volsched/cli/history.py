"""`volsched history` and `diff`: the timeline of one object, and how the world differs between two moments."""

from typing import Annotated

import typer

from volsched.cli.audit_output import AnswerForm, FormOption, answer_of, asking, print_answer
from volsched.cli.console import Exit, fail
from volsched.cli.history_command import PAGE, AfterOption, HistoryRequest, LimitOption, Question, question
from volsched.cli.kind_names import KindArgument, NameArgument, NamespaceOption, kind_of, one_of, refuse_unknown
from volsched.cli.remote.paths import of_one, own
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, position_of
from volsched.log.events.streams import BINDING
from volsched.log.reads.event_audit import window
from volsched.questions.audit.answers import Answer, UnknownError
from volsched.questions.history import history as timelines
from volsched.questions.history.world_diff import world_diff

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
TIMELINE_PAGE = 100


def _history(kind: KindArgument, name: NameArgument = None, namespace: NamespaceOption = None) -> Question:
    """Tell all that happened to an object: who did what, when, why, and which event it followed from.

    It is told of deleted objects as well, and goes on if the name is used again.
    """
    named, key = one_of(kind, name, namespace)
    path = of_one("history", named, key)

    def of_binding(asked: HistoryRequest) -> Answer:
        return timelines.of_binding(asked.connection, key, asked.within, after=asked.after, limit=asked.limit)

    def of_object(asked: HistoryRequest) -> Answer:
        stream = f"{named.noun}/{key}"
        try:
            return timelines.history(asked.connection, stream, asked.within, after=asked.after, limit=asked.limit)
        except UnknownError:
            refuse_unknown(asked.connection, named, key)
            raise

    if named.noun == BINDING:
        return Question(of_binding, path, BINDING_COLUMNS)
    return Question(of_object, path, COLUMNS, f"nothing happened to {named.singular} {key} in that time")


history = question(_history, limit=TIMELINE_PAGE)


def diff(
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="The first moment: 2h (ago), a time, or a position.")
    ],
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help="Only objects of this kind.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The second moment; else now.")] = None,
    limit: LimitOption = PAGE,
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
    server = chosen_server(db)
    if server is not None:
        query = {"from": begin, "to": end, "kind": kind, "limit": limit, "continue": after}
        answer = answer_of(server.get(own("diff"), query))
        print_answer(answer, DIFF_COLUMNS, output, nothing="nothing differs between the two moments")
        return
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
