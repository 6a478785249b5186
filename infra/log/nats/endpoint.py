"""Endpoints: the addresses of JetStream servers and the login."""

import ssl
from itertools import pairwise
from typing import Any, Final

import msgspec
from nats.aio.client import RawCredentials

from .errors import LoginRefusedError

INBOX: Final = "_INBOX"
_TLS_SCHEMES: Final = ("tls", "wss")


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
    tls: ssl.SSLContext | None = None
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

    def connect_options(self) -> dict[str, Any]:
        """
        The keyword arguments of `nats.connect` that say where and who.

        Raises:
            LoginRefusedError: A file with credentials cannot be read, or holds none.
        """
        options = {
            "token": self.token,
            "user": self.user,
            "password": self.password,
            "user_credentials": None if self.credentials_path is None else read_credentials(self.credentials_path),
            "nkeys_seed_str": None if self.nkeys_seed_path is None else read_seed(self.nkeys_seed_path),
            "tls": self.tls,
            "tls_handshake_first": self.tls_first or None,
            "inbox_prefix": self.inbox_prefix,
        }
        return {"servers": list(self.urls), **{name: value for name, value in options.items() if value is not None}}


def read_credentials(path: str) -> RawCredentials:
    """
    The content of a `.creds` file, checked: nats-py would look for its beginning for ever, and block the event loop.

    Raises:
        LoginRefusedError: It cannot be read, or is no such file.
    """
    text = _read(path, "credentials")
    lines = [line.strip() for line in text.splitlines()]
    token = _after(lines, "BEGIN NATS USER JWT")
    seed = _after(lines, "BEGIN USER NKEY SEED")
    if token.count(".") != 2 or not seed:
        msg = f"{path} is no file of credentials: expected a user's token and its seed, as `nsc generate creds` writes them"
        raise LoginRefusedError(msg)
    _check_seed(seed, path)
    return RawCredentials(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def read_seed(path: str) -> str:
    """The seed in a file, as `nk -gen user` prints it. Raises `LoginRefusedError` when it cannot be read, or holds no seed of a user."""
    lines = [line.strip() for line in _read(path, "seed of an nkey").splitlines()]
    seeds = [line for line in lines if line and not line.startswith("#")]
    seed = seeds[0] if len(seeds) == 1 else _after(lines, "BEGIN USER NKEY SEED")
    _check_seed(seed, path)
    return seed


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


def _check_seed(seed: str, path: str) -> None:
    try:
        import nkeys
    except ImportError as error:
        msg = "to log in with an nkey or with credentials, run: pip install 'chatledger[nkeys]'"
        raise LoginRefusedError(msg) from error
    try:
        if not seed.startswith("SU"):
            raise nkeys.ErrInvalidSeed
        untyped: Any = nkeys
        untyped.from_seed(bytearray(seed.encode())).wipe()
    except (nkeys.NkeysError, ValueError) as error:
        msg = f"{path} holds no seed of a user; it has one line that begins with SU"
        raise LoginRefusedError(msg) from error
