"""Endpoints: the addresses of JetStream servers, and `Login`: how to log in there, and what is trusted."""

import base64
import os
from binascii import crc_hqx
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from eventsourcing.persistence import InterfaceError

from chatledger.domain.errors import ConfigurationError, LogRefusedError

from .errors import LoginRefusedError

if TYPE_CHECKING:
    import ssl

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

INBOX: Final = "_INBOX"
_TLS_SCHEMES: Final = ("tls", "wss")
_USER: Final = bytes([20 << 3])
"""How the public key of a user begins, so that its text begins with U."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """
    The addresses of JetStream servers and the login. Secrets do not appear in its `repr`.

    Args:
        urls: One or several `nats://host:port`, without credentials.
        token, user, password, credentials_path, nkeys_seed_path: Whichever the server asks for.
        tls: The context for TLS and mutual TLS. With one, or with `tls://`, nothing is sent without TLS.
        tls_first: The handshake comes before the server says anything; it must be configured so too.
        inbox_prefix: What the subjects of replies begin with.
        server_name: The name that the server must give itself; a mismatch means that another server took its port.
    """

    urls: tuple[str, ...]
    token: str | None = None
    user: str | None = None
    password: str | None = None
    credentials_path: str | None = None
    nkeys_seed_path: str | None = None
    tls: "ssl.SSLContext | None" = None
    server_name: str | None = None
    tls_first: bool = False
    inbox_prefix: str = INBOX

    def __repr__(self) -> str:
        return f"Endpoint({', '.join(self.urls)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields that tracebacks of `rich` show: no secrets either."""
        return [("urls", self.urls)]

    @property
    def needs_tls(self) -> bool:
        """Whether a connection without TLS must not be used."""
        return self.tls is not None or self.tls_first or self.urls[0].partition("://")[0] in _TLS_SCHEMES

    def at(self, url: str) -> "Endpoint":
        """Return the endpoint of one of the servers alone."""
        return msgspec.structs.replace(self, urls=(url,))

    def user_key(self) -> "UserKey | None":
        """
        The key that signs what a server asks; None where there is another login.

        Raises:
            LoginRefusedError: A file cannot be read, or holds none.
        """
        if self.credentials_path is not None:
            lines = [line.strip() for line in _read(self.credentials_path, "credentials").splitlines()]
            token = _after(lines, "BEGIN NATS USER JWT")
            seed = _after(lines, "BEGIN USER NKEY SEED")
            if token.count(".") != 2 or not seed:
                msg = f"{self.credentials_path} is no file of credentials: expected a user's token and its seed, as `nsc generate creds` writes them"
                raise LoginRefusedError(msg)
            return UserKey(_key_of(seed, self.credentials_path).key, {"jwt": token})
        return None if self.nkeys_seed_path is None else read_seed(self.nkeys_seed_path)

    def connect_options(self) -> dict[str, Any]:
        """The keyword arguments of `nats.connect` that say where and who, but for keys: those sign what a server asks."""
        options = {
            "token": self.token,
            "user": self.user,
            "password": self.password,
            "tls": self.tls,
            "tls_handshake_first": self.tls_first or None,
            "inbox_prefix": self.inbox_prefix,
        }
        return {"servers": list(self.urls), **{name: value for name, value in options.items() if value is not None}}


class UserKey(NamedTuple):
    """The Ed25519 key of a user, and what its owner says to be: a token of an account, or else the public key."""

    key: "Ed25519PrivateKey"
    claim: dict[str, str]

    def answer(self, nonce: str) -> dict[str, str]:
        """Return what is said at the login to a server that sent a nonce: options of its `CONNECT`."""
        return self.claim | {"sig": base64.b64encode(self.key.sign(nonce.encode())).decode()}


