"""`volsched explain`: why is this pod pending, or why did it go there, and what would help?"""

from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout
from volsched.cli.explain_source import ConfigOption, OptionalFiles, client_for
from volsched.cli.kind_names import NamespaceOption, key_of, kind_of
from volsched.cli.question_client import asked_of
from volsched.cli.question_command import help_of
from volsched.cli.store_option import Db
from volsched.cli.store_view import AsOfOption, check_as_of
from volsched.questions.explain.reason_lines import claim_lines, failing_lines
from volsched.questions.registry import question
from volsched.scheduling.rules.attempts import FAILED, PLANNED

QUESTION = question("explain pod")
EXAMPLES = QUESTION.examples
NODES_SHOWN = 2
NAMES_SHOWN = 5
ELSEWHERE_SHOWN = 3

app = typer.Typer(help="Say why a pod can or cannot be placed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Say why a pod can or cannot be placed."""


def pod(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pod, as NAME or NAMESPACE/NAME.")],
    namespace: NamespaceOption = None,
    filename: OptionalFiles = None,
    db: Db = None,
    node: Annotated[str | None, typer.Option(help="Look at this node only.")] = None,
    profile: Annotated[
        Literal["volsched", "parity"] | None, typer.Option(help="How to decide, where not as configured.")
    ] = None,
    config: ConfigOption = None,
    as_of: AsOfOption = None,
    output: OutputOption = Output.table,
) -> None:
    within, _, bare = key_of(kind_of("pod"), name, namespace).rpartition("/")
    if as_of is not None and (filename or node is not None):
        fail(Exit.USAGE, "--as-of tells what was stored; it goes with neither -f nor --node")
    check_as_of(as_of)
    client, over = client_for(db, filename, profile=profile, config=config)
    words = {"name": bare, "namespace": within, "node": node, "profile": profile, "as_of": as_of}
    told = asked_of(client, QUESTION.name, **words, **over)
    if output is Output.json:
        print_json(told)
    elif as_of is not None:
        _print_as_of(told)
    else:
        _print(told)
    if not told["fits"] or "stuck" in told:
        raise typer.Exit(Exit.UNSATISFIABLE)


pod.__doc__ = help_of(QUESTION)
for other in ("pod", "po", "pods"):
    # As everywhere else; listed once is enough.
    app.command(other, hidden=other != "pod", epilog=EXAMPLES, no_args_is_help=True)(pod)


# --- for people -----------------------------------------------------------------------------------------


def _print(told: dict[str, Any]) -> None:
    _line(0, f"pod {told['pod']}" + (f", on node {told['node']}" if told["node"] else ""))
    if told["past"] is not None:
        _print_past(told["past"])
    if told["binding"] is not None:
        held = "" if told["failing"] is not None else "; what follows is decided with what that holds"
        _line(0, f"binding {told['binding']} is under way for it{held}")
    if told["failing"] is not None:
        _print_failing(told["failing"])
    if told["failing"] is None or told["refused"]:
        _print_now(told)
    for group in told["refused"]:
        # Where some node fits, it is enough to know that others do not.
        _print_group(group, details=0 if told["fits"] else NODES_SHOWN)
    if "stuck" in told:
        _line(0, f"{', '.join(told['stuck']['claims'])}: {told['stuck']['why']}")
        for remedy in told["stuck"]["remedies"]:
            _line(1, remedy)
    _print_remedies(told)


def _print_as_of(told: dict[str, Any]) -> None:
    when = f" ({told['asOf']['at']})" if told["asOf"]["at"] else ""
    placed = f", on node {told['node']}" if told["node"] else ""
    _line(0, f"pod {told['pod']}{placed}, as of position {told['asOf']['position']}{when}")
    if told["past"] is None:
        _line(0, "nothing was decided about it up to then")
        return
    _print_past(told["past"])
    for reason in told["past"]["reasons"]:
        some = f" ({', '.join(reason['some'])})" if reason["some"] else ""
        _line(1, f"{reason['nodes']} nodes{some}: {reason['reason']}")
        for line in claim_lines([reason]):
            _line(2, line)
    if told["failing"] is not None:
        _print_failing(told["failing"])


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
    when = f"attempt {past['attempt']} of {past['at']}, on the log up to position {past['decidedAt']}"
    _line(0, f"decided then: {when}, by {past['decider']}")
    if past["times"] > 1:
        _line(1, f"the same answer {past['times']} times since {past['since']}")
    if past["outcome"] not in (PLANNED, FAILED):
        _line(1, past["message"])
        return
    scores = ", ".join(f"{name} {score}" for name, score in past["scores"].items())
    failed = ", and its binding failed" if past["outcome"] == FAILED else ""
    _line(1, f"chose {past['node']} with score {past['score']}" + (f" ({scores})" if scores else "") + failed)
    if past["runnersUp"]:
        _line(1, f"next best: {_scored(past['runnersUp'])}")
    binding = past["binding"]
    if binding is not None:
        reason = f": {binding['reason']}" if binding["reason"] else ""
        _line(1, f"the binding is {binding['state']}{reason}")
        for leg in binding["legs"]:
            _line(2, f"{leg['claim']} → {leg['volume'] or 'a new volume'} ({leg['state']})")


def _print_now(told: dict[str, Any]) -> None:
    asked = "if it were scheduled now" if told["node"] else "now"
    _line(0, f"{asked}, {told['nodes']} nodes, profile {told['profile']}:")
    for bound in told["bound"]:
        _line(1, f"{bound['claim']} is bound to {bound['volume']}")
    chosen = told["chosen"]
    if chosen is None:
        if told["failing"] is None or told["remedies"]:
            _line(0, told["message"])
        return
    _line(0, f"fits on {chosen['node']} (score {chosen['score']})")
    for binding in chosen["bindings"]:
        _line(1, "{claim} gets {volume} ({capacity} for {requested})".format(**binding))
    for provision in chosen["provisions"]:
        room = f", room in {provision['capacityObject']}" if provision["capacityObject"] else ""
        _line(1, "{claim} gets a new volume of class {class} ({requested})".format(**provision) + room)
    if told["runnersUp"]:
        _line(0, f"next best: {_scored(told['runnersUp'])}")


def _scored(nodes: list[dict[str, Any]]) -> str:
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


def _print_remedies(told: dict[str, Any]) -> None:
    if told["fits"] or (told["failing"] is not None and not told["remedies"]):
        return
    if not told["remedies"]:
        _line(0, "no small change was found that would make it fit")
        return
    _line(0, "any one of these would make it fit; each was tried, the smallest first:")
    for number, remedy in enumerate(told["remedies"], start=1):
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
