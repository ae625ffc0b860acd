"""TLS: a small certificate authority, the server's certificate, and the client certificates it trusts."""

import ipaddress
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from volsched.api.access.hosts import Hosts
from volsched.api.access.kubeconfig import write_secret

NEW_ONE = "volsched certs server HOST… issues one"


class TlsError(Exception):
    """The server has no usable certificate; the message names the file and the remedy."""


@dataclass(frozen=True, slots=True)
class Tls:
    context: ssl.SSLContext
    hosts: Hosts
    client_certificates: bool
    """Whether there is an authority for client certificates."""


def load_tls(certificate: Path, key: Path, client_ca: Path | None = None) -> Tls:
    """Raises TlsError. Replaced files are read at the next start."""
    hosts = _hosts(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An empty password instead of a prompt on the terminal, which may be unattended.
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
        # Optional in the handshake: a caller with a token needs none, and one with neither gets a Status.
        context.verify_mode = ssl.CERT_OPTIONAL
    return Tls(context, hosts, client_ca is not None)


def _hosts(certificate: Path) -> Hosts:
    try:
        (leaf, *_) = x509.load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise TlsError(
            f"{certificate}: cannot be read as a certificate ({_why(error)}); give one in PEM with --tls-cert; "
            f"{NEW_ONE}"
        ) from None
    if leaf.not_valid_after_utc <= datetime.now(UTC):
        raise TlsError(f"{certificate}: expired on {leaf.not_valid_after_utc:%Y-%m-%d}; {NEW_ONE}")
    try:
        alternative_names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise TlsError(f"{certificate}: names no host (subjectAltName); {NEW_ONE}") from None
    names = frozenset(it.lower() for it in alternative_names.get_values_for_type(x509.DNSName))
    addresses = frozenset(
        it
        for it in alternative_names.get_values_for_type(x509.IPAddress)
        if isinstance(it, ipaddress.IPv4Address | ipaddress.IPv6Address)
    )
    return Hosts(names, addresses)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").lower().replace("_", " ")
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


# A small certificate authority: enough for the servers and clients of one installation.
#
# There is no revocation check. Client certificates are therefore short-lived, and access that must end at once
# should use a token; a lost authority is replaced as a whole (docs/security.md).

CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CA_DAYS = 3650
BACKDATED = timedelta(minutes=5)
"""Certificates are valid from so long ago, for clients whose clocks are slow."""


class AuthorityError(Exception):
    """There is no authority, or one exists already; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Issued:
    certificate: bytes
    key: bytes
    """Both in PEM."""


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def for_server(self, hosts: Sequence[str], *, lasts: timedelta) -> Issued:
        """A server certificate for these names and addresses."""
        alternative_names = x509.SubjectAlternativeName([_general_name(it) for it in hosts])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
        return self._issue(subject, lasts, ExtendedKeyUsageOID.SERVER_AUTH, alternative_names)

    def for_client(self, name: str, organizations: Collection[str], *, lasts: timedelta) -> Issued:
        """A client certificate for a user with the roles in `organizations`."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, it) for it in organizations]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(subject, lasts, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        lasts: timedelta,
        use: x509.ObjectIdentifier,
        alternative_names: x509.SubjectAlternativeName | None,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        # Not longer than the authority itself: a certificate that outlives it is trusted by no client.
        until = min(datetime.now(UTC) + lasts, self.certificate.not_valid_after_utc)
        builder = _builder(subject, self.certificate.subject, key, until)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        if alternative_names is not None:
            builder = builder.add_extension(alternative_names, critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        return Issued(signed.public_bytes(serialization.Encoding.PEM), _pem_of(key))


def make_authority(directory: Path) -> Authority:
    """Create one in the directory; raises AuthorityError where one exists."""
    if (directory / CA_KEY).exists() or (directory / CA_CERTIFICATE).exists():
        raise AuthorityError(
            f"{directory} holds an authority already; its certificates would no longer be trusted. "
            "Choose another directory with --dir, or move the old one away"
        )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "volsched")])
    builder = _builder(name, name, key, datetime.now(UTC) + timedelta(days=CA_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_SIGNS, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    authority = Authority(builder.sign(key, hashes.SHA256()), key)
    write_secret(directory / CA_KEY, _pem_of(key))
    (directory / CA_CERTIFICATE).write_bytes(authority.pem)
    return authority


def load_authority(directory: Path) -> Authority:
    try:
        certificate = x509.load_pem_x509_certificate((directory / CA_CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((directory / CA_KEY).read_bytes(), password=None)
    except FileNotFoundError as error:
        raise AuthorityError(
            f"{error.filename} does not exist; create an authority with: volsched certs init --dir {directory}"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise AuthorityError(f"the authority in {directory} cannot be read: {error}; restore its files") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AuthorityError(
            f"{directory / CA_KEY} is no elliptic-curve key; issue certificates with the tool that created it"
        )
    return Authority(certificate, key)


_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - BACKDATED)
        .not_valid_after(until)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
