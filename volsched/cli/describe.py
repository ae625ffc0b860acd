"""`volsched describe`: one object with the decisions and the events about it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from volsched.cli.completion import complete_name
from volsched.cli.console import Exit, fail
from volsched.cli.kind_names import requested_objects, words_of
from volsched.cli.moment_option import check_as_of, local_time
from volsched.cli.output import Form, Lines, print_documents, write
from volsched.cli.question_command import client_of, declared, parameters_for
from volsched.cli.store_option import Db
from volsched.kube.display_text import one_line
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
        list[str] | None, typer.Argument(metavar="NAME", help="NAME or NS/NAME.", autocompletion=complete_name)
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="table|json|yaml", help="Form of the answer.")
    ] = Form.table.value,
    db: Db = None,
    **words: Any,
) -> None:
    if output not in FORMS:
        fail(Exit.USAGE, f"describe has no form {output}; use -o table, json or yaml, or volsched get")
    requests = requested_objects(words["kind"], names or [], namespace=words["namespace"], everywhere=False)
    if not all(it.keys for it in requests):
        fail(Exit.USAGE, f"which one? volsched describe {requests[0].named.singular} NAME")
    as_of = check_as_of(words["as_of"])
    answers: list[DatedDocument] = []
    missing: list[str] = []
    with client_of(db) as client:
        for named, key in ((it.named, key) for it in requests for key in it.keys):
            try:
                answers.append(
                    client.document(QUESTION, parameters_for(QUESTION.name, **words_of(named, key), as_of=as_of))
                )
            except UnknownError as error:
                missing.append(str(error))
    for number, answer in enumerate(answers):
        if output != Form.table.value:
            print_documents(Form(output), answer.document, number)
            continue
        if number:
            write("\n")
        _print(answer.document, answer.moment)
    if missing:
        fail(Exit.NOT_FOUND, *missing)


def _print(document: dict[str, Any], now: int) -> None:
    _print_object(document["object"])
    if "assumption" in document:
        _print_assumption(document["assumption"])
    if "claims" in document:
        _section("Claims", [f"{it['claim']}: {it['phase']}{_arrow(it['volume'])}" for it in document["claims"]])
    if "usedBy" in document:
        _section("Used By", document["usedBy"])
    if "pods" in document:
        _section("Pods", document["pods"])
    if "bindings" in document:
        _print_bindings(document["bindings"], now)
    if "attempts" in document:
        _print_attempts(document["attempts"], now)
    if "steps" in document:
        _table("Steps", ("POSITION", "AT", "TYPE", "STREAM", "BY"), _steps(document["steps"]))
    if "events" in document:
        _table("Events", ("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), _events(document["events"], now))


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
    for binding in bindings[:BINDINGS_SHOWN]:
        why = f": {binding['reason']}" if "reason" in binding else ""
        where = f"pod {binding['pod']} on {binding['node']}, planned {_ago(binding['plannedAt'], now)}"
        lines.append(f"{binding['id']}  {binding['state']}{why}; {where}")
        for leg in binding["legs"]:
            origin = " (provisioned)" if leg["provisioned"] else ""
            reason = f": {leg['reason']}" if leg["reason"] else ""
            lines.append(f"  {leg['claim']}{_arrow(leg['volume'])}{origin}  {leg['state']}{reason}")
    _section("Bindings", [*lines, *_more(bindings, BINDINGS_SHOWN)])


def _print_attempts(attempts: Sequence[Mapping[str, Any]], now: int) -> None:
    lines: list[str] = []
    for attempt in attempts[:ATTEMPTS_SHOWN]:
        where = f" on {attempt['node']}, score {attempt.get('score', 0)}" if "node" in attempt else ""
        message = f": {attempt['message']}" if attempt.get("message") else ""
        lines.append(
            f"{attempt['outcome']}{where}, {_ago(attempt['lastAt'], now)}{_times(attempt['count'])}{message}"
        )
        for reason in attempt.get("reasons", ()):
            some = f" ({', '.join(reason['some'])})" if reason.get("some") else ""
            lines.append(f"  {reason['nodes']} nodes: {reason['reason']}{some}")
    _section("Attempts", [*lines, *_more(attempts, ATTEMPTS_SHOWN)])


def _steps(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    return ((str(it["position"]), local_time(it["at"]), it["type"], it["stream"], it["by"]) for it in steps)


def _events(events: Sequence[Mapping[str, Any]], now: int) -> Iterator[tuple[str, ...]]:
    for event in events:
        when = age(parse_rfc3339(event["last"]), now)
        if event["count"] > 1:
            when += f" (x{event['count']} over {age(parse_rfc3339(event['first']), now)})"
        yield event["type"], event["reason"], when, event["from"], event["message"]


def _line(label: str, text: str) -> None:
    first, *rest = text.splitlines() or [""]
    write(f"{f'{label}:' if label else '':{LABEL_WIDTH}}{first}".rstrip())
    for line in rest:
        write(f"{'':{LABEL_WIDTH}}{line}".rstrip())


def _section(title: str, lines: Sequence[str]) -> None:
    if not lines:
        _line(title, "<none>")
        return
    write(f"{title}:")
    for line in lines:
        write(f"  {one_line(line)}")


def _table(title: str, headers: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    body = list(rows)
    if not body:
        _line(title, "<none>")
        return
    write(f"{title}:")
    Lines([f"  {headers[0]}", *headers[1:]], pages=False).write([(f"  {row[0]}", *row[1:]) for row in body])


def _arrow(volume: str | None) -> str:
    return f" → {volume}" if volume else ""


def _ago(at: str, now: int) -> str:
    return f"{age(parse_rfc3339(at), now)} ago"


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""


def _more(items: Sequence[object], shown: int) -> list[str]:
    return [f"and {len(items) - shown} more; all with -o json"] if len(items) > shown else []
