"""Certificates of the rig: one CA that signs the serving certificate and one client certificate per user.

Kubernetes reads a client certificate's common name as the user and its organizations as the groups, so a test makes a
user of any name and groups by asking for its kubeconfig. Keys are P-256 (fast to make: about 1 ms each); only the
service account key is RSA, because the API server signs tokens with it as RS256 by default.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=30)  # longer than any run of the rig; it is made anew at each start
SKEW = dt.timedelta(days=1)  # valid since yesterday: a container's clock may differ from its host's

# 10.0.0.1 is the first address of the service range, under which pods know the API server.
SERVING_NAMES = ("127.0.0.1", "10.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Pair(NamedTuple):
    """Paths of a certificate and of its private key, both PEM."""

    certificate: Path
    key: Path


def _key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


class Pki:
    """A certificate authority that keeps its files in ``folder`` (created when absent)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = folder / "ca.crt"
        self.service_account_key = folder / "sa.key"
        self.service_account_public = folder / "sa.pub"
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self._ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rig-ca")])
        self._ca = self._sign(self._ca_name, self._ca_key, ca=True)
        self.ca_file.write_bytes(self._ca.public_bytes(serialization.Encoding.PEM))
        service_account = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_secret(self.service_account_key, _key_pem(service_account))
        self.service_account_public.write_bytes(
            service_account.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        self.serving = self._issue("serving", "kube-apiserver", (), SERVING_NAMES)

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """The client certificate of ``user`` in ``groups``; made at the first request, the same files afterwards."""
        # Users may hold ":" and "/"; the digest keeps file names plain and tells equal names with other groups apart.
        digest = hashlib.sha256(json.dumps([user, list(groups)]).encode()).hexdigest()[:12]
        plain = "".join(c if c.isalnum() or c in "-." else "-" for c in user)[:40]
        stem = f"client-{plain}-{digest}"
        pair = Pair(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        return pair if pair.certificate.exists() else self._issue(stem, user, groups, ())

    def kubeconfig(self, server: str, user: str, groups: Sequence[str] = ()) -> Path:
        """A self-contained kubeconfig (JSON, which is YAML) of ``user`` for the API server at URL ``server``."""
        pair = self.client(user, groups)
        port = server.rsplit(":", 1)[-1].strip("/")
        path = self.folder / f"{pair.certificate.stem}-{port}.kubeconfig"

        def data(file: Path) -> str:
            return base64.b64encode(file.read_bytes()).decode()

        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rig",
            "clusters": [
                {"name": "rig", "cluster": {"server": server, "certificate-authority-data": data(self.ca_file)}}
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": data(pair.certificate),
                        "client-key-data": data(pair.key),
                    },
                }
            ],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user}}],
        }
        _write_secret(path, json.dumps(document, indent=1).encode())
        return path

    def _issue(self, stem: str, name: str, groups: Sequence[str], names: Sequence[str]) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        )
        certificate = self._sign(subject, key, names=names)
        pair = Pair(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        _write_secret(pair.key, _key_pem(key))
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return pair

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, names: Sequence[str] = (), ca: bool = False
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        authority = self._ca_key.public_key()
        # Key usages and key identifiers are there because Python >= 3.13 verifies strictly and refuses without them.
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    key_cert_sign=ca,
                    crl_sign=ca,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )
        if not ca:
            usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            alternatives: list[x509.GeneralName] = [
                x509.IPAddress(ipaddress.ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(self._ca_key, hashes.SHA256())
