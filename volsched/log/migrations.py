"""Bringing a database to the tables of this program, by Alembic alone and on both engines alike."""

from alembic.config import Config

from alembic import command
from volsched.log.database import Database
from volsched.log.revisions import scripts


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


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()))
    return config
