"""A self-signed certificate for trying the page from another device: browsers allow the microphone on secure pages
only."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAYS = 397
"""The longest validity that browsers accept."""

_RENEW_DAYS = 7

_UNUSED_ADDRESS = "192.0.2.1"
"""Reserved for documentation (RFC 5737)."""


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for this machine's names and addresses. It is kept in `folder`, so that a browser needs
    to accept it only once.

    Returns:
        Paths of the certificate and its key.
    """
    certificate, key = folder / "self-signed.pem", folder / "self-signed.key"
    names = _names()
    if certificate.exists() and key.exists() and _is_valid(certificate, names):
        return certificate, key
    folder.mkdir(parents=True, exist_ok=True)
    private = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rejoinder")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS - 1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    key.touch(mode=0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def addresses() -> list[str]:
    """This machine's IPv4 address as other devices see it, or an empty list."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_UNUSED_ADDRESS, 9))  # sends nothing: only tells which address the kernel would send from
        except OSError:
            return []
        address = str(probe.getsockname()[0])
    return [] if address.startswith("127.") else [address]


def _names() -> list[x509.GeneralName]:
    hosts = [x509.DNSName(name) for name in sorted({"localhost", socket.gethostname()})]
    return [*hosts, *(x509.IPAddress(ipaddress.ip_address(address)) for address in ["127.0.0.1", *addresses()])]


def _is_valid(path: Path, names: list[x509.GeneralName]) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        certified_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    remaining = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return remaining.days > _RENEW_DAYS and list(certified_names) == names
