"""`volsched explain`: why is this pod pending, or why did it go there?"""

import json
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, fail, stdout
from volsched.cli.inputs import Files, load_files
from volsched.core.claims import with_default_classes
from volsched.core.profile import PROFILES
from volsched.core.snapshot import snapshot_of
from volsched.insight.explain import explain_pod

EXAMPLES = """
Examples:

volsched explain pod shop/db-0 -f cluster.yaml

kubectl get nodes,pv,pvc,sc,pods -A -o yaml | volsched explain pod shop/db-0 -f -

volsched explain pod shop/db-0 -f cluster.yaml --node node-7 -o json
"""
NODES_SHOWN = 3

app = typer.Typer(help="Say why a pod can or cannot be placed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Say why a pod can or cannot be placed."""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def pod(
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The pod; a bare name is in 'default'.")],
    filename: Files,
    node: Annotated[str | None, typer.Option(help="Look at this node only.")] = None,
    profile: Annotated[Literal["volsched", "parity"], typer.Option(help="How to decide.")] = "volsched",
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")] = Output.table,
) -> None:
    """Decide for one pod on the given manifests, and show for every refused node the claim, the rule, what was
    wanted and what was found.

    Only the rules about volumes are applied: affinity, taints and resources of the pod are not looked at yet.
    Claims that name no class get the default one, as on creation.

    Exit 0 if a node fits, 4 if none does, 3 if the pod or node is not among the manifests.
    """
    snapshot = with_default_classes(snapshot_of(loaded.value for loaded in load_files(filename)))
    key = name if "/" in name else f"default/{name}"
    wanted = snapshot.pods.get(key)
    if wanted is None:
        known = ", ".join(sorted(snapshot.pods)[:10]) or "none"
        fail(Exit.NOT_FOUND, f'pod "{key}" is not among the manifests; pods there: {known}')
    if not snapshot.nodes:
        fail(Exit.USAGE, "the manifests hold no Node; add the output of: kubectl get nodes -o yaml")
    if node is not None:
        if node not in snapshot.nodes:
            fail(Exit.NOT_FOUND, f'node "{node}" is not among the manifests')
        snapshot = replace(snapshot, nodes={node: snapshot.nodes[node]})
    explained = explain_pod(snapshot, wanted, profile=PROFILES[profile])
    if output is Output.json:
        stdout.print_json(json.dumps(explained))
    else:
        _print(explained)
    if not explained["fits"]:
        raise typer.Exit(Exit.UNSATISFIABLE)


def _print(explained: dict[str, Any]) -> None:
    _line(0, f"pod {explained['pod']}, profile {explained['profile']}, {explained['nodes']} nodes")
    for bound in explained["bound"]:
        _line(1, f"{bound['claim']} is bound to {bound['volume']}")
    chosen = explained["chosen"]
    if chosen is None:
        _line(0, explained["message"])
    else:
        _line(0, f"fits on {chosen['node']} (score {chosen['score']})")
        for binding in chosen["bindings"]:
            _line(1, "{claim} gets {volume} ({capacity} for {requested})".format(**binding))
        for provision in chosen["provisions"]:
            room = f", room in {provision['capacityObject']}" if provision["capacityObject"] else ""
            _line(1, "{claim} gets a new volume of class {class} ({requested})".format(**provision) + room)
        if explained["runnersUp"]:
            others = ", ".join(f"{other['node']} ({other['score']})" for other in explained["runnersUp"][:10])
            _line(0, f"next best: {others}")
    for group in explained["refused"]:
        _print_group(group)


def _print_group(group: dict[str, Any]) -> None:
    nodes = group["nodes"]
    _line(0, f"{len(nodes)} refused: {', '.join(group['reasons'])}")
    for entry in nodes[:NODES_SHOWN]:
        _line(1, entry["node"])
        for rejection in entry["rejections"]:
            _line(2, f"claim {rejection['claim']}")
            for failure in rejection["failures"]:
                _line(3, "{rule}: wanted {wanted}; got {got}".format(**failure))
            for miss in rejection["misses"]:
                failures = "; ".join(
                    "{rule}: wanted {wanted}, got {got}".format(**part) for part in miss["failures"]
                )
                _line(3, f"{miss['volume']}: {failures}")
    if len(nodes) > NODES_SHOWN:
        _line(1, f"and {len(nodes) - NODES_SHOWN} more; see one with --node NAME, all with -o json")


def _line(depth: int, text: str) -> None:
    stdout.print("  " * depth + escape(text))
