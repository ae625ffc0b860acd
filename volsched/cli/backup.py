"""`volsched backup`, `restore`: all of a store in one file, and a store of such a file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout
from volsched.cli.files import lines_of
from volsched.cli.store_option import Db, bar, explained, now_us, opened
from volsched.log.reads.tail import read_head
from volsched.log.retention.backup import Backup, back_up, check_backup
from volsched.log.retention.restore import restore as restore_store
from volsched.log.store import migrate_store
from volsched.runtime.clock import rfc3339
from volsched.runtime.settings import database_url

BACKUP_EXAMPLES = """**Examples**

`volsched backup /mnt/backups/monday.jsonl.gz` while everything runs

`volsched backup --check /mnt/backups/monday.jsonl.gz` reads it again, without any store
"""
RESTORE_EXAMPLES = """**Examples**

`volsched restore monday.jsonl.gz --db new.db`, then `volsched recover --db new.db`

`volsched restore monday.jsonl.gz --db postgresql://volsched@db.example/volsched` also where it was on SQLite
"""


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; compressed if it ends in .gz.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only prove a file that is there; no store is needed.")
    ] = False,
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Write the log and the work beside it, of one moment, to a file that proves itself. Writers go on meanwhile.

    The file gets its name when it is complete, on disk and read back; an existing one is never replaced. Its first
    line is an anchor. Exit 5 where the log does not verify, or the file that is checked is not what was written.
    """
    if check:
        with explained(str(file)):
            made = check_backup(lines_of(str(file)))
    else:
        if file.exists():
            fail(Exit.USAGE, f"{file} exists already, and a backup replaces nothing; name another file")
        with opened(db, str(file)) as database:
            with database.read() as connection:
                last = read_head(connection).position
            with bar("Backing up", last) as progress:
                made = back_up(database, out=file, now=now_us(), progress=progress)
    _tell(file, made, "is whole" if check else "is written", output)


def restore(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What backup wrote; '-' is standard input.")],
    db: Db = None,
    output: OutputOption = Output.table,
) -> None:
    """Make an empty store into what a backup holds, views included; all of it or nothing.

    Tables are made where there are none. A store that holds anything is refused. Everything is proven on the way:
    exit 5 where the file is not what was written. Then run `volsched recover`, and start the processes.
    """
    lines = lines_of(file)
    with explained():
        migrate_store(database_url(db))
    with opened(db, file) as database, bar("Restoring", None) as progress:
        made = restore_store(database, lines, progress=progress)
    _tell(Path(file), made, "is restored", output)
    if output is Output.table:
        stdout.print("next: volsched recover, then start the processes; what happened since is not in it")


def _tell(file: Path, made: Backup, done: str, output: Output) -> None:
    if output is Output.json:
        told = {"file": str(file), "position": made.head.position, "hash": made.head.hash.hex(), "rows": made.rows}
        print_json(told | {"takenAt": rfc3339(made.taken_at)})
        return
    events = made.rows.get("events", 0)
    stdout.print(
        f"{escape(str(file))} {done}: {events} events up to position {made.head.position}, "
        f"taken {rfc3339(made.taken_at)}; last hash {made.head.hash.hex()}"
    )
