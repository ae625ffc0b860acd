"""Settings: where the store is and whether there is a Redis. From the environment; `--db` overrides.

| variable | default | meaning |
|---|---|---|
| `VOLSCHED_DATABASE_URL` | SQLite, in the user's data directory | `sqlite:///FILE` or `postgresql://HOST/NAME` |
| `VOLSCHED_REDIS_URL` | none: workers run inside the process | `redis://HOST:PORT/N` |
| `VOLSCHED_CONFIG` | none: profile `volsched` as it is | the scheduler's configuration; `--config` overrides |
| `VOLSCHED_SCHEDULER_SHARE` | 1/1 | `2/4`: this is the second of four schedulers, and begins with its own pods |
| `VOLSCHED_LEASE_SECONDS` | 30 | how long a worker may take for a batch before another takes it over |
| `VOLSCHED_EVENT_TTL_SECONDS` | 86400 | how long Kubernetes events (`kubectl get events`) are kept |
| `VOLSCHED_COMMAND_TTL_SECONDS` | 604800 | how long the result of an idempotent request is kept |
| `VOLSCHED_DONE_TTL_SECONDS` | 2592000 | how long the finished work of ended bindings is kept |
| `VOLSCHED_HOST_PATH_ROOT` | none: no directories are made | where `volsched.io/host-path` makes its volumes |
| `VOLSCHED_DISABLE_ZONAL_UPGRADE` | false | zone and region labels of volumes are not made their node affinity |
| `VOLSCHED_HEARTBEAT_FILE` | none | a file that is touched when a step went well; health checks look at its age |
| `VOLSCHED_INSTANCE` | the machine's name | what this process is called where several are alike |
| `VOLSCHED_TLS_CERT_FILE`, `VOLSCHED_TLS_KEY_FILE` | none: plain http, on loopback | the API's proof of itself |
| `VOLSCHED_CLIENT_CA_FILE` | none: tokens only | whose client certificates the API believes |
| `VOLSCHED_REQUESTS_PER_SECOND` | 1000 | of one client of the API; 0 is no limit |
| `VOLSCHED_BODY_BYTES_PER_SECOND` | 16777216 | of the bodies of one client; YAML counts 16 times; 0 is no limit |
| `VOLSCHED_MOST_WATCHES` | 5000 | watches that may be open at a time |
| `VOLSCHED_MOST_WATCHES_PER_CALLER` | 1000 | of one caller, where callers prove who they are |
| `VOLSCHED_MOST_WAITING_BYTES` | 268435456 | that the watches of one such caller may leave unread |
| `VOLSCHED_MOST_BODY_BYTES` | 3145728 | of a request; the extender takes up to 64 MiB |
| `VOLSCHED_HYPOTHESIS_SECONDS`, `VOLSCHED_LONG_SECONDS` | 30, 600 | of explain, simulate; of verify, export |
| `VOLSCHED_HEADER_SECONDS`, `VOLSCHED_BODY_SECONDS` | 10, 30 | how long a client may take to send them |
| `VOLSCHED_KEEP_ALIVE_SECONDS` | 75 | how long a connection stays open between two requests |
| `VOLSCHED_ANCHOR_DIRECTORY` | none | where `up` and `serve controller` keep signed anchors of the log |
| `VOLSCHED_ANCHOR_COMMAND` | none | gets each anchor on its standard input, to send it elsewhere; no shell |
| `VOLSCHED_ANCHOR_SECONDS` | 300 | from one anchor to the next |
| `VOLSCHED_ANCHOR_KEY_FILE` | none | the private key that signs them: `volsched anchor keygen` |

Each field is `VOLSCHED_` and its name in capitals; `tools/settings.py` makes `docs/settings.md` from them.
Any of them may lie in a file instead, `VOLSCHED_DATABASE_URL_FILE=/run/secrets/database_url`: an environment is
seen by too many.
"""

import os
import socket
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from volsched.kube.problems import ConfigurationError, ManifestError
from volsched.scheduling.queue.shares import ALL, Share, read_share

if TYPE_CHECKING:
    from volsched.scheduling.plugins.plugin import Plugin
    from volsched.scheduling.rules.configuration import Configuration

PLUGINS = "volsched.plugins"
"""The group of entry points under which others offer plugins: name = a callable that makes the plugin."""


