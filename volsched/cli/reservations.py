"""`volsched reservations`: hold volumes and room for a pod, then confirm, renew or cancel."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from uuid import uuid4

import typer

from volsched.binding.rules.phases import Phase
from volsched.binding.rules.reservations import GatedError
from volsched.cli.audit_output import AnswerForm, FormOption, print_answer, print_item
from volsched.cli.console import Exit, fail, stdout
from volsched.cli.kind_names import NamespaceOption, bare_name, key_of, kind_of
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.question_command import client_of, declared, objects_of
from volsched.cli.remote import commands
from volsched.cli.remote.commands import item_of
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, opened
from volsched.log.commands import Command, Done
from volsched.log.database import Database
from volsched.log.events.fold import BindingState
from volsched.log.transaction import execute
from volsched.questions.audit.answers import Answer, Item
from volsched.questions.get.reservations import manifest_of
from volsched.questions.registry import question
from volsched.runtime.clock import system_clock
from volsched.scheduling.pod_reservations import (
    DEFAULT_SECONDS,
    ENDED,
    MOST_SECONDS,
    NotToBeReservedError,
    ReservationRefused,
    ReservationRequest,
    Reserver,
    UnknownPodError,
    UnknownReservationError,
    reservation,
)

QUESTION = question("reservations list")
EXAMPLES = QUESTION.examples
MOST_SHOWN = 1_000

app = typer.Typer(help="Reserve volumes and capacity for a pod; confirm, renew, cancel.", no_args_is_help=True)
Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="As `volsched reservations create` or `list` shows it.",
        callback=lambda value: value.rpartition("/")[2],
    ),
]
For = Annotated[
    int, typer.Option("--for", metavar="SECONDS", min=1, max=MOST_SECONDS, help="How long it is held.")
]


@app.callback(epilog=EXAMPLES)
def _group() -> None:
    """Reserve volumes and capacity for a pod; confirm, renew, cancel."""


@app.command("list", epilog=EXAMPLES)
@declared(QUESTION, without=("limit", "after"))
def list_reservations(output: FormOption = AnswerForm.table, db: Db = None, **words: Any) -> None:
    with client_of(db) as client:
        items = [item_of(it) for it in objects_of(client, QUESTION.name, most=MOST_SHOWN, **words)]
    print_answer(Answer(items=items), QUESTION.columns, output, nothing=QUESTION.empty)


@app.command("create", epilog=EXAMPLES, no_args_is_help=True)
def create(
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod, as NAME or NAMESPACE/NAME.")],
    node: Annotated[str | None, typer.Option("--node", help="Only this node; without it, the best one.")] = None,
    seconds: For = DEFAULT_SECONDS,
    key: Annotated[
        str | None,
        typer.Option("--key", help="A repeated request with this key gets the first answer."),
    ] = None,
    namespace: NamespaceOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Hold a node, volumes and room for a pod. Nothing is written to them until it is confirmed.

    Exit 4 if no node fits, 3 if there is no such pod or node, 7 if the pod has a node or a binding already.
    """
    node = node and bare_name(kind_of("node"), node)
    request = ReservationRequest(pod=key_of(kind_of("pod"), pod, namespace), seconds=seconds, node=node, key=key)
    server = chosen_server(db)
    if server is not None:
        print_item(commands.reserve(server, request.pod, node=node, seconds=seconds, key=key), output)
        return
    with _reserving(db) as (database, reserver):
        outcome = reserver.reserve(request, actor=actor("reservations-create"), now=system_clock())
        if isinstance(outcome, ReservationRefused):
            fail(Exit.UNSATISFIABLE, outcome.message, f"see why: volsched audit why {outcome.attempt}")
        print_item(_item(database, outcome), output)


@app.command("confirm", epilog=EXAMPLES, no_args_is_help=True)
def confirm(name: Id, output: FormOption = AnswerForm.table, db: Db = None) -> None:
    """Confirm a reservation, so that it is bound. Exit 7 if it has ended; the error says why."""
    server = chosen_server(db)
    if server is not None:
        print_item(commands.confirm(server, name), output)
        return
    with _reserving(db) as (database, reserver):
        reserver.confirm(name, actor=actor("reservations-confirm"), now=system_clock())
        print_item(_open_item(database, name), output)


@app.command("renew", epilog=EXAMPLES, no_args_is_help=True)
def renew(name: Id, seconds: For = DEFAULT_SECONDS, output: FormOption = AnswerForm.table, db: Db = None) -> None:
    """Let a reservation end so many seconds from now. Exit 7 if it has ended already."""
    server = chosen_server(db)
    if server is not None:
        print_item(commands.renew(server, name, seconds=seconds), output)
        return
    with _reserving(db) as (database, reserver):
        reserver.renew(name, seconds=seconds, actor=actor("reservations-renew"), now=system_clock())
        item = _open_item(database, name)
    if item["state"] != Phase.RESERVED:
        fail(Exit.CONFLICT, f"reservation {name} is confirmed already, and has no lease any more")
    print_item(item, output)


@app.command("cancel", epilog=EXAMPLES, no_args_is_help=True)
def cancel(name: Id, reason: Reason = None, db: Db = None) -> None:
    """Cancel a reservation. Exit 7 if it is confirmed already."""
    text, who, server = checked_reason(reason), actor("reservations-cancel"), chosen_server(db)
    if server is not None:
        ended = commands.cancel(server, name, reason=text)
        stdout.print(f"reservation {name} has ended: {ended}", markup=False)
        return
    with _reserving(db) as (database, reserver):
        why = f"cancelled by {who}" + (f": {text}" if text else "")
        reserver.cancel(name, reason=why, actor=who)
        state = _state(database, name)
    if state.state not in ENDED:
        fail(Exit.CONFLICT, f"reservation {name} is confirmed already ({state.state}), and not cancelled any more")
    stdout.print(f"reservation {name} has ended: {state.reason}", markup=False)


@contextmanager
def _reserving(db: str | None) -> Iterator[tuple[Database, Reserver]]:
    with opened(db) as database:

        def append(command: Command) -> Done:
            (outcome,) = execute(database, [command], now=system_clock())
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        try:
            yield database, Reserver(database, append, lambda: uuid4().hex[:12])
        except UnknownPodError as error:
            fail(Exit.NOT_FOUND, str(error))
        except UnknownReservationError as error:
            fail(Exit.NOT_FOUND, f"{error}; see volsched reservations list")
        except (NotToBeReservedError, GatedError) as error:
            fail(Exit.CONFLICT, str(error))


def _state(database: Database, name: str) -> BindingState:
    with database.read() as connection:
        return reservation(connection, name)


def _item(database: Database, name: str) -> Item:
    return item_of(manifest_of(name, _state(database, name)))


def _open_item(database: Database, name: str) -> Item:
    state = _state(database, name)
    if state.state in ENDED:
        fail(Exit.CONFLICT, f"reservation {name} has ended: {state.reason}")
    return item_of(manifest_of(name, state))
