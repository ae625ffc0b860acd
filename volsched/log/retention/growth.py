"""What grows with the work, and what limits it: the table of docs/retention.md, as this store stands."""

from dataclasses import dataclass

from sqlalchemy import Column, Connection, Table, func, select

from volsched.log import tables

POLICY = "by retention apply --keep"
BY_ITSELF = "expires by itself (VOLSCHED_{name}_TTL_SECONDS)"
FOREVER = "for ever"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    name: str
    rows: int
    oldest: int | None
    """In microseconds; None where rows do not say."""
    kept: str


def retained(connection: Connection) -> list[Retained]:
    def of(name: str, table: Table, at: Column[int] | None, kept: str) -> Retained:
        asked = select(func.count(), func.min(table.c[at.name]) if at is not None else func.max(None))
        rows, oldest = connection.execute(asked.select_from(table)).one()
        return Retained(name=name, rows=rows, oldest=oldest, kept=kept)

    it = tables
    return [
        of("events of the log", it.events, it.events.c.at, POLICY),
        of("states at the base", it.snapshots, None, "as long as the log"),
        of("Kubernetes events", it.notices, None, BY_ITSELF.format(name="EVENT")),
        of("results of commands", it.commands, it.commands.c.at, BY_ITSELF.format(name="COMMAND")),
        of("finished effects", it.effects_done, it.effects_done.c.done_at, BY_ITSELF.format(name="DONE")),
        of("queued effects", it.effects, None, "until done or cancelled"),
        of("bindings", it.bindings, it.bindings.c.planned_at, FOREVER),
        of("attempts", it.attempts, it.attempts.c.first_at, FOREVER),
    ]