def data_directory() -> Path:
    """Where a user's programs keep data, by the XDG rules: a relative XDG_DATA_HOME does not count."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "volsched"


def cache_directory() -> Path:
    """Where they keep what can be had again, by the same rules."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "volsched"


def default_url() -> str:
    return f"sqlite:///{data_directory() / 'volsched.db'}"


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path: what is deleted under it must not depend on where we run")
    return path


def _absolute_directory(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path: whoever verifies has to find the same one")
    return path


def _share(given: Any) -> Any:
    return read_share(given) if isinstance(given, str) else given


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="VOLSCHED_", env_ignore_empty=True)

    database_url: str = Field(
        default_factory=default_url,
        description="The store: `sqlite:///FILE` or `postgresql://USER@HOST/NAME`; `--db` overrides it.",
    )
    redis_url: str | None = Field(
        default=None,
        description="`redis://HOST:PORT/N`, to wake Celery workers; without it processes carry effects out.",
    )
    config: Path | None = Field(
        default=None,
        description="The scheduler's configuration file; `--config` overrides it. Else profile `volsched`.",
    )
    scheduler_share: Annotated[Share, NoDecode, BeforeValidator(_share)] = Field(
        default=ALL, description="`2/4`: the second of four schedulers, which begins with its own pods."
    )
    lease_seconds: float = Field(
        default=30, gt=0, description="How long a worker may take for a batch before another takes it over."
    )
    event_ttl_seconds: float = Field(
        default=3_600, gt=0, description="How long Kubernetes events (`kubectl get events`) are kept."
    )
    """As long as in Kubernetes: all of them are in the memory of every process that follows the log."""
    command_ttl_seconds: float = Field(default=7 * 86_400, gt=0)
    done_ttl_seconds: float = Field(default=30 * 86_400, gt=0)
    requests_per_second: float = Field(default=1_000, ge=0)
    body_bytes_per_second: float = Field(default=16 * 2**20, ge=0)
    most_watches: int = Field(default=5_000, ge=1)
    most_watches_per_caller: int = Field(default=1_000, ge=1)
    most_waiting_bytes: int = Field(default=256 * 2**20, ge=1)
    most_body_bytes: int = Field(default=3 * 2**20, ge=1)
    hypothesis_seconds: float = Field(default=30, gt=0)
    long_seconds: float = Field(default=600, gt=0)
    header_seconds: float = Field(default=10, gt=0)
    body_seconds: float = Field(default=30, gt=0)
    keep_alive_seconds: float = Field(default=75, gt=0)
    disable_zonal_upgrade: bool = False
    host_path_root: Annotated[Path, AfterValidator(_absolute)] | None = None
    heartbeat_file: Path | None = None
    instance: str = Field(default_factory=socket.gethostname)
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    client_ca_file: Path | None = None
    anchor_directory: Annotated[Path, AfterValidator(_absolute_directory)] | None = None
    anchor_command: str | None = None
    anchor_seconds: float = Field(default=300, gt=0)
    anchor_key_file: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_files(cls, given: dict[str, Any]) -> dict[str, Any]:
        return given | _in_files(set(cls.model_fields), set(given))


def _in_files(names: set[str], given: set[str]) -> dict[str, str]:
    """What `VOLSCHED_…_FILE` variables name, read; a newline at the end is the editor's."""
    found, problems = dict[str, str](), list[str]()
    for name in sorted(names):
        variable = f"VOLSCHED_{name.upper()}_FILE"
        path = os.environ.get(variable)
        if not path:
            continue
        if name in given:
            problems.append(f"{variable}: VOLSCHED_{name.upper()} is set too; unset one of them")
            continue
        try:
            found[name] = Path(path).read_text().removesuffix("\n")
        except OSError as error:
            problems.append(f"{variable}: {path} cannot be read ({error.strerror}); check path and permissions")
    if problems:
        raise ConfigurationError(problems)
    return found


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


def configuration(given: Path | None = None) -> "Configuration":
    """What the scheduler is to do: the file that `--config` names, else the settings', else nothing special.

    Raises ConfigurationError with every mistake in the file.
    """
    # Here and not above: most who read settings decide nothing, and need neither rules nor YAML.
    from volsched.kube.documents import read_documents
    from volsched.scheduling.rules.configuration import Configuration, configure

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


def installed_plugin(name: str) -> "Plugin | None":
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
