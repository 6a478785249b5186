"""
Locations, keys and logins for programs that open a ledger by what somebody typed.

Keys and logins come from the environment: every user of the machine can read the arguments of a command line. What asking a server
needs is imported when one is asked, so that a command on a directory starts without it.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from chatledger.domain.errors import ConfigurationError
from chatledger.projections.lmdb.environment import absolute_path

from ..store.opening import DEFAULT_LOCATION, KEY_ENV, STREAM
from ..store.opening.presence import POSTGRES_SCHEMES, has_ledger, require_ledger

if TYPE_CHECKING:
    from chatledger.domain.search.embedding import Embedding

    from ..log.nats.endpoint import Login
    from ..store.opening.encryption import Encryption
    from .aio.async_ledger import AsyncLedger
    from .ledger import Ledger
if TYPE_CHECKING:
    from ..log.nats.endpoint import Login


__all__ = [
    "DEFAULT_LOCATION",
    "KEY_ENV",
    "absolute_path",
    "has_ledger",
    "is_on_nats",
    "require_answer",
    "require_ledger",
]

NEW_KEY_ENV: Final = "CHATLEDGER_NEW_ENCRYPTION_KEY"
_ON_NATS: Final = ("nats://", "tls://")


def is_on_nats(location: str) -> bool:
    return location.startswith(_ON_NATS)


def require_answer(location: str, login: "Login | None") -> None:
    """Raise `LogUnavailableError` within 3 s where a location is on servers that do not answer."""
    if location.partition("://")[0] in POSTGRES_SCHEMES:
        has_ledger(location)  # it is what raises; whether there is a ledger does not matter here
    elif is_on_nats(location):
        from ..log.nats.client import require_jetstream
        from ..store.opening.nats_locations import read_place

        place = read_place(location, stream=STREAM, login=login, replicas=None)
        require_jetstream(place.connect, place.stream)


def keys_given() -> "Encryption | None":
    """Return the encryption keys in the environment, `CHATLEDGER_ENCRYPTION_KEY`; None when it is not set."""
    if KEY_ENV not in os.environ:
        return None
    from ..store.opening.encryption import Encryption

    return Encryption.from_environment()


def new_keys_given() -> "Encryption":
    """Return the encryption keys in `CHATLEDGER_NEW_ENCRYPTION_KEY`. Raises `ConfigurationError` where it is not set."""
    from ..store.opening.encryption import Encryption

    if not os.environ.get(NEW_KEY_ENV, "").strip():
        msg = f"{NEW_KEY_ENV} is not set; it holds the new key as 'id:base64', which chatledger.Encryption.new_key() makes"
        raise ConfigurationError(msg)
    return Encryption.from_environment(NEW_KEY_ENV)


def login_for(location: str) -> "Login | None":
    """Return the login in the environment, see `Login.from_environment`; None where the location is not on a NATS server."""
    if not is_on_nats(location):
        return None
    from ..log.nats.endpoint import Login

    return Login.from_environment()


def secret_patterns() -> Callable[[str], str]:
    """Return what takes keys and tokens out of a text, see `secrets`; its library is imported here."""
    from ..store.secret_patterns import secrets

    return secrets()


def open_given(
    location: str, *, create: bool = False, embed: "Embedding | None" = None, redact: Callable[[str], str] | None = None
) -> "Ledger":
    """
    Open a ledger with the keys and the login in the environment.

    Args:
        location: Of the ledger.
        create: Whether its stream on a NATS server is made when it is absent.
        embed: As of `chatledger.open`.
        redact: As of `chatledger.open`.

    Raises:
        ChatledgerError: As `chatledger.open`.
    """
    from .open import open as open_ledger

    return open_ledger(
        location,
        create=create or None,
        encryption=keys_given(),
        login=login_for(location),
        embed=embed,
        redact=redact,
    )


def open_given_async(
    location: str, *, create: bool = False, embed: "Embedding | None" = None, redact: Callable[[str], str] | None = None
) -> "AsyncLedger":
    """Return the same ledger for asyncio; it opens on first use."""
    from .aio.async_ledger import AsyncLedger
    from .open import without_secrets

    return AsyncLedger(
        partial(open_given, location, create=create, embed=embed, redact=redact), without_secrets(location)
    )
