"""Where files of a user are: the store that needs no settings, and caches.

Apart from the settings, whose library takes longer to load than `volsched get` to answer.
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
"""The variables that say where to look; the command line reads all of them itself."""


def _home() -> Path:
    """A user without one, such as that of a service, gets an error when something is to be stored there."""
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
    """As `--db` names a store: a bare path is an SQLite file."""
    return db if "://" in db else f"sqlite:///{db}"


def plain_file(db: str | None) -> Path | None:
    """The SQLite file of the store that a command means; None: that takes the settings, or a server, to say.

    Other settings in the environment are all read and checked, so that a wrong one is reported.
    """
    given = {name.upper(): value for name, value in os.environ.items() if value}
    if any(name.startswith("VOLSCHED_") and name not in BESIDE_SETTINGS for name in given):
        return None
    url = given.get("VOLSCHED_DATABASE_URL", default_url()) if db is None else url_of(db)
    scheme, _, path = url.partition(":///")
    is_plain = scheme == "sqlite" and path and not path.startswith((":", "file:")) and not set(path) & set("?%#")
    return Path(path) if is_plain else None
