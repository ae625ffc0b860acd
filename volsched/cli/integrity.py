"""`volsched migrate`, `rebuild`, `replay`, `verify`, `anchor`: the tables of a store, and the proof of its log."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from rich.table import Table

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout
from volsched.cli.manifest_input import lines_of, output_file
from volsched.cli.moment_option import local_time
from volsched.cli.progress import progress_bar
from volsched.cli.question_command import client_of, declared, parameters_for
from volsched.cli.remote.server_choice import chosen_server, refuse_server
from volsched.cli.store_option import Db, explained, opened, position_of
from volsched.log.base import read_base
from volsched.log.database import Database, open_database
from volsched.log.errors import Finding, StoreError
from volsched.log.events.fold import ObjectState, State
from volsched.log.events.streams import noun_and_key
from volsched.log.integrity.anchors import (
    Anchor,
    KeyFileError,
    anchors_in,
    check_signatures,
    make_keys,
    parse_anchor,
    read_private_key,
    read_public_key,
)
from volsched.log.integrity.replay import fold_log
from volsched.log.integrity.verify import rebuild as rebuild_views
from volsched.log.reads.tail import read_head
from volsched.log.service_roles import grant_service_roles, role_of
from volsched.log.store import migrate_store
from volsched.questions.registry import question
from volsched.runtime.settings import database_url, read_settings
from volsched.runtime.user_files import default_url

MIGRATE_EXAMPLES = """
Examples:

volsched migrate

volsched migrate --db postgresql://volsched@db.example/volsched

volsched migrate --roles roles.txt   # PostgreSQL: a role per service, each with the rights that its work needs
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


def migrate(
    db: Db = None,
    roles: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="PostgreSQL: create a role per line `SERVICE PASSWORD`, and grant its rights."
        ),
    ] = None,
) -> None:
    """Create the store, or upgrade its tables to this version. Data is kept; it can be run again at any time."""
    refuse_server(db)
    with explained():
        url = database_url(db)
        passwords = _passwords(roles) if roles else {}
        # Only the default directory is created; one that a person named is not.
        before, after = migrate_store(url, make_directory=url == default_url())
        if passwords:
            with closing(open_database(url)) as database:
                grant_service_roles(database, passwords)
    done = "was already at" if before == after else "is now at"
    stdout.print(f"the store {done} revision {after}")
    for service in passwords:
        stdout.print(f"role {role_of(service)} has the rights of the {service}")


def _passwords(file: Path) -> dict[str, str]:
    try:
        lines = [line.split() for line in file.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}; name a file that can") from None
    for number, words in enumerate(lines, 1):
        if len(words) != 2:
            # The line may hold a password and is not printed.
            raise StoreError(f"{file}, line {number}: write a service and its password, separated by a space")
    return {words[0]: words[1] for words in lines}


def rebuild(db: Db = None, output: OutputOption = Output.table) -> None:
    """Rebuild the views from the log, row by row, while writers go on. The log itself is never changed.

    Exit 5, with nothing changed, if the log does not verify.
    """
    with opened(db) as database, progress_bar("Folding", last_position(database)) as progress:
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
    """Fold the log in memory, checking its chain, and show what existed then. Recorded results are applied;
    nothing is decided again and nothing is written.
    """
    with opened(db) as database:
        last = position_of(database, until)
        with database.read() as connection, progress_bar("Folding", last) as progress:
            started = time.perf_counter()
            folded = fold_log(connection, until=last, progress=progress)
            seconds = time.perf_counter() - started
            events = folded.head.position - read_base(connection).position
    kinds = _counts(folded.states)
    summary = {
        "position": folded.head.position,
        "hash": folded.head.hash.hex(),
        "events": events,
        "seconds": round(seconds, 3),
        "eventsPerSecond": round(events / seconds),
        "kinds": kinds,
    }
    if output is Output.json:
        print_json(summary)
        return
    table = Table("kind", box=None, pad_edge=False)
    for name in ("there", "gone"):
        table.add_column(name, justify="right")
    for noun, count in kinds.items():
        table.add_row(noun, str(count["there"]), str(count["gone"]))
    stdout.print(table)
    stdout.print(
        "{events} events in {seconds} s ({eventsPerSecond}/s); position {position}, last hash {hash}".format(
            **summary
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


# `volsched verify`: is the log unchanged, and which part of it could have been rewritten?

SHOWN = 20
MOST_SENT = 1_000
"""At most so many anchors, the newest, are sent to a server."""
VERIFICATION = question("verify")
VERIFY_EXAMPLES = VERIFICATION.examples
UNPROVEN = (
    "nothing outside the database proves this log: anyone who can write the database could have rewritten all of "
    "it; see --anchor"
)
REST = "events after it could have been rewritten by anyone who can write the database"
BY = {
    "verified": "a signed anchor",
    "unchecked": "an anchor whose signature was not checked, see --public-key",
    "none": "an anchor or archive that is not signed",
}


@declared(VERIFICATION)
def verify(
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Every anchor must be signed with this key.")
    ] = None,
    archive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Prove archived events too: every archive, the oldest first; may be repeated."
        ),
    ] = None,
    write_anchor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an anchor if all is well; keep it elsewhere.")
    ] = None,
    db: Db = None,
    output: OutputOption = Output.table,
    **words: Any,
) -> None:
    if public_key is not None and not words["anchor"]:
        fail(Exit.USAGE, "--public-key needs --anchor FILE or DIR: there is nothing else that is signed")
    anchors = _read_anchors(Path(words["anchor"])) if words["anchor"] else {}
    unsigned = [] if public_key is None else _signature_findings(anchors, public_key)
    sorted_anchors = sorted(anchors.values(), key=lambda it: it.position)
    served = chosen_server(db) is not None
    if served and (archive or write_anchor is not None):
        fail(Exit.USAGE, "--archive and --write-anchor need the store itself; run it there, without --server")
    lines = tuple(it.dump() for it in (sorted_anchors[-MOST_SENT:] if served else sorted_anchors))
    with client_of(db, archives=archive or (), bar="Verifying") as client:
        answer = client.document(VERIFICATION, parameters_for(VERIFICATION.name, anchors=lines))
    report = answer.document
    if report["ok"] and not unsigned and write_anchor is not None:
        line = _sign(Anchor(report["position"], bytes.fromhex(report["hash"]), answer.moment)).dump()
        with output_file(str(write_anchor)) as out:
            out.write(line)
    if (proven := report.get("proven")) is not None:
        proven["signature"] = _signature(proven["position"], sorted_anchors, public_key is not None)
    report["ok"] = report["ok"] and not unsigned
    report["findings"] = [it.as_json() for it in unsigned] + report["findings"]
    if output is Output.json:
        print_json(report)
    elif report["ok"]:
        _print_verified(report)
    if not report["ok"]:
        _fail(report)


