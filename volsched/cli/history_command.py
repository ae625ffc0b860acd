"""A question to the history as a command: it says what is asked; which part, which page and which form is the same
for all of them.

Typer reads a command's options from its signature. `question` adds those of a page to the function's own, so that
they are written once and every question has all of them.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from sqlalchemy import Connection

from volsched.cli.audit_output import AnswerForm, FormOption, answer_of, asking, print_answer, window_of
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db
from volsched.log.reads.event_audit import Window
from volsched.questions.audit.answers import Answer

PAGE = 50

AsOfOption = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="As it was known then; the same as --until.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="From then on: 2h (ago), 2025-11-16T22:00:00Z, or 1234."),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Until then; a time as for --since, or a position.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Items of a page, at most.")]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="TOKEN", help="The next page: what the one before has told.")
]


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """Of which store, which part of its history, and which page."""

    connection: Connection
    within: Window
    after: str | None
    limit: int


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, of a store or of a server, and how the answer is shown."""

    ask: Callable[[HistoryRequest], Answer]
    path: str
    """Where the API answers the same."""
    columns: Sequence[str]
    nothing: str = "nothing found"
    """What people are told where the page is empty."""


def question(asked: Callable[..., Question], *, limit: int = PAGE) -> Callable[..., None]:
    """The command that asks: its own arguments, then the options of every page."""

    def options(
        since: SinceOption = None,
        until: UntilOption = None,
        as_of: AsOfOption = None,
        limit: LimitOption = limit,
        after: AfterOption = None,
        output: FormOption = AnswerForm.table,
        db: Db = None,
        **own: Any,
    ) -> None:
        wanted, server = asked(**own), chosen_server(db)
        if server is None:
            with asking(db) as (_, connection):
                within = window_of(connection, since, until, as_of)
                answer = wanted.ask(HistoryRequest(connection, within, after, limit))
        else:
            window = {"since": since, "until": until, "asOf": as_of}
            answer = answer_of(server.get(wanted.path, {**window, "limit": limit, "continue": after}))
        print_answer(answer, wanted.columns, output, nothing=wanted.nothing)

    own_parameters = inspect.signature(asked).parameters.values()
    *shared, _ = inspect.signature(options).parameters.values()
    parameters = [it.replace(kind=inspect.Parameter.KEYWORD_ONLY) for it in (*own_parameters, *shared)]
    options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    options.__annotations__ = {it.name: it.annotation for it in parameters}
    options.__doc__ = asked.__doc__
    return options
