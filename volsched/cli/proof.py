"""`volsched verify`: is the store what it says it is, and since when could somebody have rewritten it?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape

from volsched.cli.console import Exit, Output, OutputOption, fail, print_json, stdout
from volsched.cli.files import lines_of, written
from volsched.cli.integrity import last_position
from volsched.cli.question_client import ServerClient, asked_of
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, bar, explained, opened
from volsched.log.errors import StoreError
from volsched.log.integrity.anchor_keys import KeyFileError, read_private_key, read_public_key
from volsched.log.integrity.anchors import Anchor, anchors_in, check_signatures, parse_anchor
from volsched.log.integrity.findings import Finding
from volsched.log.integrity.verify import verify as verify_store
from volsched.questions.audit.verification import verified
from volsched.runtime.settings import read_settings

SHOWN = 20
MOST_SENT = 1_000
"""Anchors that a server is asked about, the newest."""
EXAMPLES = """
Examples:

volsched verify

volsched verify --write-anchor /mnt/elsewhere/anchor.json

volsched verify --anchor /mnt/elsewhere/anchor.json -o json

volsched verify --anchor /mnt/anchors --public-key anchor.pub

volsched verify --archive 2024.jsonl.gz --archive 2025.jsonl.gz
"""
UNPROVEN = (
    "nothing outside the database proves this log: somebody with the database could have rewritten all of it; "
    "see --anchor"
)
REST = "events after it could have been rewritten by somebody with the database"
BY = {
    "verified": "a signed anchor",
    "unchecked": "an anchor whose signature was not checked, see --public-key",
    "none": "an anchor or archive that is not signed",
}


def verify(
    anchor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR", help="The log must still hold what this anchor, export or directory says."
        ),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Every anchor must be signed with this key.")
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
    """Prove that the log is whole and unchanged, and that views, tokens, leases and results are what it says.

    Nothing is repaired; writers may go on. A log that was cut or rewritten together with its head row is only
    found with an anchor from before; up to which position one proves it is told. Where events were archived, the
    proof begins behind them, or with the first there ever was if the archives are given. --write-anchor signs with
    VOLSCHED_ANCHOR_KEY_FILE where that is set. Exit 5 with the position, or table, key and column, of what is
    wrong, and where an anchor is not signed with --public-key.
    """
    if public_key is not None and anchor is None:
        fail(Exit.USAGE, "--public-key needs --anchor FILE or DIR: there is nothing else that is signed")
    anchors = {} if anchor is None else _read_anchors(anchor)
    unsigned = [] if public_key is None else _without_signature(anchors, public_key)
    names, server = archive or [], chosen_server(db)
    wanted = sorted(anchors.values(), key=lambda it: it.position)
    if server is not None:
        if archive or write_anchor is not None:
            fail(Exit.USAGE, "--archive and --write-anchor need the store itself; run it there, without --server")
        lines = [it.dump() for it in wanted[-MOST_SENT:]]
        told = asked_of(ServerClient(server), "verify", anchors=tuple(lines))
    else:
        with opened(db, *names) as database, bar("Verifying", last_position(database)) as progress:
            report = verify_store(database, anchors=wanted, archives=[*map(lines_of, names)], progress=progress)
        told, head = verified(report), report.head
        if report.ok and not unsigned and write_anchor is not None:
            line = _signed(Anchor(head.position, head.hash, head.at)).dump()
            with written(str(write_anchor)) as out:
                out.write(line)
    if told.get("proven") is not None:
        told["proven"]["signature"] = _signature(told["proven"]["position"], wanted, public_key is not None)
    told["ok"] = told["ok"] and not unsigned
    told["findings"] = [it.as_json() for it in unsigned] + told["findings"]
    if output is Output.json:
        print_json(told)
    elif told["ok"]:
        _print_verified(told)
    if not told["ok"]:
        _fail(told)


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


def _without_signature(anchors: dict[str, Anchor], public_key: Path) -> list[Finding]:
    """What is wrong with signatures; anchors without a right one prove nothing, and are taken out."""
    try:
        key = read_public_key(public_key)
    except KeyFileError as error:
        fail(Exit.USAGE, f"--public-key: {error}")
    findings = list(check_signatures(anchors, key))
    for name in [name for name, it in anchors.items() if not it.is_signed_by(key)]:
        del anchors[name]
    return findings


def _signature(position: int, anchors: Sequence[Anchor], checked: bool) -> str:
    """Of the anchor at a position. The end of an archive is at one too, and nobody signs that."""
    if not any(it.position == position and it.signature is not None for it in anchors):
        return "none"
    return "verified" if checked else "unchecked"


def _signed(anchor: Anchor) -> Anchor:
    with explained():
        path = read_settings().anchor_key_file
        return anchor if path is None else anchor.signed(read_private_key(path))


def _fail(told: dict[str, Any]) -> NoReturn:
    findings = [Finding(**it) for it in told["findings"]]
    left = len(findings) - SHOWN + told["more"]
    messages = [str(it) for it in findings[:SHOWN]]
    if left > 0:
        messages.append(f"and {left} more; see them with -o json")
    if told.get("proven") is not None:
        messages.append(_proven(told["proven"]))
    fail(Exit.INTEGRITY, *messages)


def _print_verified(told: dict[str, Any]) -> None:
    after, redacted = told["after"], told["redacted"]
    count, behind = told["position"] - after, f" after position {after}" if after else ""
    stdout.print(f"{count} events{behind} in {told['streams']} streams verified; last hash {told['hash']}")
    if redacted:
        stdout.print(f"{len(redacted)} of them were redacted, as the log says: {ranges(redacted)}")
    for gap in told.get("gaps", ()):
        stdout.print(escape(f"not proven: {gap}"))
    if after:
        files = escape("; ".join(told["archives"]))
        stdout.print(
            f"positions 1 to {after} are archived and were not looked at: prove them with --archive ({files})"
        )
    proven = told.get("proven")
    stdout.print(escape(UNPROVEN if proven is None else _proven(proven)))


def _proven(proven: dict[str, Any]) -> str:
    return f"proven up to position {proven['position']} ({proven['at']}) by {BY[proven['signature']]}; {REST}"


def ranges(positions: Sequence[int]) -> str:
    """`1-3, 7, 9-12`; of many only the first."""
    runs: list[tuple[int, int]] = []
    for it in positions:
        runs[-1:] = [(runs[-1][0], it)] if runs and runs[-1][1] == it - 1 else [*runs[-1:], (it, it)]
    told = [f"{first}-{last}" if first < last else str(first) for first, last in runs[:SHOWN]]
    return ", ".join(told) + (", …" if len(runs) > SHOWN else "")
