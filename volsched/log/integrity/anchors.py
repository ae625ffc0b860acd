"""Anchors: places of the log, kept outside of the store and signed with a key that is outside of it too.

Whoever can write the database can rewrite the log so that it verifies. They cannot rewrite an anchor that left the
machine, and cannot sign another without the key. So an anchor proves the log up to its place, and nothing more.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, select

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.batch import Head
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.durable_files import PRIVATE, sync_directory
from volsched.log.errors import StoreError
from volsched.log.events.envelope import link
from volsched.log.integrity.anchor_keys import PrivateKey, PublicKey
from volsched.log.integrity.findings import BrokenLogError, Finding
from volsched.log.integrity.seals import read_seals
from volsched.log.reads.tail import event

NAME = "anchor-{position:019d}.json"
PATTERN = "anchor-*.json"
WRITTEN = "anchor"
FAILED = "anchor-failed"
"""Names of checkpoints: the last anchor that was written by itself, and one since then that could not be."""
NOT_ONE = "this is not an anchor; give a file that was written by verify --write-anchor or by export"
REWRITTEN = "the log was rewritten at or before the anchor"
NOT_LINKED = "the event, or the one before, is not what was once written"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in the log, kept outside the store: whoever rewrites or cuts the log cannot rewrite that too."""

    position: int
    hash: bytes
    at: int
    signature: bytes | None = None
    key: str | None = None
    """Which key it was signed with, by the name of the public one."""

    def dump(self) -> str:
        told: dict[str, Any] = {"position": self.position, "hash": self.hash.hex(), "at": self.at}
        if self.signature is not None:
            told |= {"key": self.key, "signature": self.signature.hex()}
        return json.dumps(told) + "\n"

    def signed(self, key: PrivateKey) -> "Anchor":
        return replace(self, signature=key.sign(self._message()), key=key.name)

    def is_signed_by(self, key: PublicKey) -> bool:
        return self.signature is not None and key.has_signed(self._message(), self.signature)

    def _message(self) -> bytes:
        """All that an anchor says; the first line keeps the key's signatures of other things apart."""
        return f"volsched anchor 1\n{self.position}\n{self.hash.hex()}\n{self.at}\n".encode()


def parse_anchor(text: str) -> Anchor:
    """An anchor file, or an export: its first line is the anchor of its last event."""
    try:
        given: dict[str, Any] = json.loads(text.partition("\n")[0])
        position = given["position"] if "position" in given else given["last"]
        signature = given.get("signature")
        return Anchor(
            int(position),
            bytes.fromhex(given["hash"]),
            int(given["at"]),
            None if signature is None else bytes.fromhex(signature),
            given.get("key"),
        )
    except (ValueError, TypeError, KeyError):
        raise StoreError(NOT_ONE) from None


def anchors_in(directory: Path) -> list[Path]:
    """The anchors of a directory, by position."""
    return sorted(path for path in directory.glob(PATTERN) if path.is_file())


def keep_anchor(directory: Path, anchor: Anchor) -> Path:
    """Write an anchor to a file of its own; whole or not at all, and one that is there is never replaced.

    StoreError where the one that is there says something else: the log was another one then.
    """
    path = directory / NAME.format(position=anchor.position)
    aside = directory / f"part-{uuid4().hex[:8]}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(aside, "x", opener=lambda name, flags: os.open(name, flags, PRIVATE)) as out:
            out.write(anchor.dump())
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(aside, path)
        except FileExistsError:
            there = parse_anchor(path.read_text())
            if (there.hash, there.at) != (anchor.hash, anchor.at):
                raise StoreError(
                    f"{path}: {REWRITTEN}; keep that file, and run: volsched verify --anchor"
                ) from None
        sync_directory(directory)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}; check the path, its permissions and the room on the disk"
        ) from error
    finally:
        with suppress(OSError):
            aside.unlink()
    return path


def check_since(connection: Connection, anchor: Anchor, head: Head) -> None:
    """Whether the log still holds an anchor and goes on from it to its head without a break; else BrokenLogError.

    Nobody signs a log that was rewritten since the last time. Behind archived events it begins at the base.
    """
    base = read_base(connection)
    place = Head(anchor.position, anchor.hash, anchor.at)
    if place.position < base.position:
        place = base
    found = base.hash if place.position == base.position else _hash_of(connection, place.position)
    if found != place.hash:
        raise BrokenLogError(Finding(problem=REWRITTEN, position=place.position, expected=place.hash, got=found))
    seals, previous, last = read_seals(connection), place.hash, place.position
    scan = dialect_of(connection.engine).scan(
        connection, tables.events, order="position", after=place.position, until=head.position
    )
    for chunk in scan:
        for row in chunk:
            last += 1
            linked = link(previous, *row[:-1])
            previous = row[-1]
            if row[0] != last or (linked != previous and seals.get(last) != link(previous, *row[:-1])):
                raise BrokenLogError(Finding(problem=NOT_LINKED, position=last))
    if (last, previous) != (head.position, head.hash):
        raise BrokenLogError(Finding(problem="the head is not the log's last event", position=last))


def _hash_of(connection: Connection, position: int) -> bytes | None:
    found = event(connection, position)
    return None if found is None else found.hash


def note_anchor(database: Database, head: Head, *, now: int, written: bool) -> None:
    """Say, for all processes, that an anchor was written, which ends a failure, or that it could not be."""
    kept, row = tables.checkpoints, (WRITTEN if written else FAILED, head.position, head.hash, now)
    with database.write() as connection:
        database.dialect.begin_beside_log(connection)
        database.dialect.upsert(connection, kept, [row])
        if written:
            connection.execute(delete(kept).where(kept.c.name == FAILED))


@dataclass(frozen=True, slots=True)
class AnchorNotes:
    """How the automatic anchors stand."""

    position: int
    at: int
    """When the last was written; 0 where none was yet."""
    failing: bool
    """One could not be written, and none was since."""


def anchor_notes(connection: Connection) -> AnchorNotes | None:
    """None where nobody has asked for automatic anchors yet."""
    kept = tables.checkpoints
    asked = select(kept.c.name, kept.c.position, kept.c.at).where(kept.c.name.in_((WRITTEN, FAILED)))
    rows = {name: (position, at) for name, position, at in connection.execute(asked)}
    if not rows:
        return None
    position, at = rows.get(WRITTEN, (0, 0))
    return AnchorNotes(position, at, FAILED in rows)


def check_signatures(anchors: Mapping[str, Anchor], key: PublicKey) -> Iterator[Finding]:
    """Anchors, by what people know them as, that were not signed with the key."""
    for name, anchor in anchors.items():
        if anchor.signature is None:
            problem = f"the anchor {name} is not signed"
            yield Finding(problem=problem, position=anchor.position)
        elif not anchor.is_signed_by(key):
            other = (
                "" if anchor.key in (None, key.name) else f": it names key {anchor.key}, and {key.name} was given"
            )
            problem = f"the signature of the anchor {name} is wrong{other}"
            yield Finding(problem=problem, position=anchor.position)
