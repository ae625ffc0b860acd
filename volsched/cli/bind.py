"""`volsched bind`: bind a claim that waits for its first consumer at once, for a named node."""

from typing import Annotated

import typer
from rich.markup import escape

from volsched.binding.rules.reservations import (
    NoSuchObjectError,
    NothingFitsError,
    NotToBeBoundError,
    PromisedError,
)
from volsched.cli.completion import complete_claim, complete_node
from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout
from volsched.cli.kind_names import NamespaceOption, bare_name, key_of, kind_of
from volsched.cli.operator import actor
from volsched.cli.store_option import Db, opened
from volsched.log.commands import ConflictError
from volsched.log.transaction import execute
from volsched.runtime.clock import system_clock
from volsched.runtime.settings import configuration
from volsched.scheduling.pod_reservations import InFlightError, binding_alone, choose_now
from volsched.scheduling.rules.configuration import ConfigurationError

EXAMPLES = """**Examples**

`volsched bind claim shop/data-0 --node node-7` gives the claim a volume that node-7 reaches, or creates one
"""
WITHOUT_REASON = "asked for on the command line"

app = typer.Typer(help="Bind a claim before a pod uses it.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Bind a claim before a pod uses it."""


@app.command(epilog=EXAMPLES, no_args_is_help=True)
def claim(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAMESPACE/NAME", help="The claim; a bare name is in 'default'.", autocompletion=complete_claim
        ),
    ],
    namespace: NamespaceOption = None,
    *,
    node: Annotated[
        str,
        typer.Option(
            "--node", metavar="NODE", help="The node where the claim will be used.", autocompletion=complete_node
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why it is done; kept with the change.")
    ] = WITHOUT_REASON,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Bind a claim that waits for its first consumer at once, as for a pod with only this claim that is already on
    the node. Pods that use the claim can then run only where its volume is.

    The volume, or the claim to be provisioned, is written at once; a running system completes the binding, or
    `volsched schedule` does. Nothing is undone if a provisioner fails: it tries again.

    Exit 3 if the claim or node does not exist, 4 if nothing fits, 7 if something changed meanwhile or the claim is
    taken: by a binding, or promised to a node or volume; 1 if it cannot be bound this way.
    """
    key, by, now = key_of(kind_of("pvc"), name, namespace), actor("bind"), system_clock()
    node = bare_name(kind_of("node"), node)
    with opened(db) as database:
        try:
            picture, choice = choose_now(database, key, node, now=now, configuration=configuration())
        except ConfigurationError as error:
            fail(Exit.USAGE, *error.problems)
        except NoSuchObjectError as error:
            fail(Exit.NOT_FOUND, str(error))
        except NotToBeBoundError as error:
            fail(Exit.FAILURE, str(error))
        except NothingFitsError as error:
            fail(Exit.UNSATISFIABLE, str(error))
        except (InFlightError, PromisedError) as error:
            fail(Exit.CONFLICT, str(error))
        command = binding_alone(picture, choice, actor=by, reason=reason.strip() or WITHOUT_REASON, now=now)
        (outcome,) = execute(database, [command], now=now)
    if isinstance(outcome, ConflictError):
        fail(Exit.CONFLICT, f'claim "{key}" was not bound: {outcome}; try again')
    if isinstance(outcome, Exception):
        fail(Exit.FAILURE, f'claim "{key}" was not bound: {outcome}')
    if output is Output.json:
        print_json({"claim": key, "node": node, "volume": choice.volume, "class": choice.claim.class_name})
        return
    stdout.print(escape(f"claim {key} {choice.description}; a running system completes it, or volsched schedule"))
