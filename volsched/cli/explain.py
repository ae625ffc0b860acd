"""`volsched explain` and `simulate`: why a pod is pending or placed, and what would happen if."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from volsched.cli.completion import complete_namespace
from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout, table_of
from volsched.cli.global_options import PODS
from volsched.cli.kind_names import bare_name, key_of, kind_of
from volsched.cli.manifest_input import Kustomization, load_inputs
from volsched.cli.moment_option import check_as_of, local_time
from volsched.cli.question_command import Client, answer_to, client_of, declared
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db
from volsched.kube.problems import ConfigurationError
from volsched.log.events.streams import UnknownKindError, kind_called
from volsched.questions.explain.reason_lines import claim_lines, failing_lines
from volsched.questions.registry import question
from volsched.questions.simulate.stuck_pods import GONE
from volsched.runtime.settings import configuration
from volsched.scheduling.rules.attempts import FAILED, PLANNED
from volsched.scheduling.rules.profile import PROFILES, Profile

# The input of `explain` and `simulate`: a store as it is now, manifests, or manifests laid over a store.

OptionalFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE|DIR|URL|-",
        help="Manifests or a dump of a cluster: examined alone, or with --db or --server laid over the store.",
    ),
]


SimulatedNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="The namespace of manifests and --delete names that have none; else 'default'.",
        autocompletion=complete_namespace,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", help="The scheduler's configuration; else VOLSCHED_CONFIG, else profile volsched as it is."
    ),
]


def deciding_profile(name: str | None, config: Path | None) -> Profile:
    """The profile of that name, else the one that the configuration schedules with."""
    if name is not None and config is not None:
        fail(Exit.USAGE, "--profile and --config both say how to decide; give one of them")
    try:
        return PROFILES[name] if name is not None else configuration(config).profile
    except ConfigurationError as error:
        fail(Exit.USAGE, *error.problems)


@contextmanager
def deciding_client(
    db: str | None,
    files: list[str] | None,
    kustomize: str | None,
    *,
    profile: str | None,
    config: Path | None,
    namespace: str | None = None,
) -> Iterator[tuple[Client, list[dict[str, Any]]]]:
    """The client to ask, and the manifests that a server must be sent with the question.

    The manifests are laid over the objects of the store; `namespace` is for those that name none. A server decides
    under its own configuration, unless a profile is named.
    """
    served = chosen_server(db) is not None
    if served and config is not None:
        fail(Exit.USAGE, "a server decides under its own configuration; leave --config out, or give --profile")
    loaded = load_inputs(files, kustomize, namespace=namespace, dump=True) if files or kustomize else []
    if served:
        with client_of(db) as client:
            yield client, [it.manifest for it in loaded]
        return
    over = [it.value for it in loaded]
    with client_of(db, over=over, profile=deciding_profile(profile, config)) as client:
        yield client, []


QUESTION = question("explain pod")
EXAMPLES = QUESTION.examples
NODES_SHOWN = 2
NAMES_SHOWN = 5
ELSEWHERE_SHOWN = 3

app = typer.Typer(help="Say why a pod can or cannot be placed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Say why a pod can or cannot be placed."""


@declared(QUESTION, without=("manifests", "alone"))
def pod(
    filename: OptionalFiles = None,
    kustomize: Kustomization = None,
    config: ConfigOption = None,
    db: Db = None,
    output: OutputOption = Output.table,
    **words: Any,
) -> None:
    namespace = words["namespace"]
    key = key_of(kind_of("pod"), words["name"], namespace)
    words["namespace"], _, words["name"] = key.rpartition("/")
    words["node"] = words["node"] and bare_name(kind_of("node"), words["node"])
    as_of = words["as_of"]
    if as_of is not None and (filename or kustomize or words["node"] is not None):
        fail(Exit.USAGE, "--as-of shows what was stored; it goes with none of -f, -k and --node")
    check_as_of(as_of)
    profile = words["profile"]
    deciding = deciding_client(db, filename, kustomize, profile=profile, config=config, namespace=namespace)
    with deciding as (client, sent):
        answer = answer_to(client, QUESTION.name, **words, manifests=sent)
    if output is Output.json:
        print_json(answer)
    elif as_of is not None:
        _print_as_of(answer)
    else:
        _print_explanation(answer)
    if not answer["fits"] or "stuck" in answer:
        raise typer.Exit(Exit.UNSATISFIABLE)


for other in PODS:
    # The same names as for `get`; help lists one of them.
    app.command(other, hidden=other != "pod", epilog=EXAMPLES, no_args_is_help=True)(pod)


# --- for people -----------------------------------------------------------------------------------------


