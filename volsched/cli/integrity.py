"""`volsched migrate`, `rebuild`, `replay`: the tables of a store, and the log folded again."""

import time
from collections import Counter
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from volsched.cli.console import Output, OutputOption, print_json, stdout
from volsched.cli.remote.server_choice import refuse_server
from volsched.cli.store_option import Db, bar, explained, opened, position_of
from volsched.log.base import read_base
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import noun_and_key
from volsched.log.integrity.rebuild import rebuild as rebuild_views
from volsched.log.integrity.replay import fold_log
from volsched.log.reads.tail import read_head
from volsched.log.store import migrate_store
from volsched.runtime.settings import data_directory, database_url, default_url

MIGRATE_EXAMPLES = """
Examples:

volsched migrate

volsched migrate --db postgresql://volsched@db.example/volsched
"""
REBUILD_EXAMPLES = """
Examples:

volsched rebuild

volsched rebuild --db store.db -o json
"""
REPLAY_EXAMPLES = """
Examples:

volsched replay

volsched replay --until 120000

volsched replay --until 2025-11-16T22:00:00Z -o json
"""


def migrate(db: Db = None) -> None:
    """Make the store, or bring its tables to those of this program. Data is kept; run it again at any time."""
    refuse_server(db)
    url = database_url(db)
    if url == default_url():
        # Ours to make; a directory that a person named is not.
        data_directory().mkdir(parents=True, exist_ok=True)
    with explained():
        before, after = migrate_store(url)
    done = "was already at" if before == after else "is now at"
    stdout.print(f"the store {done} revision {after}")


def rebuild(db: Db = None, output: OutputOption = Output.table) -> None:
    """Make the views what the log says, row by row, while writers go on. The log itself is never touched.

    Exit 5, with nothing changed, where the log does not verify.
    """
    with opened(db) as database, bar("Folding", last_position(database)) as progress:
        repair = rebuild_views(database, progress=progress)
    if output is Output.json:
        print_json({"position": repair.position, "repaired": [it.as_json() for it in repair.findings]})
        return
    for finding in repair.findings:
        stdout.print(escape(f"repaired {finding}"))
    stdout.print(f"the views are what the log says at position {repair.position}; {len(repair.findings)} repairs")


def replay(
    until: Annotated[
        str | None, typer.Option(metavar="POSITION|TIME", help="Stop after this position or time (ISO 8601).")
    ] = None,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Fold the log in memory, checking its chain, and show what there was then. Recorded results are applied;
    nothing is decided again and nothing is written.
    """
    with opened(db) as database:
        last = position_of(database, until)
        with database.read() as connection, bar("Folding", last) as progress:
            started = time.perf_counter()
            folded = fold_log(connection, until=last, progress=progress)
            seconds = time.perf_counter() - started
            events = folded.head.position - read_base(connection).position
    kinds = _counts(folded.states)
    told = {
        "position": folded.head.position,
        "hash": folded.head.hash.hex(),
        "events": events,
        "seconds": round(seconds, 3),
        "eventsPerSecond": round(events / seconds),
        "kinds": kinds,
    }
    if output is Output.json:
        print_json(told)
        return
    table = Table("kind", box=None, pad_edge=False)
    for name in ("there", "gone"):
        table.add_column(name, justify="right")
    for noun, count in kinds.items():
        table.add_row(noun, str(count["there"]), str(count["gone"]))
    stdout.print(table)
    stdout.print(
        "{events} events in {seconds} s ({eventsPerSecond}/s); position {position}, last hash {hash}".format(
            **told
        )
    )


def last_position(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position


def _counts(states: dict[str, State]) -> dict[str, dict[str, int]]:
    """Per kind of stream: how many there are, and how many objects were deleted."""
    counts: Counter[tuple[str, bool]] = Counter()
    for stream, state in states.items():
        counts[noun_and_key(stream)[0], isinstance(state, ObjectState) and state.manifest is None] += 1
    nouns = sorted({noun for noun, _ in counts})
    return {noun: {"there": counts[noun, False], "gone": counts[noun, True]} for noun in nouns}
