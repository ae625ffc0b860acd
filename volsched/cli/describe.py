"""`volsched describe`: one object with what was decided about it and what was told of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import KindArgument, NamedObject, NamespaceOption, wanted
from volsched.cli.output import Form, Lines, print_documents, write
from volsched.cli.remote.paths import of_one
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, opened
from volsched.cli.store_view import AsOfOption, check_as_of, looked_at
from volsched.kube.manifest import metadata
from volsched.kube.manifest_reader import dump_manifests
from volsched.questions.get.cells import age
from volsched.questions.get.describe import Described, described
from volsched.questions.get.near_names import not_found
from volsched.runtime.clock import parse_rfc3339, system_clock

if TYPE_CHECKING:
    from volsched.cli.remote.server import RemoteServer

EXAMPLES = """**Examples**

`volsched describe pod db-0 -n shop` says why it waits, or how it came to its node

`volsched describe pv disk-7` shows its binding with every leg, and its events

`volsched describe pvc shop/data-0 --as-of 2025-11-16T22:00:00Z`

`volsched describe binding 5f3a09c1d2e4 -o json`
"""
BINDINGS_SHOWN = 3
ATTEMPTS_SHOWN = 5
LABEL_WIDTH = 14
MOMENT = "volsched-moment"
"""The header in which a server says of which time its answer is."""
TOP = ("apiVersion", "kind", "metadata")
FORMS = (Form.table, Form.json, Form.yaml)


def describe(
    kind: KindArgument,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Which; NS/NAME too.")] = None,
    namespace: NamespaceOption = None,
    as_of: AsOfOption = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="table, json or yaml.")] = Form.table,
    db: Db = None,
) -> None:
    """Show an object, its bindings with their legs, the attempts to place it, and its Kubernetes events.

    For a pod, the line "Scheduled" is read from its binding where the event of it has expired.
    """
    if output not in FORMS:
        fail(Exit.USAGE, f"describe has no form {output.value}; use -o table, json or yaml, or volsched get")
    asked = wanted(kind, names or [], namespace=namespace, everywhere=False)
    if len(asked) > 1 or not asked[0].keys:
        fail(Exit.USAGE, f"which one? volsched describe {asked[0].named.singular} NAME")
    server = chosen_server(db)
    found = _stored(db, asked[0], as_of) if server is None else _served(server, asked[0], as_of)
    told, missing, now = found
    for number, it in enumerate(told):
        if output is not Form.table:
            print_documents(output, it, number)
            continue
        if number:
            write("\n")
        _print(it, now)
    if missing:
        fail(Exit.NOT_FOUND, *missing)


_Told = tuple[list[Described], list[str], int]
"""What there is, what to say of what is not, and the time that ages are counted to."""


def _stored(db: str | None, asked: NamedObject, as_of: str | None) -> _Told:
    named, missing, told = asked.named, [], []
    with opened(db) as database, looked_at(database, as_of) as (connection, look, now):
        for key in asked.keys:
            state = look.one(named.noun, key)
            if state is None:
                missing.append(not_found(connection, look, named, key))
            else:
                told.append(described(look, named, key, state))
    return told, missing, now


def _served(server: "RemoteServer", asked: NamedObject, as_of: str | None) -> _Told:
    from volsched.cli.remote.server import ServerRefusedError

    check_as_of(as_of)
    told, missing, now = [], [], system_clock()
    for key in asked.keys:
        try:
            answer = server.tell("GET", of_one("describe", asked.named, key), query={"asOf": as_of})
        except ServerRefusedError as error:
            if error.code != 404:
                server.refuse(error)
            missing.append(str(error))
        else:
            told.append(answer.body)
            now = int(answer.headers.get(MOMENT, now))
    return told, missing, now


def _print(told: Described, now: int) -> None:
    _print_object(told["object"])
    if "assumption" in told:
        _print_assumption(told["assumption"])
    if "claims" in told:
        _section("Claims", [f"{it['claim']}: {it['phase']}{_arrow(it['volume'])}" for it in told["claims"]])
    if "usedBy" in told:
        _section("Used By", told["usedBy"])
    if "pods" in told:
        _section("Pods", told["pods"])
    if "bindings" in told:
        _print_bindings(told["bindings"], now)
    if "attempts" in told:
        _print_attempts(told["attempts"], now)
    if "steps" in told:
        _table("Steps", ("POSITION", "AT", "TYPE", "STREAM", "BY"), _steps(told["steps"]))
    if "events" in told:
        _table("Events", ("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), _events(told["events"], now))


def _print_object(manifest: Mapping[str, Any]) -> None:
    head = metadata(manifest)
    _line("Name", str(head.get("name", "")))
    if "namespace" in head:
        _line("Namespace", str(head["namespace"]))
    _line("Kind", f"{manifest.get('kind')} ({manifest.get('apiVersion')})")
    for label, field in (("Labels", "labels"), ("Annotations", "annotations")):
        entries = [f"{key}={value}" for key, value in sorted(head.get(field, {}).items())]
        _line(label, entries[0] if entries else "<none>")
        for entry in entries[1:]:
            _line("", entry)
    _line("Created", str(head.get("creationTimestamp", "<unknown>")))
    if "deletionTimestamp" in head:
        _line("Terminating", f"since {head['deletionTimestamp']}")
    for label, field in (("Finalizers", "finalizers"), ("Uid", "uid"), ("Version", "resourceVersion")):
        if head.get(field):
            _line(label, ", ".join(head[field]) if isinstance(head[field], list) else str(head[field]))
    for field, value in manifest.items():
        if field in TOP:
            continue
        title = f"{field[:1].upper()}{field[1:]}"
        if isinstance(value, Mapping):
            _section(title, dump_manifests([value]).splitlines()[1:] if value else [])
        elif isinstance(value, list):
            _section(title, dump_manifests([{title: value}]).splitlines()[2:] if value else [])
        else:
            _line(title, str(value))


def _print_assumption(assumption: Mapping[str, Any]) -> None:
    by = f"by binding {assumption['binding']}, for node {assumption['node']}"
    _section("Assumed", [by, *dump_manifests([assumption["patch"]]).splitlines()[1:]])


def _print_bindings(bindings: Sequence[Mapping[str, Any]], now: int) -> None:
    lines: list[str] = []
    for it in bindings[:BINDINGS_SHOWN]:
        why = f": {it['reason']}" if "reason" in it else ""
        where = f"pod {it['pod']} on {it['node']}, planned {_ago(it['plannedAt'], now)}"
        lines.append(f"{it['id']}  {it['state']}{why}; {where}")
        for leg in it["legs"]:
            made = " (provisioned)" if leg["provisioned"] else ""
            kept = f": {leg['reason']}" if leg["reason"] else ""
            lines.append(f"  {leg['claim']}{_arrow(leg['volume'])}{made}  {leg['state']}{kept}")
    _section("Bindings", [*lines, *_more(bindings, BINDINGS_SHOWN)])


def _print_attempts(attempts: Sequence[Mapping[str, Any]], now: int) -> None:
    lines: list[str] = []
    for it in attempts[:ATTEMPTS_SHOWN]:
        where = f" on {it['node']}, score {it.get('score', 0)}" if "node" in it else ""
        said = f": {it['message']}" if it.get("message") else ""
        lines.append(f"{it['outcome']}{where}, {_ago(it['lastAt'], now)}{_times(it['count'])}{said}")
        for reason in it.get("reasons", ()):
            some = f" ({', '.join(reason['some'])})" if reason.get("some") else ""
            lines.append(f"  {reason['nodes']} nodes: {reason['reason']}{some}")
    _section("Attempts", [*lines, *_more(attempts, ATTEMPTS_SHOWN)])


def _steps(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    return ((str(it["position"]), it["at"], it["type"], it["stream"], it["by"]) for it in steps)


def _events(events: Sequence[Mapping[str, Any]], now: int) -> Iterator[tuple[str, ...]]:
    for it in events:
        seen = age(parse_rfc3339(it["last"]), now)
        if it["count"] > 1:
            seen += f" (x{it['count']} over {age(parse_rfc3339(it['first']), now)})"
        yield it["type"], it["reason"], seen, it["from"], it["message"]


def _line(label: str, text: str) -> None:
    write(f"{f'{label}:' if label else '':{LABEL_WIDTH}}{text}".rstrip())


def _section(title: str, lines: Sequence[str]) -> None:
    if not lines:
        _line(title, "<none>")
        return
    write(f"{title}:")
    for line in lines:
        write(f"  {line}")


def _table(title: str, headers: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    found = list(rows)
    if not found:
        _line(title, "<none>")
        return
    write(f"{title}:")
    Lines([f"  {headers[0]}", *headers[1:]]).write([(f"  {row[0]}", *row[1:]) for row in found])


def _arrow(volume: str | None) -> str:
    return f" → {volume}" if volume else ""


def _ago(at: str, now: int) -> str:
    return f"{age(parse_rfc3339(at), now)} ago"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _more(found: Sequence[object], shown: int) -> list[str]:
    return [f"and {len(found) - shown} more; all with -o json"] if len(found) > shown else []
