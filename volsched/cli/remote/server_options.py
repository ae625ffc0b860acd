"""The options that choose a server or a cluster; every start of a command loads this module."""

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", envvar="VOLSCHED_SERVER", help="Ask this API instead of a store, where it can."
    ),
]
TokenFileOption = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE|-", envvar="VOLSCHED_TOKEN_FILE", help="The token for it."),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar="VOLSCHED_CA_FILE",
        help="Its CA; else those that the system trusts.",
    ),
]
ClientCertOption = Annotated[
    Path | None, typer.Option("--client-cert", metavar="FILE", help="A certificate instead of a token.")
]
ClientKeyOption = Annotated[Path | None, typer.Option("--client-key", metavar="FILE", help="Its private key.")]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="File with all of this, or with --live the cluster's; else KUBECONFIG, else ~/.kube/config.",
    ),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context to use; else the current one.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChoice:
    """The options as they were given; checked when a verb asks for the server."""

    server: str | None = None
    token_file: str | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    live: bool = False
    """No server of ours is asked, but the cluster of the kubeconfig."""
    by_environment: bool = False
    """--server comes from the environment: --db is then no contradiction, and takes precedence."""
    verb: str = ""
    """The verb, as it was typed."""


_chosen: ContextVar[ServerChoice] = ContextVar("volsched_choice", default=ServerChoice())  # noqa: B039 - it is frozen


def note_choice(choice: ServerChoice) -> None:
    """Set the choice for the rest of this command."""
    _chosen.set(choice)


def choice_of_command() -> ServerChoice:
    return _chosen.get()
