"""The page of all chats."""

from typing import Final

from chatledger.domain.values import Chat
from chatledger.domain.wire import Value

from .page import Page, PageCall

_ROWS: Final = 50


class Chats(Value, frozen=True, kw_only=True):
    """A page of chats, and the id after which the next one begins; None where there are no more."""

    chats: list[Chat]
    next: str | None


def chats(call: PageCall, *, after: str | None = None) -> Chats:
    """Read a page of chats, those that changed last first."""
    found = call.reader.list_chats(limit=_ROWS + 1, after=after)
    return Chats(chats=found[:_ROWS], next=found[_ROWS - 1].id if len(found) > _ROWS else None)


PAGES: Final = (Page("/", chats, "chats.html", title="Chats", twin="/chats.json"),)
