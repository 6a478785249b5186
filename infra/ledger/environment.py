"""
Keys and logins from the environment, for programs that open a ledger by what somebody typed.

The command line takes no secrets: every user of the machine can read its arguments.
"""

import os
from functools import partial
from typing import TYPE_CHECKING

from .locations import KEY_ENV, is_on_nats

if TYPE_CHECKING:
    from chatledger.domain.search.embedding import Embedding

    from ..log.nats.login import Login
    from ..store.opening.encryption import Encryption
    from .aio.async_ledger import AsyncLedger
    from .ledger import Ledger


def keys_given() -> "Encryption | None":
    """Return the encryption keys in the environment, `CHATLEDGER_ENCRYPTION_KEY`; None when it is not set."""
    if KEY_ENV not in os.environ:
        return None
    from ..store.opening.encryption import Encryption

    return Encryption.from_environment()


def login_for(location: str) -> "Login | None":
    """Return the login in the environment, see `Login.from_environment`; None where the location is not on a NATS server."""
    if not is_on_nats(location):
        return None
    from ..log.nats.login import Login

    return Login.from_environment()


def open_given(location: str, *, create: bool = False, embed: "Embedding | None" = None) -> "Ledger":
    """
    Open a ledger with the keys and the login in the environment.

    Args:
        location: Of the ledger.
        create: Whether its stream on a NATS server is made when it is absent.
        embed: As of `chatledger.open`.

    Raises:
        ChatledgerError: As `chatledger.open`.
    """
    from .open import open as open_ledger

    return open_ledger(location, create=create or None, encryption=keys_given(), login=login_for(location), embed=embed)


def open_given_async(location: str, *, create: bool = False, embed: "Embedding | None" = None) -> "AsyncLedger":
    """Return the same ledger for asyncio; it opens on first use."""
    from .aio.async_ledger import AsyncLedger
    from .open import without_secrets

    return AsyncLedger(partial(open_given, location, create=create, embed=embed), without_secrets(location))
