"""Anchors: positions of the log, kept outside the store, signed with Ed25519 keys that are outside it too."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, select

from volsched.log import tables
from volsched.log.base import read_base
from volsched.log.batch import Head
from volsched.log.database import Database
from volsched.log.dialects import dialect_of
from volsched.log.durable_files import PRIVATE, sync_directory, written_aside
from volsched.log.errors import BrokenLogError, Finding, StoreError
from volsched.log.events.envelope import link
from volsched.log.integrity.replay import NOT_LINKED, read_seals
from volsched.log.reads.tail import event
from volsched.runtime.extras import missing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


# Ed25519 keys for anchors. The private key is kept outside the store, the public key by the verifier.
#
# `cryptography` is imported when a key is used: verifying without one does not need it.

PUBLIC = 0o644
NAME_DIGITS = 16


class KeyFileError(StoreError):
    """A file does not hold the expected key, or cannot be written."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    key: "Ed25519PublicKey"

    @property
    def name(self) -> str:
        """The name by which people tell keys apart."""
        return hashlib.sha256(self.key.public_bytes_raw()).hexdigest()[:NAME_DIGITS]

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    key: "Ed25519PrivateKey"

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key.public_key())

    @property
    def name(self) -> str:
        return self.public.name

    def sign(self, message: bytes) -> bytes:
        return self.key.sign(message)


def make_keys(private: Path, public: Path) -> PublicKey:
    """Write a new pair; an existing file is never replaced: its signatures could no longer be checked."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError as error:
        raise _not_installed(error) from None
    key_pair = PrivateKey(Ed25519PrivateKey.generate())
    pem = serialization.Encoding.PEM
    secret = key_pair.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    shown = key_pair.public.key.public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for path in (private, public):
        if path.exists():
            raise KeyFileError(f"{path} exists already and is not replaced; name another file")
    for path, content, mode in ((private, secret, PRIVATE), (public, shown, PUBLIC)):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
                out.write(content)
        except OSError as error:
            raise KeyFileError(f"{path} cannot be written: {error.strerror}; name another file") from None
    return key_pair.public


def read_private_key(path: Path) -> PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError as error:
        raise _not_installed(error) from None
    try:
        key = load_pem_private_key(_content(path), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} is not a private key of volsched anchor keygen")
    return PrivateKey(key)


def read_public_key(path: Path) -> PublicKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ModuleNotFoundError as error:
        raise _not_installed(error) from None
    try:
        key = load_pem_public_key(_content(path))
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path} is not a public key of volsched anchor keygen")
    return PublicKey(key)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KeyFileError(
            f"{path} cannot be read: {error.strerror}; check the path and its permissions"
        ) from None


def _not_installed(error: ModuleNotFoundError) -> KeyFileError:
    return KeyFileError(missing(error.name, "server"))


# A process that can write the database can rewrite the log so that it verifies. It cannot rewrite an anchor that
# left the machine, and cannot sign another without the key. So an anchor proves the log up to its position, and
# nothing more.

NAME = "anchor-{position:019d}.json"
PATTERN = "anchor-*.json"
WRITTEN = "anchor"
FAILED = "anchor-failed"
"""Names of checkpoints: the last automatic anchor, and a later one that could not be written."""
NOT_ONE = "this is not an anchor; give a file that was written by verify --write-anchor or by export"
REWRITTEN = "the log was rewritten at or before the anchor"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A position of the log, kept outside the store: rewriting or truncating the log does not change it."""

    position: int
    hash: bytes
    at: int
    signature: bytes | None = None
    key: str | None = None
    """The name of the public key that verifies its signature."""

    def dump(self) -> str:
        document: dict[str, Any] = {"position": self.position, "hash": self.hash.hex(), "at": self.at}
        if self.signature is not None:
            document |= {"key": self.key, "signature": self.signature.hex()}
        return json.dumps(document) + "\n"

    def signed(self, key: PrivateKey) -> "Anchor":
        return replace(self, signature=key.sign(self._message()), key=key.name)

    def is_signed_by(self, key: PublicKey) -> bool:
        return self.signature is not None and key.has_signed(self._message(), self.signature)

    def _message(self) -> bytes:
        """Everything an anchor states; the first line separates it from other messages signed with the key."""
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
    """Write an anchor to a file of its own; all or nothing, and an existing file is never replaced.

    StoreError where the existing one differs: the log was rewritten since.
    """
    path = directory / NAME.format(position=anchor.position)
    with written_aside(path) as aside:
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
    return path


def check_since(connection: Connection, anchor: Anchor, head: Head) -> None:
    """Whether the log still holds an anchor and continues from it to its head without a gap; else BrokenLogError.

    A log that was rewritten since the last anchor must not be signed. Behind archived events it begins at the
    base.
    """
    base = read_base(connection)
    place = Head(anchor.position, anchor.hash, anchor.at)
    if place.position < base.position:
        place = base
    logged = base.hash if place.position == base.position else _hash_of(connection, place.position)
    if logged != place.hash:
        raise BrokenLogError(Finding(problem=REWRITTEN, position=place.position, expected=place.hash, got=logged))
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
    """Record for all processes that an anchor was written (which ends a failure) or could not be written."""
    kept, row = tables.checkpoints, (WRITTEN if written else FAILED, head.position, head.hash, now)
    with database.write_beside_log() as connection:
        database.dialect.upsert(connection, kept, [row])
        if written:
            connection.execute(delete(kept).where(kept.c.name == FAILED))


@dataclass(frozen=True, slots=True)
class AnchorNotes:
    """The state of the automatic anchors."""

    position: int
    at: int
    """When the last anchor was written; 0 if there is none."""
    failing: bool
    """An anchor could not be written, and none was written since."""


def anchor_notes(connection: Connection) -> AnchorNotes | None:
    """None where automatic anchors were never enabled."""
    kept = tables.checkpoints
    query = select(kept.c.name, kept.c.position, kept.c.at).where(kept.c.name.in_((WRITTEN, FAILED)))
    rows = {name: (position, at) for name, position, at in connection.execute(query)}
    if not rows:
        return None
    position, at = rows.get(WRITTEN, (0, 0))
    return AnchorNotes(position, at, FAILED in rows)


def check_signatures(anchors: Mapping[str, Anchor], key: PublicKey) -> Iterator[Finding]:
    """Anchors, by their display names, that were not signed with the key."""
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
