"""What `explain` and `simulate` look at: a store as it is now, manifests, or manifests laid over a store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volsched.cli.console import Exit, fail
from volsched.cli.manifest_input import load_files
from volsched.cli.remote.paths import own
from volsched.cli.store_option import opened
from volsched.kube.problems import ConfigurationError
from volsched.log.events.kind_names import UnknownKindError
from volsched.questions.audit.answers import QuestionError, UnknownError
from volsched.questions.source import Sight, sight_of
from volsched.runtime.settings import configuration
from volsched.scheduling.rules.profile import PROFILES, Profile

if TYPE_CHECKING:
    from volsched.cli.remote.server import RemoteServer

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


@contextmanager
def sight(db: str | None, files: list[str] | None, *, profile: Profile) -> Iterator[Sight]:
    """Manifests alone, unless a store is named as well; without manifests the store."""
    loaded = [entry.value for entry in load_files(files)] if files else []
    if files and db is None:
        yield sight_of(None, loaded, profile=profile)
        return
    with opened(db) as database:
        yield sight_of(database, loaded, profile=profile)


def explained_by(
    server: "RemoteServer",
    key: str,
    files: list[str] | None,
    *,
    node: str | None,
    profile: str | None,
    as_of: str | None = None,
) -> dict[str, Any]:
    """By a server, under its own configuration unless a profile is named; manifests are laid over what it has."""
    namespace, _, name = key.rpartition("/")
    if files:
        body: dict[str, Any] = {"pod": key, "manifests": [it.manifest for it in load_files(files)]}
        body |= {} if node is None else {"node": node}
        body |= {} if profile is None else {"profile": profile}
        told: dict[str, Any] = server.ask("POST", own("explain"), body=body, unasked=Exit.USAGE)
    else:
        query = {"node": node, "profile": profile, "asOf": as_of}
        told = server.get(own("explain", name, namespace=namespace), query, unasked=Exit.USAGE)
    return told


def answered(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is not there ends the command with 3, what cannot be asked with 2."""
    try:
        return ask()
    except (UnknownError, UnknownKindError) as error:
        fail(Exit.NOT_FOUND, str(error))
    except QuestionError as error:
        fail(Exit.USAGE, str(error))
