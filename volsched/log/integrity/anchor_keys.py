"""Ed25519 keys for anchors. The private one lies outside of the store, the public one with whoever verifies.

`cryptography` is imported when a key is used: who verifies without one does not need it.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volsched.log.durable_files import PRIVATE
from volsched.log.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PUBLIC = 0o644
NAME_DIGITS = 16


class KeyFileError(StoreError):
    """A file is not the key that it should be, or cannot be written."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    key: "Ed25519PublicKey"

    @property
    def name(self) -> str:
        """By which people tell keys apart."""
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
    """Write a new pair; a file that is there is never replaced: what was signed with it could not be checked."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError as error:
        raise _not_installed(error) from None
    made = PrivateKey(Ed25519PrivateKey.generate())
    pem = serialization.Encoding.PEM
    secret = made.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    shown = made.public.key.public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    for path in (private, public):
        if path.exists():
            raise KeyFileError(f"{path} exists already and is not replaced; name another file")
    for path, content, mode in ((private, secret, PRIVATE), (public, shown, PUBLIC)):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
                out.write(content)
        except OSError as error:
            raise KeyFileError(f"{path} cannot be written: {error.strerror}; name another file") from None
    return made.public


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
    return KeyFileError(f"{error.name} is not installed; run: pip install 'volsched[server]'")
