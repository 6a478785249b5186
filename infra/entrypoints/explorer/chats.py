"""The page of all chats: filtered by their words, owner and last change, sorted, with what is written just now."""

import time
from itertools import takewhile
from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.values import Chat, SearchHit
from chatledger.domain.wire import Value

from ...ledger.thread_lists import ListOrder
from ..http.routing import HttpCall
from .page import ExplorerPage, moment_ms

_ROWS: Final = 100
_HITS: Final = 200
_SNIPPETS: Final = 3
TITLES: Final = 1000
"""Titles are in no index: only those of the chats that changed last are looked through, this many."""

Lately = Literal["", "1h", "24h", "7d", "30d"]
LATELY: Final[dict[Lately, tuple[str, int]]] = {
    "": ("Any time", 0),
    "1h": ("Last hour", 3_600_000),
    "24h": ("Last 24 h", 86_400_000),
    "7d": ("Last 7 days", 7 * 86_400_000),
    "30d": ("Last 30 days", 30 * 86_400_000),
}
"""Spans of time that a list may be limited to: how each is called, and how long before now it begins, in ms."""


class ChatRow(Value, frozen=True, kw_only=True):
    """A chat, the passages that a search found in it, and whether an answer is being written in it just now."""

    chat: Chat
    hits: list[SearchHit]
    is_live: bool


class Chats(Value, frozen=True, kw_only=True):
    """
    A page of chats.

    Args:
        rows: The chats, in `order`; hits of a search the best first.
        next: The id to be sent as `after` for those that follow; None where there are no more, and of those that were found.
        q, owner, changed, order, ascending: The filter and the order of the request; what changed lately is in the order of changes.
        is_degraded: Whether the search index was being built, so that hits may be missing.
    """

    rows: list[ChatRow]
    next: str | None
    q: str
    owner: str | None
    changed: Lately
    order: ListOrder
    ascending: bool
    is_degraded: bool


def chats(
    call: HttpCall,
    *,
    q: Annotated[str, msgspec.Meta(max_length=1000)] = "",
    owner: str = "",
    changed: Lately = "",
    order: ListOrder = "updated",
    ascending: bool = False,
    after: str | None = None,
) -> Chats:
    """Read a page of chats; with `q` those with such a title, or messages with these words, of which the last may be cut off."""
    sought, user_id = q.strip(), owner or None
    live = _written_now(call)
    now = moment_ms(call) or int(time.time() * 1000)
    since = now - LATELY[changed][1] if changed else 0
    if changed:
        order, ascending = "updated", False
    next_id: str | None = None
    is_degraded = False
    if sought:
        recent = call.reader.list_chats(user_id=user_id, limit=TITLES)
        hits_by_chat, is_degraded = search_chats(call, sought, user_id, recent)
        rows = [(chat, hits) for chat, hits in hits_by_chat if chat.updated_at >= since]
    else:
        listed = call.reader.list_chats(
            user_id=user_id, order=order, ascending=ascending, limit=_ROWS + 1, after=after or None
        )
        listed = list(takewhile(lambda chat: chat.updated_at >= since, listed)) if changed else listed
        rows = [(chat, list[SearchHit]()) for chat in listed[:_ROWS]]
        next_id = listed[_ROWS - 1].id if len(listed) > _ROWS else None
    return Chats(
        rows=[ChatRow(chat=chat, hits=hits, is_live=chat.id in live) for chat, hits in rows],
        next=next_id,
        q=q,
        owner=user_id,
        changed=changed,
        order=order,
        ascending=ascending,
        is_degraded=is_degraded,
    )


def writing(call: HttpCall) -> list[str]:
    """Read the ids of the chats in which an answer is being written just now."""
    return sorted(_written_now(call))


def _written_now(call: HttpCall) -> set[str]:
    streams = [] if call.moment is not None else call.ledger.list_live()
    return {stream.chat_id for stream in streams if stream.status == "writing"}


def search_chats(
    call: HttpCall, sought: str, user_id: str | None, recent: list[Chat]
) -> tuple[list[tuple[Chat, list[SearchHit]]], bool]:
    """Return chats with what is sought in their titles or folders, of those that changed last, and then in messages; and whether some may be missing."""
    hits = call.reader.search(while_typing(sought), user_id=user_id, limit=_HITS)
    by_chat: dict[str, list[SearchHit]] = {}
    for hit in hits:
        by_chat.setdefault(hit.message.chat_id, []).append(hit)
    words = sought.casefold().split()
    chats = {chat.id: chat for chat in recent if all(word in _titles(chat) for word in words)}
    for chat_id in by_chat:
        if chat_id not in chats and (chat := call.reader.get_chat(chat_id)) is not None:
            chats[chat_id] = chat
    rows = [(chat, by_chat.get(chat.id, [])[:_SNIPPETS]) for chat in chats.values()]
    return rows[:_ROWS], hits.is_degraded


def _titles(chat: Chat) -> str:
    """Title and id of a chat, and the folder and branch that a coding agent worked in."""
    metadata = chat.metadata or {}
    return f"{chat.title or ''} {chat.id} {metadata.get('cwd', '')} {metadata.get('git_branch', '')}".casefold()


def while_typing(sought: str) -> str:
    """Return a query in which the last word may be the beginning of a longer one."""
    # The page asks while somebody types. An operator, a closed quote or bracket is no beginning of a word.
    return sought + "*" if sought[-1].isalnum() and sought.rpartition(" ")[2] not in {"AND", "OR", "NOT"} else sought


PAGES: Final = (
    ExplorerPage("/", chats, "chats.html", title="Chats", twin="/chats.json"),
    ExplorerPage("/writing", writing),
)
