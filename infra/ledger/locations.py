"""Locations of ledgers, for programs that ask before they open one. What asking a server needs is imported when one is asked."""

from typing import TYPE_CHECKING, Final

from chatledger.projections.lmdb.environment import absolute_path

from ..store.opening.names import DEFAULT_LOCATION, KEY_ENV, STREAM
from ..store.opening.presence import POSTGRES_SCHEMES, has_ledger, require_ledger

if TYPE_CHECKING:
    from ..log.nats.login import Login

__all__ = [
    "DEFAULT_LOCATION",
    "KEY_ENV",
    "absolute_path",
    "has_ledger",
    "is_on_nats",
    "require_answer",
    "require_ledger",
]

_ON_NATS: Final = ("nats://", "tls://")


def is_on_nats(location: str) -> bool:
    """Whether a location is on NATS servers."""
    return location.startswith(_ON_NATS)


def require_answer(location: str, login: "Login | None") -> None:
    """Raise `LogUnavailableError` within 3 s where a location is on servers that do not answer."""
    if location.partition("://")[0] in POSTGRES_SCHEMES:
        has_ledger(location)  # it is what raises; whether there is a ledger does not matter here
    elif is_on_nats(location):
        from ..log.nats.reaching import require_jetstream
        from ..store.opening.nats_locations import read_place

        place = read_place(location, stream=STREAM, login=login, replicas=None)
        require_jetstream(place.connect, place.stream)
