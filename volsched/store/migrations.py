"""Bringing a database to the tables of this program, by Alembic alone and on both engines alike."""

from pathlib import Path

from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from alembic import command
from volsched.store.database import Database

_PACKAGED = Path(__file__).parents[1] / "migrations"
_CHECKOUT = Path(__file__).parents[2] / "alembic"


def migrate(database: Database, *, to: str = "head") -> None:
    """Upgrade to a revision; all of it happens in one transaction or not at all."""
    with database.migrating() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)


def downgrade(database: Database, *, to: str) -> None:
    with database.migrating() as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.downgrade(config, to)


def revision(database: Database) -> str | None:
    """The revision the database is at, None if it was never migrated."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest() -> str:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def is_known(revision: str) -> bool:
    """Whether this program has the revision; one that it has not was written by a newer program."""
    return revision in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config() -> Config:
    """Migrations lie at the top of a checkout, and inside the package in a wheel."""
    config = Config()
    config.set_main_option("script_location", str(_PACKAGED if _PACKAGED.is_dir() else _CHECKOUT))
    return config
