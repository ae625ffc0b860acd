"""Which revisions of the tables there are, and at which a database is.

Read without Alembic: every command begins with it, and Alembic takes longer to load than most of them to run.
"""

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect, text

_PACKAGED = Path(__file__).parents[1] / "migrations"
_CHECKOUT = Path(__file__).parents[2] / "alembic"


def scripts() -> Path:
    """Migrations lie at the top of a checkout, and inside the package in a wheel."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


@cache
def known() -> tuple[str, ...]:
    """In order; a file is named after its revision: `0003_what_the_audit_asks.py`."""
    files = (scripts() / "versions").glob("[0-9]*_*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


def newest() -> str:
    return known()[-1]


def revision_of(connection: Connection) -> str | None:
    """None: it was never migrated."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found
