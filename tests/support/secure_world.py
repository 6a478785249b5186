"""Certificates, keys and servers that ask for them, for the tests of logins."""

import base64
import contextlib
import json
import time
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import nkeys
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.support.jetstream_world import eventually, nats_server, url_of

DAY = timedelta(days=1)


class Authority:
    """Signs certificates, and writes them into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _certificate(self._name, self._name, self._key.public_key(), DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
        self.file = folder / f"{name}.pem"
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(self._identifier, critical=False)
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, host: str = "127.0.0.1", lasts: timedelta = DAY) -> tuple[Path, Path]:
        """The files of a certificate and its key; `lasts` below 0 is one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate(_named(name), self._name, key.public_key(), lasts)
        address: x509.GeneralName = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = builder.add_extension(identifier, critical=False)
        certificate, secret = self._folder / f"{name}-cert.pem", self._folder / f"{name}-key.pem"
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        secret.chmod(0o600)
        return certificate, secret


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - 3 * DAY).not_valid_after(now + lasts)


class Nkey:
    """A key pair of the kind that nats-server knows, made from text, so that it is always the same."""

    def __init__(self, text: str, prefix: int) -> None:
        untyped: Any = nkeys
        self.seed: bytes = bytes(untyped.encode_seed(sha256(text.encode()).digest(), prefix)).rstrip(b"=")
        pair = untyped.from_seed(bytearray(self.seed))
        self.public: str = pair.public_key.decode()
        self._sign = pair.sign

    def sign(self, text: str) -> str:
        return _base64(self._sign(text.encode()))


def user_key(text: str) -> Nkey:
    return Nkey(text, nkeys.PREFIX_BYTE_USER)


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed_token(name: str, subject: Nkey, issuer: Nkey, claims: dict[str, object], *, lasts_s: float = 3600) -> str:
    """A token of NATS: what the issuer says of the subject."""
    body = {
        "jti": name,
        "iat": int(time.time()) - 7200,
        "exp": int(time.time() + lasts_s),
        "iss": issuer.public,
        "sub": subject.public,
        "name": name,
        "nats": {"version": 2, **claims},
    }
    header = _base64(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    signed = f"{header}.{_base64(json.dumps(body).encode())}"
    return f"{signed}.{issuer.sign(signed)}"


class Operated:
    """An operator with an account for us and one for the system; users log in with files of credentials."""

    def __init__(self) -> None:
        self.operator = Nkey("operator", nkeys.PREFIX_BYTE_OPERATOR)
        self.account = Nkey("account", nkeys.PREFIX_BYTE_ACCOUNT)
        self.system = Nkey("system", nkeys.PREFIX_BYTE_ACCOUNT)
        limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1}
        storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1, "leaf": -1}
        self._account_token = signed_token(
            "app", self.account, self.operator, {"type": "account", "limits": {**limits, **storage}}
        )
        self._system_token = signed_token("sys", self.system, self.operator, {"type": "account", "limits": limits})

    @property
    def configuration(self) -> str:
        operator = signed_token("op", self.operator, self.operator, {"type": "operator"})
        return (
            f"operator: {operator}\nresolver: MEMORY\nsystem_account: {self.system.public}\n"
            f"resolver_preload {{\n{self.account.public}: {self._account_token}\n"
            f"{self.system.public}: {self._system_token}\n}}\n"
        )

    def credentials(self, path: Path, *, lasts_s: float = 3600, seed: bytes | None = None) -> Path:
        """The file of a user's credentials; with the seed of somebody else, for one that does not fit."""
        user = user_key("user")
        claims: dict[str, object] = {"type": "user", "subs": -1, "data": -1, "payload": -1}
        token = signed_token("app-user", user, self.account, claims, lasts_s=lasts_s)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{(seed or user.seed).decode()}\n------END USER NKEY SEED------\n"
        )
        path.chmod(0o600)
        return path


@contextlib.contextmanager
def serving(base: Path, configuration: str, *, host: str = "127.0.0.1") -> Generator[str]:
    """A server with JetStream that has this configuration besides; yields `host:port`."""
    base.mkdir(parents=True, exist_ok=True)
    file = base / "nats.conf"
    file.write_text(
        f'host: {host}\nport: -1\nserver_name: test\njetstream {{ store_dir: "{base / "js"}" }}\n{configuration}\n'
    )
    process = nats_server(file)
    try:

        def address() -> str:
            assert process.poll() is None, (base / "server.log").read_text()
            return (url_of(process, base) or "").partition("://")[2]

        yield eventually(address)
    finally:
        process.terminate()
        process.wait(30)
