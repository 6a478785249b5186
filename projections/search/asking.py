"""A search over chats, from the query to the messages that it found."""

from collections.abc import Sequence
from typing import NamedTuple

from chatledger.domain.search.query import Query
from chatledger.domain.search.tokens import folded
from chatledger.domain.values import Message

from ..environment import Transaction
from ..indexed_chat import IndexedChat
from ..tables import Tables
from .currency import is_behind, is_current
from .evaluation import Filter, search
from .reader import SearchReader


class Found(NamedTuple):
    """A message, and how well it matches; no rank where it was only compared."""

    message: Message
    rank: float | None


class Answer(NamedTuple):
    """The best messages, and whether some chats were only compared because their search index is being built."""

    found: list[Found]
    is_degraded: bool


def ask(
    txn: Transaction,
    tables: Tables,
    chats: Sequence[IndexedChat],
    query: Query,
    text: str,
    *,
    only: Filter,
    limit: int | None,
    offset: int,
) -> Answer:
    """
    The messages of these chats that match, best first.

    Of a chat whose search index is not complete, those come last that contain the text of the query, newest first.
    """
    behind = _behind(txn, tables, chats)
    left_out = {chat.chat_no for chat in behind}
    indexed = [chat for chat in chats if chat.chat_no not in left_out] if behind else chats
    readers = [SearchReader(txn, tables.search, chat.chat_no) for chat in indexed if chat.chat_no is not None]
    wanted = None if limit is None else limit + (offset if behind else 0)
    hits = search(readers, query, only=only, limit=wanted, offset=0 if behind else offset) if readers else []
    found = [Found(indexed[hit.reader].chains.message((hit.segment, hit.offset)), hit.rank) for hit in hits]
    if not behind:
        return Answer(found, is_degraded=False)
    found += [Found(message, None) for message in _scan(behind, folded(text), only)]
    return Answer(found[offset : None if limit is None else offset + limit], is_degraded=True)


def _behind(txn: Transaction, tables: Tables, chats: Sequence[IndexedChat]) -> list[IndexedChat]:
    if not is_current(txn, tables):
        return list(chats)
    if not is_behind(txn, tables):
        return []
    return [
        chat
        for chat in chats
        if chat.chat_no is not None
        and chat.record is not None
        and SearchReader(txn, tables.search, chat.chat_no).state.indexed < chat.record.message_count
    ]


def _scan(chats: Sequence[IndexedChat], text: str, only: Filter) -> list[Message]:
    found: list[tuple[int, int, Message]] = []
    for chat in chats:
        on_chain = None if only.runs is None else _ids(chat, only.runs)
        found.extend(
            (message.created_at, ordinal, message)
            for ordinal, message in chat.chains.all_messages()
            if (only.roles is None or message.name in only.roles)
            and (only.since is None or message.created_at >= only.since)
            and (only.until is None or message.created_at < only.until)
            and (on_chain is None or message.id in on_chain)
            and text in folded(message.text)
        )
    found.sort(key=lambda one: one[:2], reverse=True)
    return [message for _, _, message in found]


def _ids(chat: IndexedChat, runs: dict[int, int]) -> set[str]:
    """The messages of these runs."""
    places = [(segment, offset) for segment, last in runs.items() for offset in range(last + 1)]
    return {message.id for message in chat.chains.bare_messages(places)}
