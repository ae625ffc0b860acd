"""Settings: where the store is and whether there is a Redis. From the environment; `--db` overrides.

| variable | default | meaning |
|---|---|---|
| `VOLSCHED_DATABASE_URL` | SQLite, in the user's data directory | `sqlite:///FILE` or `postgresql://HOST/NAME` |
| `VOLSCHED_REDIS_URL` | none: workers run inside the process | `redis://HOST:PORT/N` |
| `VOLSCHED_LEASE_SECONDS` | 30 | how long a worker may take for a batch before another takes it over |
"""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def data_directory() -> Path:
    """Where a user's programs keep data, by the XDG rules: a relative XDG_DATA_HOME does not count."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "volsched"


def default_url() -> str:
    return f"sqlite:///{data_directory() / 'volsched.db'}"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="VOLSCHED_")

    database_url: str = Field(default_factory=default_url)
    redis_url: str | None = None
    lease_seconds: float = Field(default=30, gt=0)


def database_url(given: str | None) -> str:
    """The URL of the store: what `--db` says, else the settings. A bare path is an SQLite file."""
    if given is None:
        return Settings().database_url
    return given if "://" in given else f"sqlite:///{given}"
