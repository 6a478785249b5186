"""Snapshots as of a point: unchanged chats from the live index, the others from an as-of index."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Never

from chatledger.domain.chat.state import Tombstone
from chatledger.domain.values import Chat
from chatledger.projections.as_of_index import AsOfChat, AsOfIndex
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.lists import Cursor
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.keys import order_key, scope
from chatledger.projections.lmdb.tables import Tables

from ...port import LedgerSnapshot, refused
from .point import AsOfPoint

WHY: Final = (
    "is not for a view of an earlier moment, which only reads chats; use the ledger that the view was made from"
)


class ChatToReplay(NamedTuple):
    """A living chat that changed since the point, with its present number of events and last position."""

    chat_id: str
    chat_no: int
    tombstone: Tombstone | None
    event_count: int
    last_position: int


class NeedsReplayError(Exception):
    """
    Chats must be replayed before the question can be answered; it is asked again afterwards.

    Args:
        chats: The chats to replay.
        searched: The numbers of unchanged chats to copy, so that they are searched with the others.
    """

    def __init__(self, chats: Sequence[ChatToReplay], searched: Sequence[int] = ()) -> None:
        super().__init__(f"{len(chats)} chats are to be replayed, {len(searched)} to be copied")
        self.chats, self.searched = chats, searched


class AsOfSnapshotRefusals:
    """The members of `LedgerSnapshot` that a snapshot as of a point refuses: they concern the present."""

    stream = refused("stream", WHY)

    @property
    def state(self) -> Never:
        """Raise `AccessDeniedError`."""
        refused("state", WHY)()


class AsOfSnapshot(AsOfSnapshotRefusals):
    """
    A `LedgerSnapshot` as of a point. What belongs to it never changes, except that chats are deleted.

    Nothing is replayed inside it: reading the log takes long, and the as-of index cannot grow while it is read.
    """

    def __init__(self, live: LedgerSnapshot, point: AsOfPoint, past: tuple[AsOfIndex, Transaction] | None) -> None:
        self._live, self._point, self._past = live, point, past
        self._is_searched_there = False
        self.user_id, self.refuse = live.user_id, live.refuse

    @property
    def txn(self) -> Transaction:
        """The transaction on the index in which the chats can be searched that were asked for last."""
        return self._past[1] if self._past is not None and self._is_searched_there else self._live.txn

    @property
    def tables(self) -> Tables:
        """The tables of that index."""
        return self._past[0].tables if self._past is not None and self._is_searched_there else self._live.tables

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> IndexedChat:
        """The chat of that id; its record is None when there was none, or is no more."""
        then = self._then(self._live.chat(chat_id, even_quarantined=even_quarantined))
        if isinstance(then, ChatToReplay):
            raise NeedsReplayError([then])
        self._is_searched_there = isinstance(then, AsOfChat)
        return then

    def chat_nos(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of all chats, or of those of an owner, the last changed first. They can be searched together."""
        found = self._all(user_id)
        numbers = [chat.chat_no for chat in found if chat.chat_no is not None]
        self._is_searched_there = any(isinstance(chat, AsOfChat) for chat in found)
        if self._past is not None and self._is_searched_there:
            past, txn = self._past
            elsewhere = [chat_no for chat_no in numbers if not past.is_searchable(txn, chat_no)]
            if elsewhere:
                raise NeedsReplayError([], elsewhere)
        return numbers

    def _all(self, user_id: str | None) -> list[IndexedChat]:
        """All chats, or those of an owner, the last changed first."""
        tables, txn = self._live.tables, self._live.txn
        found = [
            self._then(IndexedChat(tables, txn, chat_id, chat_no))
            for chat_no in self._live.chat_nos(user_id=user_id)
            if chat_no <= self._point.position
            for chat_id in (self._id(chat_no),)
        ]
        to_replay = [chat for chat in found if isinstance(chat, ChatToReplay)]
        if to_replay:
            raise NeedsReplayError(to_replay)
        living = [(chat, key) for chat in found if isinstance(chat, IndexedChat) and (key := _order_of(chat))]
        living.sort(key=lambda one: one[1])
        return [chat for chat, _ in living]

    def _id(self, chat_no: int) -> str:
        profile = IndexedChat(self._live.tables, self._live.txn, "", chat_no).profile
        assert profile is not None, "a living chat has a profile"
        return profile.id

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None:
        """The chat that a message belonged to, and where the message is in it."""
        for chat_no, _ in self._live.tables.locations(self._live.txn, message_id):
            chat = self.chat(self._id(chat_no))
            place = chat.place(message_id) if chat.chat_no == chat_no else None
            if place is not None:
                return chat, place
        return None

    def list_chats(
        self,
        *,
        user_id: str | None = None,
        entry: tuple[str, str | float] | None = None,
        limit: int | None = None,
        offset: int = 0,
        after: Cursor | None = None,
    ) -> list[Chat]:
        """Chats by `updated_at`, newest first, ties by id."""
        chats = self._all(user_id)
        if entry is not None:
            chats = [chat for chat in chats if _has_entry(chat, entry)]
        if after is not None:
            chat_no = after.chat_no if after.chat_no is not None else self.chat(after.chat_id).chat_no or 0
            start = order_key(b"", after.updated_at, after.chat_id, chat_no)
            chats = [chat for chat in chats if (_order_of(chat) or b"") > start]
        page = chats[offset : None if limit is None else offset + limit]
        return [chat for one in page if (chat := one.chat) is not None]

    def _then(self, chat: IndexedChat) -> IndexedChat | ChatToReplay:
        record, chat_no = chat.record, chat.chat_no
        if record is None or chat_no is None or chat_no > self._point.position:
            return IndexedChat(self._live.tables, self._live.txn, chat.chat_id, None)
        if self._point.is_after(record.head):
            return chat
        if self._past is not None:
            past, txn = self._past
            if past.is_complete(txn, chat_no):
                return AsOfChat(past.tables, txn, chat.chat_id, chat_no)
        event_count = record.head.version - record.first_version + 1
        return ChatToReplay(chat.chat_id, chat_no, chat.tombstone, event_count, record.head.position)


def _order_of(chat: IndexedChat) -> bytes | None:
    """The place of a chat in a list; None when there was no such chat."""
    if chat.record is None or chat.chat_no is None:
        return None
    return order_key(b"", chat.record.updated_at, chat.chat_id, chat.chat_no)


def _has_entry(chat: IndexedChat, entry: tuple[str, str | float]) -> bool:
    profile = chat.profile
    value = None if profile is None or profile.metadata is None else profile.metadata.get(entry[0])
    return isinstance(value, str | int | float) and scope(entry=(entry[0], value)) == scope(entry=entry)
