"""Upkeep: the position on the log, and the chats whose time is over."""

from typing import Annotated, Final

import msgspec

from chatledger.domain.values import ErasureReceipt, Swept
from chatledger.domain.wire import Value

from ..routing import HttpCall, Route

Most = Annotated[int, msgspec.Meta(ge=1, le=10_000, description="At most so many.")]


class Position(Value, frozen=True):
    """The position up to which reads know everything, and that of the last event on the log."""

    position: int
    last_position: int


class ChatIds(Value, frozen=True):
    """The ids of chats."""

    chat_ids: list[str]


class Sweep(msgspec.Struct, forbid_unknown_fields=True):
    """The most chats and states to delete, the longest due first."""

    limit: Most | None = None


def get_position(call: HttpCall) -> Position:
    """Read the position on the log; it counts the events of all users."""
    return Position(call.ledger.get_position(), call.ledger.last_position())


def list_due(call: HttpCall, limit: Most = 1000) -> ChatIds:
    """List the chats whose time is over, the longest due first."""
    return ChatIds(call.ledger.due_chats(limit=limit))


class Receipts(Value, frozen=True):
    """Receipts of deletions, the oldest first."""

    erasures: list[ErasureReceipt]


def list_erasures(call: HttpCall, *, pending: bool | None = None) -> Receipts:
    """
    List the receipts of deletions, of the last 30 days: `erased_at` is null until the bytes are gone.

    With `pending` only those whose bytes are to be erased, or are gone. Who sees one user's chats sees those of this user's chats and threads.
    """
    return Receipts(call.ledger.erasures(is_pending=pending))


def sweep(call: HttpCall, body: Sweep | None = None) -> Swept:
    """Delete the chats whose time is over, and answer which; threads, states and items that expired go too. A server that is open does so by itself, now and then."""
    return call.ledger.sweep(limit=(body or Sweep()).limit)


ROUTES: Final = [
    Route("GET", "/position", get_position, has_moment=False),
    Route("GET", "/due", list_due, scope="admin", has_moment=False),
    Route("POST", "/sweep", sweep, scope="admin"),
    Route("GET", "/erasures", list_erasures, has_moment=False),
]
