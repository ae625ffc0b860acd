"""`volsched audit` of decisions: attempts, plans on a node, rollbacks, what is in flight, how long it took."""

from typing import Annotated

import typer
from sqlalchemy import Connection

from volsched.cli.audit_output import (
    AnswerForm,
    FormOption,
    answer_of,
    asking,
    print_answer,
    print_item,
    window_of,
)
from volsched.cli.durations import duration
from volsched.cli.history_command import (
    PAGE,
    AfterOption,
    AsOfOption,
    HistoryRequest,
    LimitOption,
    Question,
    SinceOption,
    UntilOption,
    question,
)
from volsched.cli.kind_names import NamespaceOption, key_of, kind_of, refuse_unknown
from volsched.cli.output import write
from volsched.cli.remote.paths import own
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db
from volsched.questions.audit import decisions, latency
from volsched.questions.audit.answers import Answer, Item, UnknownError
from volsched.questions.explain import attempts
from volsched.questions.explain.reason_lines import claim_lines, failure_lines
from volsched.runtime.clock import system_clock

ATTEMPTS_EXAMPLES = """**Examples**

`volsched audit attempts shop/db-0` is every time that somebody tried to place the pod, and what came of it

`volsched audit attempts db-0 -n shop --since 1h -o json`
"""
WHY_EXAMPLES = """**Examples**

`volsched audit why shop/db-0` is what was decided about the pod last, claim by claim, and what failed after

`volsched audit why shop/db-0 --as-of 2025-11-16T22:00:00Z` is what was decided about it up to then

`volsched audit why 402688c93939` is why its node was taken, with the scores, or why there was none

`volsched audit why 402688c93939 --node node-7` is also what spoke against another
"""
NODE_EXAMPLES = """**Examples**

`volsched audit node node-7 --since 2025-11-16T22:00:00Z --until 2025-11-17T06:00:00Z` is the decisions of a night

`volsched audit node node-7 --limit 10 -o csv`
"""
ROLLBACKS_EXAMPLES = """**Examples**

`volsched audit rollbacks --since 1d` is what was undone, which step failed first, and who caused it

`volsched audit rollbacks --since 7d -o csv`
"""
IN_FLIGHT_EXAMPLES = """**Examples**

`volsched audit in-flight --older-than 10m` is what takes too long

`volsched audit in-flight --as-of 2025-11-16T22:00:00Z` is what was under way when it happened
"""
LATENCY_EXAMPLES = """**Examples**

`volsched audit latency` is how long pods wait for their volumes, per class and zone

`volsched audit latency --since 1d --bindings 10000 -o json`
"""
BINDING_COLUMNS = ("plannedAt", "binding", "pod", "node", "state", "seconds", "legs", "reason")
FLIGHT_COLUMNS = ("plannedAt", "ageSeconds", "binding", "pod", "node", "state", "legs", "reason")
ROLLBACK_COLUMNS = ("plannedAt", "binding", "pod", "node", "failedStep", "failedWhy", "causedBy", "failedPosition")
ATTEMPT_COLUMNS = ("attempt", "lastAt", "count", "outcome", "node", "message")
LATENCY_COLUMNS = ("class", "zone", "count", "p50", "p90", "p99", "max")


def attempts_of(
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod, as NAME or NAMESPACE/NAME.")],
    namespace: NamespaceOption = None,
) -> Question:
    """Every attempt to schedule a pod, the latest first; `why` tells more of each."""
    named = kind_of("pod")
    key = key_of(named, pod, namespace)
    within, _, name = key.rpartition("/")

    def ask(asked: HistoryRequest) -> Answer:
        answer = attempts.attempts_of(asked.connection, key, asked.within, after=asked.after, limit=asked.limit)
        if not answer.items:
            refuse_unknown(asked.connection, named, key)
        return answer

    path = own("audit", "attempts", name, namespace=within)
    return Question(ask, path, ATTEMPT_COLUMNS, f"nothing was tried for pod {key} in that time")


