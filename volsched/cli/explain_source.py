"""What `explain` and `simulate` look at: a store as it is now, manifests, or manifests laid over a store."""

from pathlib import Path
from typing import Annotated, Any

import typer

from volsched.cli.console import Exit, fail
from volsched.cli.manifest_input import load_files
from volsched.cli.question_client import Client, ServerClient, StoreClient
from volsched.cli.remote.server_choice import chosen_server
from volsched.kube.problems import ConfigurationError
from volsched.runtime.settings import configuration
from volsched.scheduling.rules.profile import PROFILES, Profile

OptionalFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE|DIR|-",
        help="Manifests or a dump of a cluster, looked at alone; with --db or --server laid over what is there.",
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


def client_for(
    db: str | None, files: list[str] | None, *, profile: str | None, config: Path | None
) -> tuple[Client, dict[str, Any]]:
    """Whom to ask about manifests laid over what is there, and the parameters in which a server is sent them.

    A server decides under its own configuration, unless a profile is named.
    """
    server = chosen_server(db)
    if server is not None and config is not None:
        fail(Exit.USAGE, "a server decides under its own configuration; leave --config out, or give --profile")
    loaded = load_files(files) if files else []
    if server is not None:
        return ServerClient(server), {"manifests": [it.manifest for it in loaded]} if loaded else {}
    over = [it.value for it in loaded]
    return StoreClient(db=db, over=over, profile=deciding_profile(profile, config)), {}
