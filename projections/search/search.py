"""A search over chats, from the query to the messages that it found."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from chatledger.domain.chat.annotations import is_left_out
from chatledger.domain.errors import ChatledgerError, CorruptStateError
from chatledger.domain.search.fields import SearchField, field_text
from chatledger.domain.search.query import Query
from chatledger.domain.search.snippets import KnownWords
from chatledger.domain.search.tokens import normalized
from chatledger.domain.values import Message

from ..chat.chains import Chains
from ..chat.lists import listed
from ..chat.reader import IndexedChat
from ..lmdb.environment import Transaction
from ..lmdb.keys import order_suffix
from ..lmdb.tables import Tables
from .evaluation import Filter, IsLeftOut, search
from .indexer import count_indexed, is_behind, is_current
from .reader import SearchReader

_LOOKED_UP: Final = 1_000
"""Of more chats the places are read from the list of all."""


class WordHit(msgspec.Struct, frozen=True):
    """A message, how well it matches, the field to show and what it has of the query; None of both where it was only compared."""

    message: Message
    field: SearchField
    rank: float | None
    known: KnownWords | None


class WordHits(NamedTuple):
    """The best messages, and whether some chats were only compared because their search index is being built."""

    hits: list[WordHit]
    is_degraded: bool


class Scope:
    """
    The fields of chats that are searched; each chat is made up once it is needed.

    Args:
        txn, tables: What is read.
        chat_nos: The numbers of the chats, those first whose messages come first where all else is equal; None: all chats, the
            last changed first.
        fields: The fields.
        chat: One of them that is made up already.
    """

    def __init__(
        self,
        txn: Transaction,
        tables: Tables,
        chat_nos: Sequence[int] | None,
        fields: Sequence[SearchField],
        chat: IndexedChat | None = None,
    ) -> None:
        self.txn, self.tables, self.chat_nos, self.fields = txn, tables, chat_nos, fields
        self._chats = {} if chat is None else {chat.chat_no: chat}
        self._chains: dict[int, Chains] = {}
        self._recent = tables.caches.recent.of(txn.id())

    def chat(self, chat_no: int) -> IndexedChat:
        """The chat of that number."""
        chat = self._chats.get(chat_no)
        if chat is None:
            chat = self._chats[chat_no] = IndexedChat(self.tables, self.txn, "", chat_no)
            profile = chat.profile
            assert profile is not None, "a listed chat has a profile"
            chat.chat_id = profile.id
        return chat

    def order(self) -> Sequence[int]:
        """Return the numbers of the chats, also where they are all."""
        if self.chat_nos is None:
            self.chat_nos = listed(self.txn, self.tables, user_id=None)
        return self.chat_nos

    def places(self, chat_nos: Sequence[int]) -> dict[int, int]:
        """Return the places of some of these chats among them; costs a look at each, not at all there are."""
        among = set(chat_nos)
        if self.chat_nos is not None or len(among) > _LOOKED_UP:
            ordered = [chat_no for chat_no in self.order() if chat_no in among]
            return {chat_no: place for place, chat_no in enumerate(ordered)}
        keys: dict[int, bytes] = {}  # those of the list of all, which need not be read for that
        for chat_no in among:
            chat = self.chat(chat_no)
            record = chat.record
            assert record is not None, "a chat that is found is there"
            keys[chat_no] = order_suffix(record.updated_at, chat.chat_id, chat_no)
        return {chat_no: place for place, chat_no in enumerate(sorted(keys, key=keys.__getitem__))}

    def message(self, chat_no: int, segment: int, offset: int) -> Message:
        """The message that was found there."""
        chains = self._chains.get(chat_no)
        if chains is None:
            chains = self._chains[chat_no] = self.chat(chat_no).chains
            chains.recent = self._recent
        return chains.message((segment, offset))

    def find(self, chat_no: int, segment: int, offset: int) -> Message | None:
        """Return the message at a place; None where there is none, or its chat was deleted."""
        if IndexedChat(self.tables, self.txn, "", chat_no).record is None:
            return None
        chains = self.chat(chat_no).chains
        if not chains.has_segment(segment) or offset >= chains.segment(segment).length:
            return None
        return self.message(chat_no, segment, offset)

    def leaves_out(self) -> IsLeftOut | None:
        """Return what tells the messages to leave out; None for one chat without annotations, as nearly all are."""
        if self.chat_nos is None or len(self.chat_nos) != 1:
            return self.is_left_out
        return None if self.chat(self.chat_nos[0]).chains.annotations.is_empty else self.is_left_out

    def is_left_out(self, chat_no: int, segment: int, offset: int) -> bool:
        """Whether the message there is hidden or replaced. In a chat without annotations it costs one look-up."""
        chat = self.chat(chat_no)
        annotations = chat.chains.annotations
        if annotations.is_empty or annotations.at((segment, offset)) is None:
            return False
        return is_left_out(chat, self.message(chat_no, segment, offset).id)


def ask(
    scope: Scope, query: Query, text: str, *, only: Filter, limit: int | None, offset: int, include_hidden: bool = False
) -> WordHits:
    """
    The messages of these chats that match, best first; hidden and replaced ones only if asked for.

    Of a chat whose search index is not complete, those come last that contain the text of the query, newest first.
    """
    behind = _behind(scope)
    # Those that are scanned come last: where there are any, the offset counts over both, and is applied in the end.
    left_out = {chat.chat_no for chat in behind}
    indexed = [chat_no for chat_no in scope.order() if chat_no not in left_out] if behind else scope.chat_nos
    wanted = None if limit is None else limit + (offset if behind else 0)
    word_hits: list[WordHit] = []
    if indexed or indexed is None:
        try:
            hits = search(
                SearchReader(scope.txn, scope.tables, indexed, scope.fields),
                query,
                only=only,
                limit=wanted,
                offset=0 if behind else offset,
                order=scope.places,
                leaves_out=None if include_hidden else scope.leaves_out,
            )
        except (ValueError, LookupError, OverflowError, struct.error, msgspec.MsgspecError) as error:
            if isinstance(error, ChatledgerError):  # some of them are lookup or value errors too
                raise
            msg = f"the search index is damaged: {error}; rebuild it, the log is not affected"
            raise CorruptStateError(msg) from error
        word_hits = [
            WordHit(scope.message(hit.chat_no, hit.segment, hit.offset), hit.field, hit.rank, hit.known) for hit in hits
        ]
    if not behind:
        return WordHits(word_hits, is_degraded=False)
    scanned = _scan(behind, normalized(text), only, scope.fields, include_hidden=include_hidden)
    word_hits += [WordHit(message, field, None, None) for message, field in scanned]
    return WordHits(word_hits[offset : None if limit is None else offset + limit], is_degraded=True)


def _behind(scope: Scope) -> list[IndexedChat]:
    """Return the chats whose messages the search index does not have, or not all."""
    txn, tables = scope.txn, scope.tables
    if is_current(txn, tables) and not is_behind(txn, tables):
        return []
    chat_nos = scope.order()
    chats = list(map(scope.chat, chat_nos))
    if not is_current(txn, tables):
        return chats
    return [
        chat
        for chat, indexed in zip(chats, count_indexed(txn, tables, chat_nos), strict=True)
        if chat.record is not None and indexed < chat.record.message_count
    ]


def _scan(
    chats: Sequence[IndexedChat], text: str, only: Filter, fields: Sequence[SearchField], *, include_hidden: bool
) -> list[tuple[Message, SearchField]]:
    """The messages that contain the text, each with the first field that does."""
    hits: list[tuple[int, int, Message, SearchField]] = []
    for chat in chats:
        on_chain = None
        if only.runs is not None:
            places = [(segment, offset) for segment, last in only.runs.items() for offset in range(last + 1)]
            on_chain = {message.id for message in chat.chains.bare_messages(places)}
        hits.extend(
            (message.created_at, ordinal, message, field)
            for ordinal, message in chat.chains.all_messages()
            if (only.roles is None or message.name in only.roles)
            and (only.since is None or message.created_at >= only.since)
            and (only.until is None or message.created_at < only.until)
            and (on_chain is None or message.id in on_chain)
            and (field := _field_with(message, text, fields)) is not None
            and (include_hidden or not is_left_out(chat, message.id))
        )
    hits.sort(key=lambda hit: hit[:2], reverse=True)
    return [(message, field) for _, _, message, field in hits]


def _field_with(message: Message, text: str, fields: Sequence[SearchField]) -> SearchField | None:
    return next((field for field in fields if text in normalized(field_text(message, field))), None)
