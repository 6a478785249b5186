"""Remotes: other ledgers that a ledger knows by a name, to pull from and to push to."""

from typing import Final

from .holds import LEDGER_OWNER
from .limits import check_id, check_optional_id
from .versioned.keys import item_id
from .wire import Value

REMOTES: Final = "remotes"
"""The namespace of the items that are remotes."""


class Remote(Value, frozen=True, kw_only=True):
    """
    A ledger that another one knows by a name. No secret is kept with it: keys and logins are in the environment.

    Args:
        name: What it is called here; what it goes on with comes as branches `name/branch`.
        location: A location of a ledger, the address of a `chatledger serve`, or the path of a bundle.
        own_name: What this ledger is called there; None where each who pushes says it.
        key_env: The environment variable with the key for a server.
    """

    name: str
    location: str
    own_name: str | None = None
    key_env: str | None = None


def check_remote(remote: Remote) -> Remote:
    """Check a remote as it was given. Raises `InvalidValueError`."""
    check_id(remote.name, "the name of a remote")
    check_id(remote.location, "the location of a remote")
    check_optional_id(remote.own_name, "the name of this ledger there")
    check_optional_id(remote.key_env, "the environment variable with the key")
    return remote


def remote_key(name: str) -> str:
    """Return the id of the item that a remote is."""
    return item_id(LEDGER_OWNER, (REMOTES,), check_id(name, "the name of a remote"))