def read_seed(path: str) -> UserKey:
    """The seed in a file, as `nk -gen user` prints it. Raises `LoginRefusedError` when it cannot be read, or holds no seed of a user."""
    lines = [line.strip() for line in _read(path, "seed of an nkey").splitlines()]
    seeds = [line for line in lines if line and not line.startswith("#")]
    return _key_of(seeds[0] if len(seeds) == 1 else _after(lines, "BEGIN USER NKEY SEED"), path)


def _after(lines: list[str], mark: str) -> str:
    lines_after = [following for line, following in pairwise(lines) if mark in line]
    return lines_after[0] if lines_after else ""


def _read(path: str, what: str) -> str:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - `Path` would refuse nothing else and say less
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        msg = f"the {what} in {path} cannot be read: {reason}"
        raise LoginRefusedError(msg) from None  # the content of a file that is no text would stand in the cause


def _key_of(seed: str, path: str) -> UserKey:
    # Read here: the package `nkeys`, with which nats-py signs, has no wheel, and is refused where only these may be installed.
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        msg = "to log in with an nkey or with credentials, run: pip install 'chatledger[nkeys]'"
        raise LoginRefusedError(msg) from error
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except ValueError:
        raw = b""
    # Two bytes say that it is a seed, and whose; 32 are the key; two are a checksum of those before.
    if not seed.startswith("SU") or len(raw) != 36 or _checksum(raw[:-2]) != raw[-2:]:
        msg = f"{path} holds no seed of a user; it has one line that begins with SU"
        raise LoginRefusedError(msg)
    key = Ed25519PrivateKey.from_private_bytes(raw[2:-2])
    public = _USER + key.public_key().public_bytes_raw()
    return UserKey(key, {"nkey": base64.b32encode(public + _checksum(public)).decode().rstrip("=")})


def _checksum(raw: bytes) -> bytes:
    return crc_hqx(raw, 0).to_bytes(2, "little")


ENV: Final = "CHATLEDGER_"
_SECRET: Final = frozenset({"token", "password"})
_FILES: Final = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key")
_SETTINGS: Final = ("token", "user", "password", *_FILES, "tls_first", "inbox_prefix")

