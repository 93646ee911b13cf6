"""Makes certificates of a test's own authority: valid, expired, or for another name."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """Signs certificates; `certificate` is the PEM file that peers trust."""

    folder: Path
    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate(self) -> Path:
        return self.folder / "authority.pem"

    def issue(
        self, name: str, *, address: str = "127.0.0.1", expired: bool = False
    ) -> tuple[Path, Path]:
        """A certificate for an IP address, and its key, as PEM files."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = _now() - DAY if expired else _now() + DAY
        certificate = (
            _builder(_named(name), self.name, key, end)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), False
            )
            .sign(self.key, hashes.SHA256())
        )
        paths = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(_pem(key))
        return paths


def authority(folder: Path) -> Authority:
    """A new authority whose files are below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    key, name = ec.generate_private_key(ec.SECP256R1()), _named("authority")
    certificate = (
        _builder(name, name, key, _now() + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    made = Authority(folder, name, key)
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - 10 * DAY)
        .not_valid_after(end)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
