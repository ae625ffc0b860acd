"""The versions that this program reads and writes: the format of the log, and the revisions of the tables.

Uses neither Alembic nor SQLAlchemy: every command imports this module, and either package takes longer to load
than most commands take to run.
"""

from functools import cache
from pathlib import Path

FORMAT = 2
"""The format that this program reads and writes; a store declares which formats may do so.
Format 2 may have packed data (`log.phrases`)."""
_PACKAGED = Path(__file__).parents[1] / "migrations"
_CHECKOUT = Path(__file__).parents[2] / "alembic"


def scripts() -> Path:
    """Migrations are at the top of a checkout, and inside the package in a wheel."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


@cache
def revision_ids() -> tuple[str, ...]:
    """The revisions in order; a file is named after its revision: `0003_what_the_audit_asks.py`."""
    files = (scripts() / "versions").glob("[0-9]*_*.py")
    return tuple(sorted(file.name.partition("_")[0] for file in files))


def newest() -> str:
    return revision_ids()[-1]


def is_older(revision: str) -> bool:
    """Whether a revision is older than this program's; an unknown one is newer."""
    return revision in revision_ids() and revision != newest()