def _print_explanation(answer: dict[str, Any]) -> None:
    planned = f", which {answer['plannedBy']} would make" if "plannedBy" in answer else ""
    gone = ", which does not exist" if "nodeGone" in answer else ""
    _line(0, f"pod {answer['pod']}{planned}" + (f", on node {answer['node']}{gone}" if answer["node"] else ""))
    if "scheduler" in answer:
        _line(0, f'its schedulerName is "{answer["scheduler"]}": another scheduler places it, not volsched')
    if answer["past"] is not None:
        _print_past(answer["past"])
    if answer["binding"] is not None:
        suffix = "" if answer["failing"] is not None else "; what follows counts what it holds as taken"
        _line(0, f"binding {answer['binding']} is under way for it{suffix}")
    if answer["failing"] is not None:
        _print_failing(answer["failing"])
    if answer["failing"] is None or answer["refused"]:
        _print_now(answer)
    for group in answer["refused"]:
        # If a node fits, the details of the others are not needed.
        _print_group(group, details=0 if answer["fits"] else NODES_SHOWN)
    if "stuck" in answer:
        _line(0, f"{', '.join(answer['stuck']['claims'])}: {answer['stuck']['why']}")
        for remedy in answer["stuck"]["remedies"]:
            _line(1, remedy)
    _print_remedies(answer)


def _print_as_of(answer: dict[str, Any]) -> None:
    when = f" ({local_time(answer['asOf']['at'])})" if answer["asOf"]["at"] else ""
    placed = f", on node {answer['node']}" if answer["node"] else ""
    _line(0, f"pod {answer['pod']}{placed}, as of position {answer['asOf']['position']}{when}")
    if answer["past"] is None:
        _line(0, "nothing was decided about it up to then")
        return
    _print_past(answer["past"])
    for reason in answer["past"]["reasons"]:
        some = f" ({', '.join(reason['some'])})" if reason["some"] else ""
        _line(1, f"{reason['nodes']} nodes{some}: {reason['reason']}")
        for line in claim_lines([reason]):
            _line(2, line)
    if answer["failing"] is not None:
        _print_failing(answer["failing"])


def _print_failing(failing: dict[str, Any]) -> None:
    for line in failing_lines(failing):
        _line(0, line)
    if failing.get("untried"):
        _line(1, f"not tried yet, though the rules would take them: {', '.join(failing['untried'])}")
    if failing.get("remedies"):
        _line(0, "any one of these may help:")
    for number, remedy in enumerate(failing.get("remedies", ()), start=1):
        _line(1, f"{number}. {remedy}")


def _print_past(past: dict[str, Any]) -> None:
    when = f"attempt {past['attempt']} of {local_time(past['at'])}, on the log up to position {past['decidedAt']}"
    _line(0, f"decided then: {when}, by {past['decider']}")
    if past["times"] > 1:
        _line(1, f"the same answer {past['times']} times since {local_time(past['since'])}")
    if past["outcome"] not in (PLANNED, FAILED):
        _line(1, past["message"])
        return
    scores = ", ".join(f"{name} {score}" for name, score in past["scores"].items())
    failed = ", and its binding failed" if past["outcome"] == FAILED else ""
    _line(1, f"chose {past['node']} with score {past['score']}" + (f" ({scores})" if scores else "") + failed)
    if past["runnersUp"]:
        _line(1, f"next best: {_node_scores(past['runnersUp'])}")
    binding = past["binding"]
    if binding is not None:
        reason = f": {binding['reason']}" if binding["reason"] else ""
        _line(1, f"the binding is {binding['state']}{reason}")
        for leg in binding["legs"]:
            _line(2, f"{leg['claim']} → {leg['volume'] or 'a new volume'} ({leg['state']})")


def _print_now(answer: dict[str, Any]) -> None:
    when = "if it were scheduled now" if answer["node"] else "now"
    _line(0, f"{when}, {answer['nodes']} nodes, profile {answer['profile']}:")
    for bound in answer["bound"]:
        _line(1, f"{bound['claim']} is bound to {bound['volume']}")
    chosen = answer["chosen"]
    if chosen is None:
        if answer["failing"] is None or answer["remedies"]:
            _line(0, answer["message"])
        return
    _line(0, f"fits on {chosen['node']} (score {chosen['score']})")
    for binding in chosen["bindings"]:
        _line(1, "{claim} gets {volume} ({capacity} for {requested})".format(**binding))
    for provision in chosen["provisions"]:
        room = f", room in {provision['capacityObject']}" if provision["capacityObject"] else ""
        _line(1, "{claim} gets a new volume of class {class} ({requested})".format(**provision) + room)
    if answer["runnersUp"]:
        _line(0, f"next best: {_node_scores(answer['runnersUp'])}")


def _node_scores(nodes: list[dict[str, Any]]) -> str:
    return ", ".join(f"{it['node']} ({it['score']})" for it in nodes[:10])


def _print_group(group: dict[str, Any], *, details: int) -> None:
    by = f" by {group['plugin']}" if group["plugin"] else ""
    _line(0, f"{group['count']} refused{by}: {', '.join(group['reasons'])}")
    names = group["nodes"][:NAMES_SHOWN]
    if names:
        more = f" and {group['count'] - len(names)} more" if group["count"] > len(names) else ""
        _line(1, ", ".join(names) + more)
    for entry in group["details"][:details]:
        _line(1, f"on {entry['node']}")
        for rejection in entry["rejections"]:
            _line(2, f"claim {rejection['claim']}")
            for failure in rejection["failures"]:
                _line(3, "{rule}: wanted {wanted}; got {got}".format(**failure))
            for miss in rejection["misses"]:
                failures = "; ".join(
                    "{rule}: wanted {wanted}, got {got}".format(**part) for part in miss["failures"]
                )
                _line(3, f"{miss['volume']}: {failures}")


