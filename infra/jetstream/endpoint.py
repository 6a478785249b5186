"""Where a JetStream server is and how to log in."""

import ssl
from typing import Any

import msgspec


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """
    Where a JetStream server is and how to log in. Secrets do not appear in its `repr`.

    Args:
        urls: One or several `nats://host:port`, without credentials.
        token, user, password, credentials_path, nkeys_seed_path: Whichever the server asks for.
        tls: The context for TLS and mutual TLS.
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

    def __repr__(self) -> str:
        return f"Endpoint({', '.join(self.urls)})"

    def connect_options(self) -> dict[str, Any]:
        """The keyword arguments of `nats.connect` that say where and who."""
        options = {
            "token": self.token,
            "user": self.user,
            "password": self.password,
            "user_credentials": self.credentials_path,
            "nkeys_seed": self.nkeys_seed_path,
            "tls": self.tls,
        }
        return {"servers": list(self.urls), **{name: value for name, value in options.items() if value is not None}}