PathText = str | os.PathLike[str]


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """
    The login at a NATS server, where the address alone does not say it. Secrets do not appear in its `repr`.

    Files are read again for each connection, so that certificates and keys can be renewed meanwhile.

    Args:
        token: The token that the server asks for.
        user, password: A user and its password.
        creds: A file with a user's token and seed, as `nsc generate creds` writes them.
        nkey: A file with the seed of an nkey, as `nk -gen user` prints it.
        tls_ca: A file with the certificates of the authorities to trust; those of the system by default.
        tls_cert, tls_key: Files with our certificate and its private key, for servers that verify their clients.
        tls_first: Begin with TLS before the server says anything; servers with `handshake_first` want that.
        inbox_prefix: Where replies come. Servers that keep logins apart let each listen to a prefix of its own.

    Raises:
        ConfigurationError: What is given does not belong together.

    Example:
        chatledger.open("tls://nats.example.com/support", login=Login(creds="support.creds", tls_ca="ca.pem"))
    """

    token: str | None = None
    user: str | None = None
    password: str | None = None
    creds: PathText | None = None
    nkey: PathText | None = None
    tls_ca: PathText | None = None
    tls_cert: PathText | None = None
    tls_key: PathText | None = None
    tls_first: bool = False
    inbox_prefix: str = INBOX

    def __post_init__(self) -> None:
        """Refuse what does not belong together."""
        if (self.user is None) != (self.password is None):
            msg = "user and password of a login belong together; give both, or a token"
            raise ConfigurationError(msg)
        ways = [name for name in ("token", "user", "creds", "nkey") if getattr(self, name) is not None]
        if len(ways) > 1:
            msg = f"a login has one of token, user and password, creds and nkey, not {' and '.join(ways)}"
            raise ConfigurationError(msg)
        if (self.tls_cert is None) != (self.tls_key is None):
            msg = "tls_cert and tls_key belong together; give the certificate and its private key"
            raise ConfigurationError(msg)
        empty = [name for name in _SETTINGS if getattr(self, name) == ""]
        if empty:
            msg = f"{', '.join(empty)} of the login is empty; leave out what the server does not ask for"
            raise ConfigurationError(msg)
        if any(character in " *>\t\r\n" for character in self.inbox_prefix) or self.inbox_prefix.endswith("."):
            msg = f"inbox_prefix must be the beginning of a subject, such as _INBOX_ada, not {self.inbox_prefix!r}"
            raise ConfigurationError(msg)

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> "Login | None":
        """
        The login that `CHATLEDGER_TOKEN`, `_USER`, `_PASSWORD`, `_CREDS`, `_NKEY`, `_TLS_CA`, `_TLS_CERT`, `_TLS_KEY`,
        `_TLS_FIRST` (`yes`) and `_INBOX_PREFIX` give; None when none of them is set.
        """
        variables = os.environ if environment is None else environment
        settings: dict[str, Any] = {}
        for name in _SETTINGS:
            value = variables.get(ENV + name.upper())
            if value:
                settings[name] = value
        if "tls_first" in settings:
            if settings["tls_first"] not in {"yes", "no"}:
                msg = f"{ENV}TLS_FIRST is 'yes' or 'no', not {settings['tls_first']!r}"
                raise ConfigurationError(msg)
            settings["tls_first"] = settings["tls_first"] == "yes"
        return Login(**settings) if settings else None

    def __repr__(self) -> str:
        shown = (f"{name}={'…' if name in _SECRET else repr(value)}" for name, value in self.__rich_repr__())
        return f"Login({', '.join(shown)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The fields that tracebacks of `rich` show: no secrets either."""
        settings = [
            (name, getattr(self, name)) for name in _SETTINGS if getattr(self, name) not in {None, False, INBOX}
        ]
        return [(name, "…" if name in _SECRET else value) for name, value in settings]

    @property
    def says_who(self) -> bool:
        """Whether it names somebody, rather than TLS alone."""
        return any(value is not None for value in (self.token, self.user, self.creds, self.nkey))

    def endpoint(self, urls: tuple[str, ...]) -> Endpoint:
        """
        The servers with this login. Reads certificates.

        Raises:
            LogRefusedError: They cannot be read.
        """
        return Endpoint(
            urls=urls,
            token=self.token,
            user=self.user,
            password=self.password,
            credentials_path=_path(self.creds),
            nkeys_seed_path=_path(self.nkey),
            tls=self._tls(),
            tls_first=self.tls_first,
            inbox_prefix=self.inbox_prefix,
        )

    def _tls(self) -> "ssl.SSLContext | None":
        if self.tls_ca is None and self.tls_cert is None:
            return None
        import ssl

        for name in ("tls_ca", "tls_cert", "tls_key"):
            path = _path(getattr(self, name))
            if path is not None and not os.access(path, os.R_OK):
                msg = f"{name} {path!r} cannot be read; give the path of a PEM file that this process may read"
                raise LogRefusedError(msg)
        try:
            context = ssl.create_default_context(cafile=_path(self.tls_ca))
            if self.tls_cert is not None:
                # An encrypted key would be asked for at the terminal, which a service does not have.
                context.load_cert_chain(str(_path(self.tls_cert)), _path(self.tls_key), password=lambda: b"")
        except OSError as error:  # ssl.SSLError among them
            files = ", ".join(f"{name} {_path(getattr(self, name))!r}" for name in _FILES[2:] if getattr(self, name))
            msg = f"TLS cannot be set up from {files}: {error}. They are PEM files, the key without a passphrase"
            raise LogRefusedError(msg) from error
        return context


def _path(path: PathText | None) -> str | None:
    return None if path is None else str(Path(path).expanduser())


def check_login(endpoint: Endpoint) -> Endpoint:
    """The endpoint itself. Raises `LogRefusedError` where its files with credentials cannot be used."""
    try:
        endpoint.connect_options()
    except InterfaceError as error:
        raise LogRefusedError(str(error)) from error
    return endpoint