def _print_remedies(answer: dict[str, Any]) -> None:
    if answer["fits"] or (answer["failing"] is not None and not answer["remedies"]):
        return
    if not answer["remedies"]:
        _line(0, "no small change was found that would make it fit")
        return
    _line(0, "any one of these would make it fit; each was tried, the smallest first:")
    for number, remedy in enumerate(answer["remedies"], start=1):
        first, *others = (change["text"] for change in remedy["changes"])
        end = f" → {remedy['node']}"
        _line(1, f"{number}. {first}" + ("" if others else end))
        for place, other in enumerate(others, start=1):
            _line(2, f"and {other}" + (end if place == len(others) else ""))
        for elsewhere in remedy["elsewhere"][:ELSEWHERE_SHOWN]:
            _line(2, f"or {', and '.join(elsewhere)}")
        if len(remedy["elsewhere"]) > ELSEWHERE_SHOWN:
            _line(2, f"or the same in {len(remedy['elsewhere']) - ELSEWHERE_SHOWN} other places; see -o json")


def _line(depth: int, text: str) -> None:
    stdout.print("  " * depth + escape(text))


# `volsched simulate`: what would happen if, tried on a copy in memory.

SIMULATION = question("simulate")
SIMULATE_EXAMPLES = SIMULATION.examples
NEAR_NAMES = 5
VOLUME_NODES_SHOWN = 3


@declared(SIMULATION)
def run_simulation(
    filename: OptionalFiles = None,
    kustomize: Kustomization = None,
    namespace: SimulatedNamespace = None,
    config: ConfigOption = None,
    db: Db = None,
    output: OutputOption = Output.table,
    **words: Any,
) -> None:
    add, as_of = words["add"], check_as_of(words.pop("as_of"))
    scenario = {name: it or [] for name, it in words.items()}
    for nodes in ("drain", "loseNodes"):
        scenario[nodes] = [bare_name(kind_of("node"), it) for it in scenario[nodes]]
    loaded = load_inputs(add, namespace=namespace, dump=True) if add else []
    scenario["add"] = [entry.manifest for entry in loaded]
    scenario["delete"] = [_in_namespace(it, namespace) for it in scenario["delete"]]
    if not any(scenario.values()):
        fail(Exit.USAGE, "nothing to try; give --drain, --lose-node, --lose-zone, --add or --delete")
    if add and filename and "-" in add and "-" in filename:
        fail(Exit.USAGE, "--add - and -f - both read standard input; put one of them into a file")
    with deciding_client(db, filename, kustomize, profile=None, config=config, namespace=namespace) as (
        client,
        sent,
    ):
        if sent:
            fail(
                Exit.USAGE,
                "-f and -k are for use without a server; leave --server out, or give the objects with --add",
            )
        answer = answer_to(client, SIMULATION.name, as_of=as_of, **scenario)
    if output is Output.json:
        print_json(answer)
    else:
        _print_simulation(answer)
    if answer["stranded"]:
        raise typer.Exit(Exit.UNSATISFIABLE)


def _in_namespace(name: str, namespace: str | None) -> str:
    """`pvc/data` as `pvc/NAMESPACE/data`; a word that names no object is left for the question to refuse."""
    kind, _, key = name.partition("/")
    if namespace is None or not key:
        return name
    try:
        named = kind_called(kind)
    except UnknownKindError:
        return name
    return f"{kind}/{key_of(named, key, namespace)}"


# --- for people -----------------------------------------------------------------------------------------


def _print_simulation(answer: dict[str, Any]) -> None:
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
    for claim in entry["claims"]:
        if claim["volume"] is None:
            _line(1, "{claim}: no volume of {size} (class {class}); nearest in {domain}".format(**claim))
            continue
        if claim["why"] == GONE:
            _line(1, "{claim} is bound to {volume}, which is gone".format(**claim))
            continue
        nodes = claim["reachedFrom"]
        more = f" and {len(nodes) - VOLUME_NODES_SHOWN} more" if len(nodes) > VOLUME_NODES_SHOWN else ""
        reached = (
            f"reached from {', '.join(nodes[:VOLUME_NODES_SHOWN])}{more} only" if nodes else "no node reaches it"
        )
        _line(1, f"{claim['claim']} is bound to {claim['volume']} in {claim['domain']}: {reached}")


def _print_short(short: list[dict[str, Any]]) -> None:
    _line(0, "short:")
    table = table_of("class", "domain", "claims", "size", "", padding=(0, 2, 0, 0))
    for row in short:
        table.add_row(
            *map(escape, (row["class"] or "-", row["domain"], str(row["claims"]), row["size"], row["why"]))
        )
    stdout.print(table)
