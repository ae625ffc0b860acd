"""A store as a command looks at it: now, or as of a position or time that a person gives."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from sqlalchemy import Connection

from volsched.cli.console import Exit, fail
from volsched.cli.store_option import now_us, position_of
from volsched.log.database import Database
from volsched.log.events.fold import BindingState, ObjectState, State
from volsched.log.events.streams import BINDING
from volsched.log.reads.as_of import AsOf, Look, Now
from volsched.log.reads.tail import event, read_head
from volsched.questions.get.cells import Item
from volsched.questions.history.moments import MomentError, is_position, time_of
from volsched.runtime.clock import system_clock

AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME|POSITION", help="As it was then: 1234, or 2025-11-16T22:00:00Z."),
]


@contextmanager
def looked_at(database: Database, as_of: str | None) -> Iterator[tuple[Connection, Look, int]]:
    """One picture of the store, and the time at which it is looked at."""
    check_as_of(as_of)
    position = None if as_of is None else position_of(database, as_of)
    with database.read() as connection:
        if position is None:
            yield connection, Now(connection, read_head(connection).position), system_clock()
            return
        last = event(connection, position)
        yield connection, AsOf(connection, position), system_clock() if last is None else last.at


def check_as_of(as_of: str | None) -> None:
    """The end of the command for a time that is none, or still to come."""
    if as_of is not None and not is_position(as_of) and _time(as_of) > now_us():
        fail(Exit.USAGE, f"{as_of} is still to come; give a time that has passed, or leave --as-of out")


def _time(text: str) -> int:
    try:
        return time_of(text, now=now_us())
    except MomentError as error:
        fail(Exit.USAGE, str(error))


def item_of(look: Look, key: str, state: State, now: int) -> Item:
    """With the open binding whose assumption lies over it."""
    held = state.assumed if isinstance(state, ObjectState) else None
    binding = None if held is None else look.one(BINDING, held.binding)
    is_open = isinstance(binding, BindingState) and binding.open
    return Item(key, state, now, binding if is_open and isinstance(binding, BindingState) else None)
