"""`volsched describe`: one object with the decisions and the events about it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from volsched.cli.completion import complete_name
from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import wanted, words_of
from volsched.cli.moment_option import check_as_of, local_time
from volsched.cli.output import Form, Lines, print_documents, write
from volsched.cli.question_command import checked, client_of, declared
from volsched.cli.store_option import Db
from volsched.kube.manifest import metadata
from volsched.kube.manifest_reader import dump_manifests
from volsched.questions.get.documents import age
from volsched.questions.refusals import UnknownError
from volsched.questions.registry import DatedDocument, question
from volsched.runtime.clock import parse_rfc3339

QUESTION = question("describe")
EXAMPLES = QUESTION.examples
BINDINGS_SHOWN = 3
ATTEMPTS_SHOWN = 5
LABEL_WIDTH = 14
TOP = ("apiVersion", "kind", "metadata")

FORMS = (Form.table.value, Form.json.value, Form.yaml.value)


@declared(QUESTION, without=("name",))
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Which; NS/NAME too.", autocompletion=complete_name)
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="table|json|yaml", help="Form of the answer.")
    ] = Form.table.value,
    db: Db = None,
    **words: Any,
) -> None:
    if output not in FORMS:
        fail(Exit.USAGE, f"describe has no form {output}; use -o table, json or yaml, or volsched get")
    asked = wanted(words["kind"], names or [], namespace=words["namespace"], everywhere=False)
    if not all(it.keys for it in asked):
        fail(Exit.USAGE, f"which one? volsched describe {asked[0].named.singular} NAME")
    as_of = check_as_of(words["as_of"])
    told: list[DatedDocument] = []
    missing: list[str] = []
    with client_of(db) as client:
        for named, key in ((it.named, key) for it in asked for key in it.keys):
            try:
                told.append(client.document(QUESTION, checked(QUESTION.name, **words_of(named, key), as_of=as_of)))
            except UnknownError as error:
                missing.append(str(error))
    for number, it in enumerate(told):
        if output != Form.table.value:
            print_documents(Form(output), it.document, number)
            continue
        if number:
            write("\n")
        _print(it.document, it.moment)
    if missing:
        fail(Exit.NOT_FOUND, *missing)


def _print(told: dict[str, Any], now: int) -> None:
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
    _line("Created", local_time(str(head.get("creationTimestamp", "<unknown>"))))
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
    return ((str(it["position"]), local_time(it["at"]), it["type"], it["stream"], it["by"]) for it in steps)


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
    Lines([f"  {headers[0]}", *headers[1:]], pages=False).write([(f"  {row[0]}", *row[1:]) for row in found])


def _arrow(volume: str | None) -> str:
    return f" → {volume}" if volume else ""


def _ago(at: str, now: int) -> str:
    return f"{age(parse_rfc3339(at), now)} ago"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _more(found: Sequence[object], shown: int) -> list[str]:
    return [f"and {len(found) - shown} more; all with -o json"] if len(found) > shown else []
