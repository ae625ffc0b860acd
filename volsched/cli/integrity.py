"""`volsched migrate`, `verify`, `rebuild`, `replay`: is the store what it says it is?"""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout
from volsched.cli.files import lines_of, written
from volsched.cli.remote.paths import own
from volsched.cli.remote.server_choice import chosen_server, refuse_server
from volsched.cli.store_option import Db, bar, explained, opened, position_of
from volsched.log.base import read_base
from volsched.log.database import Database
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import noun_and_key
from volsched.log.integrity.findings import Finding
from volsched.log.integrity.rebuild import rebuild as rebuild_views
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import Anchor, parse_anchor
from volsched.log.integrity.verify import verify as verify_store
from volsched.log.reads.tail import read_head
from volsched.log.store import migrate_store
from volsched.questions.audit.verification import verified
from volsched.runtime.settings import data_directory, database_url, default_url

SHOWN = 20
MIGRATE_EXAMPLES = """
Examples:

volsched migrate

volsched migrate --db postgresql://volsched@db.example/volsched
"""
VERIFY_EXAMPLES = """
Examples:

volsched verify

volsched verify --write-anchor /mnt/elsewhere/anchor.json

volsched verify --anchor /mnt/elsewhere/anchor.json -o json

volsched verify --archive 2024.jsonl.gz --archive 2025.jsonl.gz
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


def verify(
    anchor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The log must still hold what this anchor or export says.")
    ] = None,
    archive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Prove archived events too: every archive, the oldest first; can be repeated."
        ),
    ] = None,
    write_anchor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an anchor if all is well; keep it elsewhere.")
    ] = None,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Prove that the log is whole and unchanged and that the views are what it says.

    Nothing is repaired; writers may go on. A log that was cut or rewritten together with its head row is only
    found with an anchor from before. Where events were archived, the proof begins behind them, or with the first
    there ever was if the archives are given. Exit 5 with the position, or table, key and column, of what is wrong.
    """
    wanted = None if anchor is None else _read_anchor(anchor)
    names, server = archive or [], chosen_server(db)
    if server is not None:
        if archive or write_anchor is not None:
            fail(Exit.USAGE, "--archive and --write-anchor need the store itself; run it there, without --server")
        told = server.ask("POST", own("verify"), body={} if wanted is None else {"anchor": wanted.dump()})
    else:
        with opened(db, *names) as database, bar("Verifying", _last(database)) as progress:
            report = verify_store(database, anchor=wanted, archives=[*map(lines_of, names)], progress=progress)
        told, head = verified(report), report.head
        if report.ok and write_anchor is not None:
            with written(str(write_anchor)) as out:
                out.write(Anchor(head.position, head.hash, head.at).dump())
    if output is Output.json:
        print_json(told)
    elif told["ok"]:
        _print_verified(told)
    if not told["ok"]:
        _fail([Finding(**it) for it in told["findings"]], told["more"])


def rebuild(db: Db = None, output: OutputOption = Output.table) -> None:
    """Make the views what the log says, row by row, while writers go on. The log itself is never touched.

    Exit 5, with nothing changed, where the log does not verify.
    """
    with opened(db) as database, bar("Folding", _last(database)) as progress:
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


def _fail(findings: list[Finding], more: int) -> NoReturn:
    left = len(findings) - SHOWN + more
    messages = [str(it) for it in findings[:SHOWN]]
    if left > 0:
        messages.append(f"and {left} more; see them with -o json")
    fail(Exit.INTEGRITY, *messages)


def _print_verified(told: dict[str, Any]) -> None:
    after, redacted = told["after"], told["redacted"]
    count, behind = told["position"] - after, f" after position {after}" if after else ""
    stdout.print(f"{count} events{behind} in {told['streams']} streams verified; last hash {told['hash']}")
    if redacted:
        stdout.print(f"{len(redacted)} of them were redacted, as the log says: {ranges(redacted)}")
    if after:
        files = escape("; ".join(told["archives"]))
        stdout.print(
            f"positions 1 to {after} are archived and were not looked at: prove them with --archive ({files})"
        )


def ranges(positions: Sequence[int]) -> str:
    """`1-3, 7, 9-12`; of many only the first."""
    runs: list[tuple[int, int]] = []
    for it in positions:
        runs[-1:] = [(runs[-1][0], it)] if runs and runs[-1][1] == it - 1 else [*runs[-1:], (it, it)]
    told = [f"{first}-{last}" if first < last else str(first) for first, last in runs[:SHOWN]]
    return ", ".join(told) + (", …" if len(runs) > SHOWN else "")


def _last(database: Database) -> int:
    with database.read() as connection:
        return read_head(connection).position


def _counts(states: dict[str, State]) -> dict[str, dict[str, int]]:
    """Per kind of stream: how many there are, and how many objects were deleted."""
    counts: Counter[tuple[str, bool]] = Counter()
    for stream, state in states.items():
        counts[noun_and_key(stream)[0], isinstance(state, ObjectState) and state.manifest is None] += 1
    nouns = sorted({noun for noun, _ in counts})
    return {noun: {"there": counts[noun, False], "gone": counts[noun, True]} for noun in nouns}


def _read_anchor(path: Path) -> Anchor:
    with explained(str(path)):
        return parse_anchor(next(lines_of(str(path)), ""))
