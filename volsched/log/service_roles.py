"""PostgreSQL roles of the stack's services, each with the rights that its work needs and no others.

The owner of the tables migrates, archives and redacts. A service can append events but never change or delete one,
cannot change a table, and reads tokens only if it authenticates callers. SQLite has no roles: its file's mode
decides.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, text

from volsched.log import tables
from volsched.log.database import Database
from volsched.log.errors import StoreError

SERVICES = ("api", "scheduler", "controller", "worker")
_READ, _APPEND, _HEAD, _ALL = "SELECT", "SELECT, INSERT", "SELECT, UPDATE", "SELECT, INSERT, UPDATE, DELETE"
_RIGHTS = {tables.events.name: _APPEND, tables.log_head.name: _HEAD}
"""The rights of all services; a table not named here or below is a view or a queue, which all of them write."""
_OF_THE_API = {tables.tokens.name: _READ, tables.client_leases.name: _ALL}
"""Rights that only the API needs: tokens, and the leases of its clients."""


def role_of(service: str) -> str:
    return f"volsched_{service}"


def rights(service: str) -> dict[str, str]:
    """The service's rights, by table."""
    granted = {name: _RIGHTS.get(name, _ALL) for name in tables.metadata.tables if name not in _OF_THE_API}
    return {**granted, **(_OF_THE_API if service == "api" else {}), "alembic_version": _READ}


def grant_service_roles(database: Database, passwords: Mapping[str, str]) -> None:
    """Create a login role per service with its password, or update an existing role's password and rights.

    Raises StoreError, with nothing changed.
    """
    if database.engine.dialect.name != "postgresql":
        raise StoreError("roles are PostgreSQL's; a SQLite store has none: leave --roles out")
    if unknown := sorted(set(passwords) - set(SERVICES)):
        raise StoreError(f'there is no service "{unknown[0]}" that needs a role; there are {", ".join(SERVICES)}')
    with database.migrating() as connection:
        for service, password in passwords.items():
            _grant(connection, service, password)


def _grant(connection: Connection, service: str, password: str) -> None:
    role = role_of(service)
    known = connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}).scalar()
    # A role's password is part of the statement, which takes no parameters.
    secret = password.replace("'", "''")
    connection.exec_driver_sql(f"{'ALTER' if known else 'CREATE'} ROLE {role} LOGIN PASSWORD '{secret}'")
    # Rights that an earlier version granted and this one does not must not stay.
    connection.exec_driver_sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}")
    for table, granted in rights(service).items():
        connection.exec_driver_sql(f'GRANT {granted} ON "{table}" TO {role}')
