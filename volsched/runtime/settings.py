"""Settings from the environment: the store, Redis, limits; `--db` overrides.

Each variable is `VOLSCHED_` and the field's name in capitals; `tools/settings.py` generates `docs/settings.md`
from them. Any setting may be in a file instead, `VOLSCHED_DATABASE_URL_FILE=/run/secrets/database_url`: too many
processes can read an environment.
"""

import os
import socket
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from volsched.kube.problems import ConfigurationError, ManifestError
from volsched.runtime.clock import SECOND
from volsched.runtime.log_format import LogFormat, LogLevel
from volsched.runtime.user_files import default_url, url_of
from volsched.scheduling.queue.entry import Share, read_share

if TYPE_CHECKING:
    from volsched.scheduling.plugins.plugin import Plugin
    from volsched.scheduling.rules.configuration import Configuration

EFFECT_LEASE_SECONDS = 30
"""The default lease of an effect."""
ATTACHED_LEASE_SECONDS = 120
"""The default for `attach`. Longer than any call: an earlier takeover would only repeat the effect."""
PLUGINS = "volsched.plugins"
"""The entry point group of third-party plugins: name = a callable that creates the plugin."""


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path: what is deleted under it must not depend on where we run")
    return path


def _absolute_directory(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path: verifiers must find the same directory")
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
        description="`redis://HOST:PORT/N`, to wake Celery workers; without it processes carry out effects.",
    )
    config: Path | None = Field(
        default=None,
        description="The scheduler's configuration file; `--config` overrides it. Else profile `volsched`.",
    )
    scheduler_share: Annotated[Share | None, NoDecode, BeforeValidator(_share)] = Field(
        default=None,
        description="`2/4`: the second of four schedulers, which starts with its own pods; else they agree on it.",
    )
    lease_seconds: float = Field(
        default=EFFECT_LEASE_SECONDS,
        gt=0,
        description="How long a worker may take for a batch before another takes it over; for `attach` and its "
        f"workers, {ATTACHED_LEASE_SECONDS} unless set.",
    )
    stepwise_binding: bool = Field(
        default=False,
        description="Commit each step of a binding by itself, even if one transaction could commit all of them.",
    )
    event_ttl_seconds: float = Field(
        default=3_600, gt=0, description="How long Kubernetes events (`kubectl get events`) are kept."
    )
    """As in Kubernetes. All events are in the memory of every process that follows the log."""
    command_ttl_seconds: float = Field(
        default=7 * 86_400, gt=0, description="How long the result of an idempotent request is kept."
    )
    done_ttl_seconds: float = Field(
        default=30 * 86_400, gt=0, description="How long finished effects of ended bindings are kept."
    )
    requests_per_second: float = Field(
        default=1_000, ge=0, description="Requests of one client of the API; 0 is no limit."
    )
    body_bytes_per_second: float = Field(
        default=16 * 2**20,
        ge=0,
        description="Bytes of the bodies of one client; YAML counts 16 times; 0 is no limit.",
    )
    most_watches: int = Field(default=5_000, ge=1, description="Watches that may be open at a time.")
    most_watches_per_caller: int = Field(default=1_000, ge=1, description="Watches of one authenticated caller.")
    most_waiting_bytes: int = Field(
        default=256 * 2**20,
        ge=1,
        description="Bytes that the watches of one authenticated caller may leave unread, and its other answers.",
    )
    most_body_bytes: int = Field(
        default=3 * 2**20, ge=1, description="Bytes of a request; the extender accepts up to 64 MiB."
    )
    hypothesis_seconds: float = Field(
        default=30, gt=0, description="Time budget of explain and simulate over HTTP."
    )
    long_seconds: float = Field(default=600, gt=0, description="Time budget of verify and export over HTTP.")
    header_seconds: float = Field(default=10, gt=0, description="How long a client may take to send its headers.")
    body_seconds: float = Field(default=30, gt=0, description="How long a client may take to send a body.")
    keep_alive_seconds: float = Field(
        default=75, gt=0, description="How long a connection stays open between two requests."
    )
    disable_zonal_upgrade: bool = Field(
        default=False, description="Do not convert zone and region labels of volumes to node affinity."
    )
    host_path_root: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        default=None,
        description="Where `volsched.io/host-path` creates directories, an absolute path; without it, it is off.",
    )
    heartbeat_file: Path | None = Field(
        default=None,
        description="A file that scheduler, controller and workers touch after each successful step.",
    )
    instance: str = Field(
        default_factory=socket.gethostname,
        description="The name of this process where several run on one machine.",
    )
    tls_cert_file: Path | None = Field(
        default=None, description="The API's certificate (PEM); without it plain http, on loopback only."
    )
    tls_key_file: Path | None = Field(default=None, description="The key of the API's certificate (PEM).")
    client_ca_file: Path | None = Field(
        default=None,
        description="The authority whose client certificates the API accepts; without it tokens only.",
    )
    anchor_directory: Annotated[Path, AfterValidator(_absolute_directory)] | None = Field(
        default=None, description="Where `up` and `serve controller` keep signed anchors of the log, absolute."
    )
    anchor_command: str | None = Field(
        default=None, description="Gets each anchor on its standard input, to send it elsewhere; without a shell."
    )
    anchor_seconds: float = Field(default=300, gt=0, description="Seconds between two anchors.")
    anchor_key_file: Path | None = Field(
        default=None, description="The private key that signs anchors (`volsched anchor keygen`)."
    )

    attached_mode: Literal["own", "gate"] | None = Field(
        default=None,
        description="Workers and `serve scheduler`: how they act on a real cluster, as `--cluster` says.",
    )
    cluster_kubeconfig: Path | None = Field(
        default=None, description="The kubeconfig of that cluster; else the one that kubectl uses."
    )
    cluster_context: str | None = Field(default=None, description="The context in that kubeconfig.")
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="The port of the metrics of `serve scheduler` and `serve controller`, on loopback.",
    )
    log_level: LogLevel | None = Field(
        default=None,
        description="The log level: `debug`, `info`, `warning` or `error`; by default `info` in serving commands.",
    )
    log_format: LogFormat = Field(default=LogFormat.TEXT, description="`text` for people, or `json`, on stderr.")
    slow_transaction_seconds: float = Field(
        default=1.0,
        gt=0,
        description="A transaction that holds the log's lock for longer is logged.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_files(cls, given: dict[str, Any]) -> dict[str, Any]:
        return given | _in_files(set(cls.model_fields), set(given))

    def effect_lease(self, *, attached: bool = False) -> int:
        """The lease of an effect in microseconds. On an attached cluster it covers calls over the network."""
        is_default = attached and "lease_seconds" not in self.model_fields_set
        return int((ATTACHED_LEASE_SECONDS if is_default else self.lease_seconds) * SECOND)


def _in_files(names: set[str], given: set[str]) -> dict[str, str]:
    """The contents of the files that `VOLSCHED_…_FILE` variables name, without the editor's final newline."""
    values, problems = dict[str, str](), list[str]()
    for name in sorted(names):
        variable = f"VOLSCHED_{name.upper()}_FILE"
        path = os.environ.get(variable)
        if not path:
            continue
        if name in given:
            problems.append(f"{variable}: VOLSCHED_{name.upper()} is set too; unset one of them")
            continue
        try:
            values[name] = Path(path).read_text().removesuffix("\n")
        except OSError as error:
            problems.append(f"{variable}: {path} cannot be read ({error.strerror}); check path and permissions")
    if problems:
        raise ConfigurationError(problems)
    return values


def read_settings() -> Settings:
    """The settings of the environment. Raises ConfigurationError with every wrong variable."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [f"VOLSCHED_{'_'.join(map(str, it['loc'])).upper()}: {it['msg']}" for it in error.errors()]
        raise ConfigurationError([it.replace(": Value error, ", ": ", 1) for it in problems]) from None


def database_url(given: str | None, *, otherwise: Callable[[], str] | None = None) -> str:
    """The URL of the store: from `--db`, else the settings, else `otherwise`."""
    if given is not None:
        return url_of(given)
    settings = read_settings()
    if otherwise is not None and "database_url" not in settings.model_fields_set:
        return otherwise()
    return settings.database_url


def configuration(given: Path | None = None) -> "Configuration":
    """The scheduler's configuration: the file of `--config`, else the settings', else the default.

    Raises ConfigurationError with every mistake in the file.
    """
    # Imported here: most readers of settings make no decisions, and need neither rules nor YAML.
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
    """The plugin that an installed distribution offers under the name. Only the named one is imported."""
    offers = list(entry_points(group=PLUGINS, name=name))
    if not offers:
        return None
    if len({offer.value for offer in offers}) > 1:
        values = ", ".join(sorted(offer.value for offer in offers))
        raise ConfigurationError([f"plugin {name}: is offered by {values}; uninstall all but one"])
    try:
        plugin: Plugin = offers[0].load()()
    except Exception as error:
        raise ConfigurationError([f"plugin {name}: {offers[0].value} cannot be loaded: {error!r}"]) from error
    if plugin.name != name:
        raise ConfigurationError([f'plugin {name}: {offers[0].value} calls itself "{plugin.name}"; name it alike'])
    return plugin
