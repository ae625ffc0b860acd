"""`volsched audit` of decisions: attempts, plans on a node, rollbacks, what is in flight, how long it took."""

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
    print_item,
    window_of,
)
from volsched.cli.durations import duration
from volsched.cli.naming import NamespaceOption, key_of, kind_of
from volsched.cli.stores import Db
from volsched.engine.clock import system_clock
from volsched.insight import attempts, decisions, latency

BINDING_COLUMNS = ("plannedAt", "binding", "pod", "node", "state", "seconds", "legs", "reason")
FLIGHT_COLUMNS = ("plannedAt", "ageSeconds", "binding", "pod", "node", "state", "legs", "reason")
ROLLBACK_COLUMNS = ("plannedAt", "binding", "pod", "node", "failedStep", "failedWhy", "causedBy", "failedPosition")
ATTEMPT_COLUMNS = ("attempt", "lastAt", "count", "outcome", "node", "message")
LATENCY_COLUMNS = ("class", "zone", "count", "p50", "p90", "p99", "max")
LAST_BINDINGS = 2_000


def attempts_of(
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod, as NAME or NAMESPACE/NAME.")],
    namespace: NamespaceOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Every attempt to schedule a pod, the latest first; `why` tells more of each."""
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until, as_of)
        key = key_of(kind_of("pod"), pod, namespace)
        answer = attempts.attempts_of(connection, key, within, after=after, limit=limit)
    print_answer(answer, ATTEMPT_COLUMNS, output, nothing=f"nothing was tried for pod {key}")


def why(
    attempt: Annotated[str, typer.Argument(metavar="ATTEMPT", help="As `audit attempts` or a binding names it.")],
    node: Annotated[str | None, typer.Option("--node", help="And why, or why not, this node.")] = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Why this node and not another: what was stored of an attempt when it was made."""
    with asking(db) as (_, connection):
        item = attempts.why(connection, attempt, node=node)
    print_item(item, output)


def node(
    name: Annotated[str, typer.Argument(metavar="NODE", help="The node.")],
    since: SinceOption = None,
    until: UntilOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """All decisions that touch a node: what was planned to run there, and what became of it."""
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until, as_of)
        answer = decisions.on_node(connection, name, within, after=after, limit=limit)
    print_answer(answer, BINDING_COLUMNS, output, nothing=f"nothing was planned for node {name} in that time")


def rollbacks(
    since: SinceOption = None,
    until: UntilOption = None,
    as_of: AsOfOption = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Transactions that were rolled back, the latest first, each with the first step that failed."""
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until, as_of)
        answer = decisions.rollbacks(connection, within, after=after, limit=limit)
    print_answer(answer, ROLLBACK_COLUMNS, output, nothing="nothing was rolled back")


def in_flight(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="D", help="Only those planned longer ago, as 90s, 10m or 2h.")
    ] = "0s",
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="As it was then; a time or a position.")
    ] = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Bindings that are under way, the oldest first."""
    age = duration(older_than)
    with asking(db) as (database, connection):
        if as_of is None:
            now = system_clock()
            answer = decisions.in_flight(connection, now=now, older_than=age, after=after, limit=limit)
        else:
            within = window_of(database, connection, None, None, as_of)
            answer = decisions.was_in_flight(connection, within, older_than=age, after=after, limit=limit)
    print_answer(answer, FLIGHT_COLUMNS, output, nothing="nothing is in flight")


def latency_of(
    since: SinceOption = None,
    until: UntilOption = None,
    bindings: Annotated[
        int, typer.Option("--bindings", min=1, help="Look at so many committed bindings, the latest.")
    ] = LAST_BINDINGS,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Seconds from the plan until the pod had its node, as percentiles per class and zone."""
    with asking(db) as (database, connection):
        within = window_of(database, connection, since, until)
        answer = latency.latency(connection, within, limit=bindings)
    print_answer(answer, LATENCY_COLUMNS, output, nothing="nothing was bound in that time")
