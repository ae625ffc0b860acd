"""`volsched simulate`: what would happen if, tried on a copy in memory."""

from typing import Annotated, Any

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.explain_source import ConfigOption, OptionalFiles, client_for
from volsched.cli.manifest_input import load_files
from volsched.cli.question_client import asked_of
from volsched.cli.question_command import help_of
from volsched.cli.store_option import Db
from volsched.questions.registry import question
from volsched.questions.simulate.stuck_pods import GONE

QUESTION = question("simulate")
EXAMPLES = QUESTION.examples
NEAR_NAMES = 5
NODES_SHOWN = 3

Drained = Annotated[
    list[str] | None, typer.Option("--drain", metavar="NODE", help="Cordon the node and evict its pods.")
]
LostNodes = Annotated[list[str] | None, typer.Option("--lose-node", metavar="NODE", help="The node is gone.")]
LostZones = Annotated[
    list[str] | None, typer.Option("--lose-zone", metavar="ZONE", help="All nodes of the zone are gone.")
]
Added = Annotated[
    list[str] | None, typer.Option("--add", metavar="FILE|DIR|-", help="These objects are there as well.")
]
Deleted = Annotated[
    list[str] | None,
    typer.Option("--delete", metavar="KIND/NAME", help="The object is gone; pvc/NAMESPACE/NAME if it has one."),
]


def run_simulation(
    drain: Drained = None,
    lose_node: LostNodes = None,
    lose_zone: LostZones = None,
    add: Added = None,
    delete: Deleted = None,
    filename: OptionalFiles = None,
    db: Db = None,
    config: ConfigOption = None,
    output: OutputOption = Output.table,
) -> None:
    scenario = {
        "drain": drain or [],
        "loseNodes": lose_node or [],
        "loseZones": lose_zone or [],
        "add": [entry.manifest for entry in load_files(add)] if add else [],
        "delete": delete or [],
    }
    if not any(scenario.values()):
        fail(Exit.USAGE, "nothing to try; give --drain, --lose-node, --lose-zone, --add or --delete")
    if add and filename and "-" in add and "-" in filename:
        fail(Exit.USAGE, "--add - and -f - both read standard input; put one of them into a file")
    client, over = client_for(db, filename, profile=None, config=config)
    if over:
        fail(Exit.USAGE, "-f is looked at without a server; leave --server out, or give the objects with --add")
    answer = asked_of(client, QUESTION.name, **scenario)
    if output is Output.json:
        print_json(answer)
    else:
        _print(answer)
    if answer["stranded"]:
        raise typer.Exit(Exit.UNSATISFIABLE)


run_simulation.__doc__ = help_of(QUESTION)


# --- for people -----------------------------------------------------------------------------------------


def _print(answer: dict[str, Any]) -> None:
    _line(0, f"if we {', '.join(answer['scenario'])}:")
    placed, stranded = answer["placed"], answer["stranded"]
    _line(0, f"pods evicted: {len(answer['evicted'])}, placed: {len(placed)}, without a node: {len(stranded)}")
    _print_placed(placed)
    for entry in stranded:
        _print_stranded(entry)
    if answer["short"]:
        _print_short(answer["short"])
    for words, names in (("stay on the drained node", answer["stays"]), ("are gone with it", answer["gone"])):
        if names:
            more = f" and {len(names) - NEAR_NAMES} more" if len(names) > NEAR_NAMES else ""
            _line(0, f"{words}: {', '.join(names[:NEAR_NAMES])}{more}")
    before = answer["waitedBefore"]
    if before["placed"] or before["waiting"]:
        count = len(before["placed"]) + len(before["waiting"])
        _line(0, f"pods that waited before: {count}, placed then: {len(before['placed'])}")
        _print_placed(before["placed"])


def _print_placed(placed: list[dict[str, Any]]) -> None:
    if not placed:
        return
    table = table_of("pod", "from", "to", "new volumes", padding=(0, 2, 0, 0))
    for entry in placed:
        new = [f"{it['claim']} → {it['volume']}" for it in entry["bindings"]]
        new += [f"{it['claim']} → new, {it['requested']} of {it['class']}" for it in entry["provisions"]]
        table.add_row(*map(escape, (entry["pod"], entry["from"] or "-", entry["to"], ", ".join(new) or "-")))
    stdout.print(table)


def _print_stranded(entry: dict[str, Any]) -> None:
    origin = f" of {entry['from']}" if entry["from"] else ""
    _line(0, f"{entry['pod']}{origin} finds no node: {entry['message']}")
    for held in entry["claims"]:
        if held["volume"] is None:
            _line(1, "{claim}: no volume of {size} (class {class}); nearest in {domain}".format(**held))
            continue
        if held["why"] == GONE:
            _line(1, "{claim} is bound to {volume}, which is gone".format(**held))
            continue
        nodes = held["reachedFrom"]
        more = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
        reached = f"reached from {', '.join(nodes[:NODES_SHOWN])}{more} only" if nodes else "no node reaches it"
        _line(1, f"{held['claim']} is bound to {held['volume']} in {held['domain']}: {reached}")


def _print_short(short: list[dict[str, Any]]) -> None:
    _line(0, "short:")
    table = table_of("class", "domain", "claims", "size", "", padding=(0, 2, 0, 0))
    for it in short:
        table.add_row(*map(escape, (it["class"] or "-", it["domain"], str(it["claims"]), it["size"], it["why"])))
    stdout.print(table)


def _line(depth: int, text: str) -> None:
    stdout.print("  " * depth + escape(text))
