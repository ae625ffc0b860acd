"""Runs migrations on the connection that `volsched migrate` gives; there is no other way to run them."""

from alembic import context
from volsched.log.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
