"""The places of a user's files: the default store, and caches.

Separate from the settings, whose library takes longer to load than `volsched get` takes to answer.
"""

import os
from pathlib import Path

BESIDE_SETTINGS = frozenset(
    {
        "VOLSCHED_DATABASE_URL",
        "VOLSCHED_SERVER",
        "VOLSCHED_TOKEN_FILE",
        "VOLSCHED_CA_FILE",
        "VOLSCHED_TRACEBACK",
    }
)
"""The variables that locate the store or server; the command line reads all of them itself."""


def _home() -> Path:
    """The home directory. A user without one, such as a service's, gets an error on the first write there."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def data_directory() -> Path:
    """The user's data directory, by the XDG rules: a relative XDG_DATA_HOME does not count."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else _home() / ".local" / "share") / "volsched"


def cache_directory() -> Path:
    """The user's cache directory, by the same rules."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else _home() / ".cache") / "volsched"


def default_url() -> str:
    return f"sqlite:///{data_directory() / 'volsched.db'}"


def url_of(db: str) -> str:
    """The URL of a store as `--db` names it: a bare path is an SQLite file."""
    return db if "://" in db else f"sqlite:///{db}"


def plain_file(db: str | None) -> Path | None:
    """The SQLite file of a command's store; None: only the settings, or a server, can tell.

    None also for any other setting in the environment: all settings are then read and checked, so that a wrong one
    is reported.
    """
    given = {name.upper(): value for name, value in os.environ.items() if value}
    if any(name.startswith("VOLSCHED_") and name not in BESIDE_SETTINGS for name in given):
        return None
    url = given.get("VOLSCHED_DATABASE_URL", default_url()) if db is None else url_of(db)
    scheme, _, path = url.partition(":///")
    is_plain = scheme == "sqlite" and path and not path.startswith((":", "file:")) and not set(path) & set("?%#")
    return Path(path) if is_plain else None
