"""`volsched simulate`: what would happen if, tried on a copy in memory."""

from typing import Annotated, Any

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.explain_source import ConfigOption, OptionalFiles, answered, deciding_profile, sight
from volsched.cli.manifest_input import load_files
from volsched.cli.remote.paths import own
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db
from volsched.kube.kinds import Object
from volsched.log.events.kind_names import UnknownKindError
from volsched.questions.audit.answers import QuestionError
from volsched.questions.simulate.simulate import Scenario
from volsched.questions.simulate.stuck_pods import GONE
from volsched.questions.source import named_object, simulated

EXAMPLES = """**Examples**

`volsched simulate --drain node-7` who has to leave, who comes back where, and whose volumes keep it from that

`volsched simulate --lose-zone a --add spare-nodes.yaml -o json`

`volsched simulate --delete pv/disk-3 --delete pvc/shop/data-db-0`

`kubectl get nodes,pv,pvc,sc,pods -A -o yaml | volsched simulate --lose-node node-7 -f -` on a dump
"""
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
    """Try a change on a copy in memory: who loses its place, who finds another, whose volumes keep it from that.

    Pods look for a place in order of priority, then of name, each seeing what those before it took. The store is
    only read. Exit 0 if every pod finds a place, 4 if some do not, 3 if something named is not there.
    """
    added = load_files(add) if add else []
    scenario = Scenario(
        drain=tuple(drain or ()),
        lose_nodes=tuple(lose_node or ()),
        lose_zones=tuple(lose_zone or ()),
        add=tuple(entry.value for entry in added),
        delete=tuple(_named(it) for it in delete or ()),
    )
    if scenario == Scenario():
        fail(Exit.USAGE, "nothing to try; give --drain, --lose-node, --lose-zone, --add or --delete")
    if add and filename and "-" in add and "-" in filename:
        fail(Exit.USAGE, "--add - and -f - both read standard input; put one of them into a file")
    server = chosen_server(db)
    if server is not None:
        if config is not None:
            fail(Exit.USAGE, "a server decides under its own configuration; leave --config out")
        if filename:
            fail(
                Exit.USAGE, "-f is looked at without a server; leave --server out, or give the objects with --add"
            )
        body = {
            "drain": drain or [],
            "loseNodes": lose_node or [],
            "loseZones": lose_zone or [],
            "add": [entry.manifest for entry in added],
            "delete": delete or [],
        }
        answer = server.ask("POST", own("simulate"), body=body, unasked=Exit.USAGE)
    else:
        with sight(db, filename, profile=deciding_profile(None, config)) as seen:
            answer = answered(lambda: simulated(seen, scenario))
    if output is Output.json:
        print_json(answer)
    else:
        _print(answer)
    if answer["stranded"]:
        raise typer.Exit(Exit.UNSATISFIABLE)


def _named(text: str) -> tuple[type[Object], str]:
    try:
        return named_object(text)
    except UnknownKindError as error:
        fail(Exit.NOT_FOUND, str(error))
    except QuestionError as error:
        fail(Exit.USAGE, str(error))


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