def _read_anchors(path: Path) -> dict[str, Anchor]:
    """The anchors of a file or a directory, by the names of their files."""
    files = anchors_in(path) if path.is_dir() else [path]
    if not files:
        fail(Exit.USAGE, f"{path} holds no anchors (anchor-….json)")
    anchors: dict[str, Anchor] = {}
    for file in files:
        with explained(str(file)):
            try:
                anchors[file.name] = parse_anchor(next(lines_of(str(file)), ""))
            except StoreError as error:
                raise StoreError(f"{file}: {error}" if path.is_dir() else str(error)) from None
    return anchors


def _signature_findings(anchors: dict[str, Anchor], public_key: Path) -> list[Finding]:
    """Findings about signatures. Anchors without a valid one prove nothing and are removed."""
    try:
        key = read_public_key(public_key)
    except KeyFileError as error:
        fail(Exit.USAGE, f"--public-key: {error}")
    findings = list(check_signatures(anchors, key))
    for name in [name for name, it in anchors.items() if not it.is_signed_by(key)]:
        del anchors[name]
    return findings


def _signature(position: int, anchors: Sequence[Anchor], checked: bool) -> str:
    """Whether the anchor at a position is signed. The end of an archive has a position too, but no signature."""
    if not any(it.position == position and it.signature is not None for it in anchors):
        return "none"
    return "verified" if checked else "unchecked"


def _sign(anchor: Anchor) -> Anchor:
    with explained():
        path = read_settings().anchor_key_file
        return anchor if path is None else anchor.signed(read_private_key(path))


def _fail(report: dict[str, Any]) -> NoReturn:
    findings = [Finding(**it) for it in report["findings"]]
    left = len(findings) - SHOWN + report["more"]
    messages = [str(it) for it in findings[:SHOWN]]
    if left > 0:
        messages.append(f"and {left} more; see them with -o json")
    if report.get("proven") is not None:
        messages.append(_proven(report["proven"]))
    fail(Exit.INTEGRITY, *messages)


def _print_verified(report: dict[str, Any]) -> None:
    after, redacted = report["after"], report["redacted"]
    count, behind = report["position"] - after, f" after position {after}" if after else ""
    stdout.print(f"{count} events{behind} in {report['streams']} streams verified; last hash {report['hash']}")
    if redacted:
        stdout.print(f"{len(redacted)} of them were redacted, as the log says: {ranges(redacted)}")
    for gap in report.get("gaps", ()):
        stdout.print(escape(f"not proven: {gap}"))
    if after:
        files = escape("; ".join(report["archives"]))
        stdout.print(
            f"positions 1 to {after} are archived and were not looked at: prove them with --archive ({files})"
        )
    proven = report.get("proven")
    stdout.print(escape(UNPROVEN if proven is None else _proven(proven)))


def _proven(proven: dict[str, Any]) -> str:
    when = local_time(proven["at"])
    return f"proven up to position {proven['position']} ({when}) by {BY[proven['signature']]}; {REST}"


def ranges(positions: Sequence[int]) -> str:
    """`1-3, 7, 9-12`; of many only the first."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        runs[-1:] = (
            [(runs[-1][0], position)]
            if runs and runs[-1][1] == position - 1
            else [*runs[-1:], (position, position)]
        )
    texts = [f"{first}-{last}" if first < last else str(first) for first, last in runs[:SHOWN]]
    return ", ".join(texts) + (", …" if len(runs) > SHOWN else "")


# `volsched anchor`: the keys that anchors of the log are signed with.

ANCHOR_EXAMPLES = """**Examples**

`volsched anchor keygen anchor.key anchor.pub` creates a key for `VOLSCHED_ANCHOR_KEY_FILE` and its public half

`volsched verify --anchor /mnt/anchors --public-key anchor.pub` checks all anchors of a directory
"""

app = typer.Typer(no_args_is_help=True, help="Anchors prove where the log stood: create the keys that sign them.")


@app.callback()
def _family() -> None:
    """Keeps a family of one command."""


@app.command("keygen", no_args_is_help=True, epilog=ANCHOR_EXAMPLES)
def keygen(
    private: Annotated[Path, typer.Argument(metavar="PRIVATE", help="New file for the private key, which signs.")],
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="New file for the public key, which verifies.")],
) -> None:
    """Create an Ed25519 key. PRIVATE belongs to the machine that signs, never into the database or its backups.

    An existing file is not replaced. Exit 2 if a file cannot be written.
    """
    try:
        key = make_keys(private, public)
    except KeyFileError as error:
        fail(Exit.USAGE, str(error))
    stdout.print(escape(f"key {key.name}: {private} signs (VOLSCHED_ANCHOR_KEY_FILE), {public} verifies"))
