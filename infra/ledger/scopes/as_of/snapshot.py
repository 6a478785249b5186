"""The index as it stood at a moment: unchanged chats from the live index, the others from an index of the past."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Never

from chatledger.domain.chat.state import Tombstone
from chatledger.domain.values import Chat
from chatledger.projections.as_of_index import PastChat, PastIndex
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.lists import Cursor
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.keys import order_key, scope
from chatledger.projections.lmdb.tables import Tables

from ...port import LedgerSnapshot, refused
from .moment import Moment

WHY: Final = (
    "is not for a view of an earlier moment, which only reads chats; use the ledger that the view was made from"
)


class Unfolded(NamedTuple):
    """A living chat that changed since the moment, and how many events it has up to which position now."""

    chat_id: str
    chat_no: int
    tombstone: Tombstone | None
    event_count: int
    last_position: int


class UnfoldedError(Exception):
    """
    Says what has to be done before the question can be answered; it is then asked again.

    Args:
        chats: These are to be folded.
        searched: The numbers of chats that have not changed, which are to be copied to be searched with the others.
    """

    def __init__(self, chats: Sequence[Unfolded], searched: Sequence[int] = ()) -> None:
        super().__init__(f"{len(chats)} chats are to be folded, {len(searched)} to be copied")
        self.chats, self.searched = chats, searched


class MomentSnapshotRefusals:
    """The members of `LedgerSnapshot` that a snapshot of a moment refuses: they are not of that moment."""

    thread = refused("thread", WHY)

    @property
    def state(self) -> Never:
        """Raise `AccessDeniedError`."""
        refused("state", WHY)()


class MomentSnapshot(MomentSnapshotRefusals):
    """
    The `LedgerSnapshot` of a moment. What belongs to it never changes, except that chats are deleted.

    Nothing is folded inside it: reading the log takes long, and the index of the past can not grow while it is read.
    """

    def __init__(self, live: LedgerSnapshot, moment: Moment, past: tuple[PastIndex, Transaction] | None) -> None:
        self._live, self._moment, self._past = live, moment, past
        self._is_searched_there = False

    @property
    def user_id(self) -> str | None:
        """The only user whose chats are there; None when those of all are."""
        return self._live.user_id

    @property
    def txn(self) -> Transaction:
        """The transaction on the index in which the chats can be searched that were asked for last."""
        return self._past[1] if self._past is not None and self._is_searched_there else self._live.txn

    @property
    def tables(self) -> Tables:
        """The tables of that index."""
        return self._past[0].tables if self._past is not None and self._is_searched_there else self._live.tables

    def refuse(self, stream: str) -> None:
        """Raise `QuarantinedError` when a stream lost events since; see `Snapshot.refuse`."""
        self._live.refuse(stream)

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> IndexedChat:
        """The chat of that id; its record is None when there was none, or is no more."""
        then = self._then(self._live.chat(chat_id, even_quarantined=even_quarantined))
        if isinstance(then, Unfolded):
            raise UnfoldedError([then])
        self._is_searched_there = isinstance(then, PastChat)
        return then

    def chat_nos(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of all chats, or of those of an owner, the last changed first. They can be searched together."""
        found = self._all(user_id)
        numbers = [chat.chat_no for chat in found if chat.chat_no is not None]
        self._is_searched_there = any(isinstance(chat, PastChat) for chat in found)
        if self._past is not None and self._is_searched_there:
            past, txn = self._past
            elsewhere = [chat_no for chat_no in numbers if not past.is_searchable(txn, chat_no)]
            if elsewhere:
                raise UnfoldedError([], elsewhere)
        return numbers

    def _all(self, user_id: str | None) -> list[IndexedChat]:
        """All chats, or those of an owner, the last changed first."""
        tables, txn = self._live.tables, self._live.txn
        found = [
            self._then(IndexedChat(tables, txn, chat_id, chat_no))
            for chat_no in self._live.chat_nos(user_id=user_id)
            if chat_no <= self._moment.position
            for chat_id in (self._id(chat_no),)
        ]
        unfolded = [chat for chat in found if isinstance(chat, Unfolded)]
        if unfolded:
            raise UnfoldedError(unfolded)
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

    def _then(self, chat: IndexedChat) -> IndexedChat | Unfolded:
        record, chat_no = chat.record, chat.chat_no
        if record is None or chat_no is None or chat_no > self._moment.position:
            return IndexedChat(self._live.tables, self._live.txn, chat.chat_id, None)
        if self._moment.is_after(record.head):
            return chat
        if self._past is not None:
            past, txn = self._past
            if past.is_complete(txn, chat_no):
                return PastChat(past.tables, txn, chat.chat_id, chat_no)
        event_count = record.head.version - record.first_version + 1
        return Unfolded(chat.chat_id, chat_no, chat.tombstone, event_count, record.head.position)


def _order_of(chat: IndexedChat) -> bytes | None:
    """The place of a chat in a list; None when there was no such chat."""
    if chat.record is None or chat.chat_no is None:
        return None
    return order_key(b"", chat.record.updated_at, chat.chat_id, chat.chat_no)


def _has_entry(chat: IndexedChat, entry: tuple[str, str | float]) -> bool:
    profile = chat.profile
    value = None if profile is None or profile.metadata is None else profile.metadata.get(entry[0])
    return isinstance(value, str | int | float) and scope(entry=(entry[0], value)) == scope(entry=entry)