def why(
    name: Annotated[
        str,
        typer.Argument(metavar="POD|ATTEMPT", help="A pod, or an attempt as `audit attempts` names it."),
    ],
    namespace: NamespaceOption = None,
    node: Annotated[str | None, typer.Option("--node", help="And why, or why not, this node.")] = None,
    as_of: AsOfOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Why this node and not another, or why none: what was stored of an attempt, of a pod's the last."""
    key, server = key_of(kind_of("pod"), name, namespace), chosen_server(db)
    pod_only = as_of is not None or namespace is not None or "/" in name
    within, _, bare = key.rpartition("/")
    if server is not None:
        path = own("audit", "why", bare, namespace=within) if pod_only else own("audit", "why", name)
        item = server.get(path, {"node": node} | ({"asOf": as_of} if pod_only else {}))
    else:
        with asking(db) as (_, connection):
            if pod_only:
                item = _why_pod(connection, key, as_of, node)
            else:
                item = attempts.why_named(connection, name, node=node)
    _print_why(item, output)


def _why_pod(connection: Connection, key: str, as_of: str | None, node: str | None) -> Item:
    item = attempts.why_pod(connection, key, position=window_of(connection, None, None, as_of).last, node=node)
    if item is None:
        refuse_unknown(connection, kind_of("pod"), key)
        raise UnknownError(attempts.NOTHING_TRIED.format(pod=key))
    return item


def _print_why(item: Item, output: AnswerForm) -> None:
    """For people the claims and the failures stand below, a line each."""
    if output is not AnswerForm.table:
        print_item(item, output)
        return
    print_item({name: it for name, it in item.items() if name not in ("failure", "failing")}, output)
    for line in (*claim_lines(item["reasons"]), *failure_lines(item)):
        write(line)


def on_node(name: Annotated[str, typer.Argument(metavar="NODE", help="The node.")]) -> Question:
    """All decisions that touch a node: what was planned to run there, and what became of it."""

    def ask(asked: HistoryRequest) -> Answer:
        answer = decisions.on_node(asked.connection, name, asked.within, after=asked.after, limit=asked.limit)
        if not answer.items:
            refuse_unknown(asked.connection, kind_of("node"), name)
        return answer

    nothing = f"nothing was planned for node {name} in that time"
    return Question(ask, own("audit", "node", name), BINDING_COLUMNS, nothing)


def rollbacks() -> Question:
    """Transactions that were rolled back, the latest first, each with the first step that failed."""

    def ask(asked: HistoryRequest) -> Answer:
        return decisions.rollbacks(asked.connection, asked.within, after=asked.after, limit=asked.limit)

    return Question(ask, own("audit", "rollbacks"), ROLLBACK_COLUMNS, "nothing was rolled back")


def in_flight(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="D", help="Only those planned longer ago, as 90s, 10m or 2h.")
    ] = "0s",
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="As it was then; a time or a position.")
    ] = None,
    limit: LimitOption = PAGE,
    after: AfterOption = None,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Bindings that are under way, the oldest first."""
    age, server = duration(older_than), chosen_server(db)
    if server is not None:
        query = {"olderThan": older_than, "asOf": as_of, "limit": limit, "continue": after}
        answer = answer_of(server.get(own("audit", "in-flight"), query))
    else:
        with asking(db) as (_, connection):
            if as_of is None:
                now = system_clock()
                answer = decisions.in_flight(connection, now=now, older_than=age, after=after, limit=limit)
            else:
                within = window_of(connection, None, None, as_of)
                answer = decisions.was_in_flight(connection, within, older_than=age, after=after, limit=limit)
    print_answer(answer, FLIGHT_COLUMNS, output, nothing="nothing is in flight")


def latency_of(
    since: SinceOption = None,
    until: UntilOption = None,
    bindings: Annotated[
        int, typer.Option("--bindings", min=1, help="Look at so many committed bindings, the latest.")
    ] = latency.LAST_BINDINGS,
    output: FormOption = AnswerForm.table,
    db: Db = None,
) -> None:
    """Seconds from the plan until the pod had its node, as percentiles per class and zone."""
    server = chosen_server(db)
    if server is not None:
        query = {"since": since, "until": until, "bindings": bindings}
        answer = answer_of(server.get(own("audit", "latency"), query))
    else:
        with asking(db) as (_, connection):
            within = window_of(connection, since, until)
            answer = latency.latency(connection, within, limit=bindings)
    print_answer(answer, LATENCY_COLUMNS, output, nothing="nothing was bound in that time")


def add_to(app: typer.Typer) -> None:
    app.command("attempts", no_args_is_help=True, epilog=ATTEMPTS_EXAMPLES)(question(attempts_of))
    app.command("why", no_args_is_help=True, epilog=WHY_EXAMPLES)(why)
    app.command("node", no_args_is_help=True, epilog=NODE_EXAMPLES)(question(on_node))
    app.command("rollbacks", epilog=ROLLBACKS_EXAMPLES)(question(rollbacks))
    app.command("in-flight", epilog=IN_FLIGHT_EXAMPLES)(in_flight)
    app.command("latency", epilog=LATENCY_EXAMPLES)(latency_of)
