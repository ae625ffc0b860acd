"""Settings: where the store is and whether there is a Redis. From the environment; `--db` overrides.

| variable | default | meaning |
|---|---|---|
| `VOLSCHED_DATABASE_URL` | SQLite, in the user's data directory | `sqlite:///FILE` or `postgresql://HOST/NAME` |
| `VOLSCHED_REDIS_URL` | none: workers run inside the process | `redis://HOST:PORT/N` |
| `VOLSCHED_CONFIG` | none: profile `volsched` as it is | the scheduler's configuration; `--config` overrides |
| `VOLSCHED_SCHEDULER_SHARE` | 1/1 | `2/4`: this is the second of four schedulers, and begins with its own pods |
| `VOLSCHED_LEASE_SECONDS` | 30 | how long a worker may take for a batch before another takes it over |
| `VOLSCHED_HOST_PATH_ROOT` | none: no directories are made | where `volsched.io/host-path` makes its volumes |
| `VOLSCHED_DISABLE_ZONAL_UPGRADE` | false | zone and region labels of volumes are not made their node affinity |
"""

import os
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from volsched.core.configuration import Configuration, ConfigurationError, configure
from volsched.core.plugins.plugin import Plugin
from volsched.core.queue.shares import ALL, Share, read_share
from volsched.model.documents import read_documents
from volsched.model.problems import ManifestError

PLUGINS = "volsched.plugins"
"""The group of entry points under which others offer plugins: name = a callable that makes the plugin."""


def data_directory() -> Path:
    """Where a user's programs keep data, by the XDG rules: a relative XDG_DATA_HOME does not count."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "volsched"


def default_url() -> str:
    return f"sqlite:///{data_directory() / 'volsched.db'}"


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path: what is deleted under it must not depend on where we run")
    return path


def _share(given: Any) -> Any:
    return read_share(given) if isinstance(given, str) else given


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="VOLSCHED_", env_ignore_empty=True)

    database_url: str = Field(default_factory=default_url)
    redis_url: str | None = None
    config: Path | None = None
    scheduler_share: Annotated[Share, NoDecode, BeforeValidator(_share)] = ALL
    lease_seconds: float = Field(default=30, gt=0)
    disable_zonal_upgrade: bool = False
    host_path_root: Annotated[Path, AfterValidator(_absolute)] | None = None


def read_settings() -> Settings:
    """What the environment says. Raises ConfigurationError with every variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [f"VOLSCHED_{'_'.join(map(str, it['loc'])).upper()}: {it['msg']}" for it in error.errors()]
        raise ConfigurationError([it.replace(": Value error, ", ": ", 1) for it in problems]) from None


def database_url(given: str | None) -> str:
    """The URL of the store: what `--db` says, else the settings. A bare path is an SQLite file."""
    if given is None:
        return read_settings().database_url
    return given if "://" in given else f"sqlite:///{given}"


def configuration(given: Path | None = None) -> Configuration:
    """What the scheduler is to do: the file that `--config` names, else the settings', else nothing special.

    Raises ConfigurationError with every mistake in the file.
    """
    path = given or read_settings().config
    if path is None:
        return Configuration()
    try:
        documents = read_documents(path.read_bytes(), source=str(path))
    except OSError as error:
        raise ConfigurationError(
            [f"{path}: cannot be read ({error.strerror}); give a file with --config"]
        ) from None
    except ManifestError as error:
        raise ConfigurationError([str(problem) for problem in error.problems]) from None
    if len(documents) > 1:
        raise ConfigurationError([f"{path}: holds {len(documents)} documents; write one"])
    try:
        return configure(documents[0].value if documents else None, find=cache(installed_plugin))
    except ConfigurationError as error:
        raise ConfigurationError([f"{path}: {problem}" for problem in error.problems]) from None


def installed_plugin(name: str) -> Plugin | None:
    """The plugin that an installed distribution offers under the name. Only what is asked for is imported."""
    offers = list(entry_points(group=PLUGINS, name=name))
    if not offers:
        return None
    if len({offer.value for offer in offers}) > 1:
        values = ", ".join(sorted(offer.value for offer in offers))
        raise ConfigurationError([f"plugin {name}: is offered by {values}; uninstall all but one"])
    try:
        made: Plugin = offers[0].load()()
    except Exception as error:
        raise ConfigurationError([f"plugin {name}: {offers[0].value} cannot be loaded: {error!r}"]) from error
    if made.name != name:
        raise ConfigurationError([f'plugin {name}: {offers[0].value} calls itself "{made.name}"; name it alike'])
    return made
