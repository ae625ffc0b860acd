"""`volsched status` and `volsched top` for people: one screen, the most urgent first."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from volsched.cli.audit_output import AnswerForm, print_item
from volsched.cli.console import stdout, table_of
from volsched.cli.output import Form, print_documents
from volsched.runtime.clock import SECOND, parse_rfc3339, system_clock

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
USES = ("free", "reserved", "bound", "released", "failed", "room")
UNLIMITED = 2**62
"""The capacity that a provisioner without a limit publishes."""
Document = dict[str, Any]


def print_status(document: Document, output: AnswerForm) -> None:
    if output is AnswerForm.json:
        print_documents(Form.json, document)
    elif output is AnswerForm.csv:
        print_item({name: it for name, it in document.items() if not isinstance(it, list | dict)}, output)
    else:
        then = document.get("asOf")
        stdout.print(screen(document, now=(then and parse_rfc3339(then)) or system_clock()))


def screen(document: Document, *, now: int) -> RenderableType:
    return Group(*_blocks(document, now))


def size(count: int) -> str:
    """`512 GiB`, as people say it."""
    if count >= UNLIMITED:
        return "unlimited"
    amount = float(count)
    for unit in UNITS:
        if amount < 1024 or unit == UNITS[-1]:
            return f"{amount:.0f} {unit}" if amount >= 10 or amount == int(amount) else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError


def age(moment: str | None, now: int) -> str:
    since = None if moment is None else parse_rfc3339(moment)
    if since is None:
        return "-"
    seconds = max(now - since, 0) / SECOND
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes // 1440} d"


def _blocks(document: Document, now: int) -> Iterator[RenderableType]:
    yield _line(f"log at {document['position']}, last event {age(document['lastEventAt'], now)} ago")
    if cluster := document.get("cluster"):
        yield _line(_cluster(cluster, now))
    pods = ", ".join(f"{count} {phase}" for phase, count in document["pods"].items()) or "none"
    waiting = sum(it["pods"] for it in document["pending"])
    yield _line(f"pods: {pods}; {waiting} without a node" + _oldest(document["oldestPendingSince"], now))
    if document["pending"]:
        table = table_of("PODS", "WAIT FOR")
        for it in document["pending"]:
            table.add_row(str(it["pods"]), escape(it["reason"]))
        yield table
    yield _line(_bindings(document, now))
    if "asOf" not in document:
        yield from _work(document["effects"], now)
    if document["storage"]:
        yield _storage(document)
    if conflicts := document.get("conflicts"):
        counts = ", ".join(f"{it['count']} {it['class']}" for it in conflicts)
        yield _line(f"lost to other writers, by class: {counts}; see: volsched audit rollbacks")
    if "asOf" not in document and (document["leases"] or not cluster):
        # A process that only follows a cluster holds none.
        yield _line(_leases(document["leases"], now))


def _line(words: str, *, style: str = "") -> Text:
    """Folded on a narrow terminal, where a live screen would be cut off."""
    return Text(words, style=style, no_wrap=False, overflow="fold")


def _cluster(cluster: Document, now: int) -> str:
    heard = cluster["heardAt"]
    heard_of = f"last contact {age(heard, now)} ago" if heard else "no process follows it in this store"
    return f"cluster {cluster['url']}: {heard_of}; see: volsched audit drift"


def _oldest(since: str | None, now: int) -> str:
    return f", the oldest for {age(since, now)}" if since else ""


def _bindings(document: Document, now: int) -> str:
    if not document["bindings"]:
        return "bindings: none in flight"
    counts = ", ".join(
        f"{it['count']} {it['state']} (oldest {age(it['oldestPlannedAt'], now)})" for it in document["bindings"]
    )
    return f"bindings in flight: {counts}"


def _work(effects: list[Document], now: int) -> Iterator[RenderableType]:
    queued = [it for it in effects if it["state"] != "parked"]
    if not queued:
        yield _line("work: nothing waits")
    else:
        late = min(it["firstDueAt"] for it in queued)
        counts = ", ".join(f"{it['count']} {it['queue']} {it['state']}" for it in queued)
        yield _line(f"work: {counts}; the oldest has been due for {age(late, now)}")
    parked = sum(it["count"] for it in effects if it["state"] == "parked")
    if parked:
        yield _line(f"given up: {parked}; see: volsched effects list --state parked", style="bold red")


def _storage(document: Document) -> RenderableType:
    used = [it for it in USES if any(it in row["bytes"] for row in document["storage"])]
    table = table_of("CLASS", "ZONE", "VOLUMES", *(it.upper() for it in used))
    for row in document["storage"]:
        sizes = (size(row["bytes"][it]) if it in row["bytes"] else "-" for it in used)
        table.add_row(escape(row["class"]), escape(row["zone"]), str(row["volumes"]), *sizes)
    return table


def _leases(leases: list[Document], now: int) -> str:
    if not leases:
        return "leases: none is held; is anything running? (volsched up)"
    holders = ", ".join(
        f"{it['name']} {'held by' if it['held'] else 'over, last held by'} {it['holder']}, renewed "
        f"{age(it['renewedAt'], now)} ago"
        for it in leases
    )
    return f"leases: {holders}"
