"""The server's side of TLS: what it proves itself with, and whose certificates it believes."""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from volsched.api.access.hosts import Hosts

NEW_ONE = "volsched certs server HOST… issues one"


class TlsError(Exception):
    """The server cannot prove who it is; the message names the file and the remedy."""


@dataclass(frozen=True, slots=True)
class Tls:
    context: ssl.SSLContext
    hosts: Hosts
    client_certificates: bool
    """Whether there is an authority whose certificates are believed."""


def load_tls(certificate: Path, key: Path, client_ca: Path | None = None) -> Tls:
    """Raises TlsError. Files that are replaced later are read at the next start."""
    hosts = _hosts(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password instead of a question on the terminal, which nobody may be looking at.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise TlsError(
            f"{key}: cannot be used with {certificate} ({_why(error)}); give its private key, unencrypted, "
            "with --tls-key"
        ) from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(
                f"{client_ca}: cannot be read as certificates ({_why(error)}); give a file in PEM with --client-ca"
            ) from None
        # Optional in the handshake: who has a token needs none, and who has neither is told so by a Status.
        context.verify_mode = ssl.CERT_OPTIONAL
    return Tls(context, hosts, client_ca is not None)


def _hosts(certificate: Path) -> Hosts:
    try:
        (found, *_) = x509.load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise TlsError(
            f"{certificate}: cannot be read as a certificate ({_why(error)}); give one in PEM with --tls-cert; "
            f"{NEW_ONE}"
        ) from None
    if found.not_valid_after_utc <= datetime.now(UTC):
        raise TlsError(f"{certificate}: ran out on {found.not_valid_after_utc:%Y-%m-%d}; {NEW_ONE}")
    try:
        named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise TlsError(f"{certificate}: names no host (subjectAltName); {NEW_ONE}") from None
    names = frozenset(it.lower() for it in named.get_values_for_type(x509.DNSName))
    addresses = frozenset(
        it
        for it in named.get_values_for_type(x509.IPAddress)
        if isinstance(it, ipaddress.IPv4Address | ipaddress.IPv6Address)
    )
    return Hosts(names, addresses)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no such file").lower().replace("_", " ")
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
