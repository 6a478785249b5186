"""The page of all chats: filtered by their words, sorted, with what is written just now, and agents' threads and states beside."""

import re
from typing import Annotated, Final

import msgspec

from chatledger.domain.values import Chat
from chatledger.domain.wire import Value

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo, StatePart
from ...ledger.parts import ListOrder
from ...ledger.threads import ThreadInfo, ThreadPart, Threads
from ..http.routing import HttpCall
from .page import ExplorerPage

_ROWS: Final = 50
_HITS: Final = 200
_SNIPPETS: Final = 3
_TITLES: Final = 1000
"""Titles are in no index: only those of the chats that changed last are looked through, this many."""

_BESIDE: Final = 10
_SPACES: Final = re.compile(r"\s+")


class Snippet(Value, frozen=True, kw_only=True):
    """A passage of a message that a search found, with the matches between `<mark>` and `</mark>`; not escaped for HTML."""

    message_id: str
    role: str
    text: str


class ChatRow(Value, frozen=True, kw_only=True):
    """A chat, the passages that a search found in it, and whether an answer is being written in it just now."""

    chat: Chat
    snippets: list[Snippet]
    is_live: bool


class Chats(Value, frozen=True, kw_only=True):
    """
    A page of chats.

    Args:
        rows: The chats, in `order`; hits of a search the best first.
        next: The id to be sent as `after` for those that follow; None where there are no more, and of those that were found.
        threads: The threads of agents that changed last, where this is the first page and nothing is sought.
        has_more_threads: Whether there are more.
        states: The graph states that changed last, likewise.
        has_more_states: Whether there are more.
        q, owner, order, ascending: The filter and the order of the request.
        is_degraded: Whether the search index was being built, so that hits may be missing.
    """

    rows: list[ChatRow]
    next: str | None
    threads: list[ThreadInfo]
    has_more_threads: bool
    states: list[StateInfo]
    has_more_states: bool
    q: str
    owner: str | None
    order: ListOrder
    ascending: bool
    is_degraded: bool


def chats(
    call: HttpCall,
    *,
    q: Annotated[str, msgspec.Meta(max_length=1000)] = "",
    owner: str = "",
    order: ListOrder = "updated",
    ascending: bool = False,
    after: str | None = None,
) -> Chats:
    """Read a page of chats; with `q` those with such a title, or messages with these words, of which the last may be cut off."""
    sought, user_id = q.strip(), owner or None
    streams = [] if call.moment is not None else call.ledger.list_live()
    live = {stream.chat_id for stream in streams if stream.status == "writing"}
    next_id: str | None = None
    is_degraded = False
    if sought:
        rows, is_degraded = _search(call, sought, user_id)
    else:
        listed = call.reader.list_chats(
            user_id=user_id, order=order, ascending=ascending, limit=_ROWS + 1, after=after or None
        )
        rows = [(chat, list[Snippet]()) for chat in listed[:_ROWS]]
        next_id = listed[_ROWS - 1].id if len(listed) > _ROWS else None
    is_first = call.moment is None and after is None and not sought and user_id is None
    threads = Threads(call.ledger).list_part(limit=_BESIDE) if is_first else ThreadPart([], None)
    states = StateStore(call.ledger).list_part(limit=_BESIDE) if is_first else StatePart([], None)
    return Chats(
        rows=[ChatRow(chat=chat, snippets=snippets, is_live=chat.id in live) for chat, snippets in rows],
        next=next_id,
        threads=threads.threads,
        has_more_threads=threads.next is not None,
        states=states.states,
        has_more_states=states.next is not None,
        q=q,
        owner=user_id,
        order=order,
        ascending=ascending,
        is_degraded=is_degraded,
    )


def _search(call: HttpCall, sought: str, user_id: str | None) -> tuple[list[tuple[Chat, list[Snippet]]], bool]:
    hits = call.reader.search(_while_typing(sought), user_id=user_id, limit=_HITS)
    by_chat: dict[str, list[Snippet]] = {}
    for hit in hits:
        snippet = Snippet(message_id=hit.message.id, role=hit.message.name, text=_SPACES.sub(" ", hit.snippet))
        by_chat.setdefault(hit.message.chat_id, []).append(snippet)
    words = sought.casefold().split()
    chats = {
        chat.id: chat
        for chat in call.reader.list_chats(user_id=user_id, limit=_TITLES)
        if all(word in f"{chat.title or ''} {chat.id}".casefold() for word in words)
    }
    for chat_id in by_chat:
        if chat_id not in chats and (chat := call.reader.get_chat(chat_id)) is not None:
            chats[chat_id] = chat
    rows = [(chat, by_chat.get(chat.id, [])[:_SNIPPETS]) for chat in chats.values()]
    return rows[:_ROWS], hits.is_degraded


def _while_typing(sought: str) -> str:
    """Return a query in which the last word may be the beginning of a longer one."""
    # The page asks while somebody types. An operator, a closed quote or bracket is no beginning of a word.
    return sought + "*" if sought[-1].isalnum() and sought.rpartition(" ")[2] not in {"AND", "OR", "NOT"} else sought


PAGES: Final = (ExplorerPage("/", chats, "chats.html", title="Chats", twin="/chats.json"),)
