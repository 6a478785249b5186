"""`Login`: how to log in at a NATS server, and what is trusted."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from eventsourcing.persistence import InterfaceError

from chatledger.domain.errors import ConfigurationError, LogRefusedError

from .endpoint import INBOX, Endpoint

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

    def _tls(self) -> ssl.SSLContext | None:
        if self.tls_ca is None and self.tls_cert is None:
            return None
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
