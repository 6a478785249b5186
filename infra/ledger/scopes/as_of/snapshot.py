"""Snapshots as of a point: unchanged chats from the live index, the others from an as-of index."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Final, NamedTuple, Never, TypeVar

import msgspec
from msgspec import UnsetType

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.state import StreamHead, Tombstone
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import MAX_COMMIT_EVENTS, check_position
from chatledger.domain.log.tombstones import is_foreign
from chatledger.domain.moments import Moment
from chatledger.domain.values import Chat
from chatledger.projections.as_of_index import AsOfChat, AsOfIndex
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.lists import ALL_CHATS, ChatCursor, ChatList, has_entry
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.keys import order_suffix
from chatledger.projections.lmdb.tables import Tables
from chatledger.projections.log.entries import describe_earlier

from ....store.commands import RETRY_S, ChatsToRead
from ...expiry import time_of_text
from ...port import LedgerLog, LedgerSnapshot, StorePort, refused

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class AsOfPoint(msgspec.Struct, frozen=True):
    """
    A point in the past of a log: it includes the events up to `position`.

    With `time` (ms since the epoch) it includes of each chat only those before its first later event. `position` is the end
    of a commit, and of the log that was read when the point was named: events that are written afterwards never belong to
    it, whatever their times are.
    """

    position: int
    time: int | None = None

    def includes(self, recorded: Recorded) -> bool:
        """Whether an event belongs to the point, if those before it in its chat do."""
        return recorded.position <= self.position and (self.time is None or recorded.occurred_at <= self.time)

    def covers(self, other: "AsOfPoint") -> bool:
        """Whether every event that belongs to another point belongs to this one."""
        is_in_time = self.time is None or (other.time is not None and other.time <= self.time)
        return is_in_time and other.position <= self.position

    def is_after(self, head: StreamHead) -> bool:
        """Whether a chat with this head has not changed since. In one chat, no event is older than the one before."""
        return head.position <= self.position and (self.time is None or head.occurred_at <= self.time)


def find_point(store: StorePort, at: Moment) -> AsOfPoint:
    """
    Return the as-of point of a position or of a time.

    Raises:
        InvalidValueError: There is no such position on the log, or the time has no time zone.
        LogUnavailableError: The log did not answer.
    """
    store.check_open()
    if isinstance(at, str):
        at = time_of_text(at)
    if isinstance(at, datetime):
        if at.tzinfo is None:
            msg = "a moment needs a time zone, e.g. datetime.now(timezone.utc)"
            raise InvalidValueError(msg)
        return AsOfPoint(store.catch_up(None, RETRY_S), (at - _EPOCH) // _MILLISECOND)
    position = check_position(at, "a position, unless it is a time,")
    with store.snapshot() as snapshot:
        reached = snapshot.state.position
    if position > reached:
        # As a majority of a cluster has it: that a position is beyond the end is an error, which a server that lags must not cause.
        last = store.log.settled_position(position)
        if position > last:
            msg = f"there is no moment {position:,} yet; the log ends at position {last:,}"
            raise InvalidValueError(msg)
        store.catch_up(None, RETRY_S)
    if position == reached:
        return AsOfPoint(position)  # an index takes in whole commits only, so it ends with one
    return AsOfPoint(_end_of_commit(store.log, position))


def position_of_point(store: StorePort, point: AsOfPoint) -> int:
    """
    Return the position of the last event up to a point. For a time it is found by binary search in the log.

    Where the clocks of writers differ, it is the position of some event after which a later one follows.
    """
    if point.time is None:
        return point.position
    low, high = 0, point.position
    while low < high:
        middle = (low + high) // 2
        # Erased events leave holes, and a foreign message has no time of ours: the next event that has one decides.
        page = store.log.read(middle, 1)
        while page and is_foreign(page[0]):
            page = store.log.read(page[0].position, 1)
        if page and page[0].position <= high and page[0].occurred_at <= point.time:
            low = page[0].position
        else:
            high = middle
    return low


def _end_of_commit(log: LedgerLog, position: int) -> int:
    """Return the position, or, inside a commit, the one before that commit: nobody ever saw half of one."""
    recorded = log.event_at(position) if position else None
    if recorded is None or not recorded.event.rest:
        return position
    before: list[Recorded] = []
    after = max(0, position - MAX_COMMIT_EVENTS)
    while after < position and (page := log.read(after, position - after)):
        before += page
        after = page[-1].position
    first = position
    for recorded in reversed([event for event in before if event.position < position]):
        if not recorded.event.rest:  # the last event of the commit before
            break
        first = recorded.position
    return first - 1


WHY: Final = (
    "is not for a view of an earlier moment, which only reads chats; use the ledger that the view was made from"
)

_DESCRIBED: Final = 10_000
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Chat).decode


class ChatToReplay(NamedTuple):
    """
    A living chat that changed since the point, with its present number of events and last position.

    `cost` is what replaying all of it takes, in events of one message each: an event of an import has hundreds of them.
    """

    chat_id: str
    chat_no: int
    tombstone: Tombstone | None
    event_count: int
    last_position: int
    cost: int


class MissingChats(NamedTuple):
    """
    Chats that an as-of index lacks for a read.

    `to_copy`: the numbers of unchanged chats to copy, so that they are searched with the others.
    """

    to_replay: list[ChatToReplay]
    to_copy: list[int]

    def __bool__(self) -> bool:
        return bool(self.to_replay or self.to_copy)


NOTHING_MISSING: Final = MissingChats([], [])


class AsOfSnapshotRefusals:
    """The members of `LedgerSnapshot` that a snapshot as of a point refuses: they concern the present."""

    branch = refused("branch", WHY)
    receipts = refused("receipts", WHY)
    stream = refused("stream", WHY)

    @property
    def redacted_at(self) -> Never:
        """Raise `AccessDeniedError`."""
        refused("redacted_at", WHY)()

    @property
    def state(self) -> Never:
        """Raise `AccessDeniedError`."""
        refused("state", WHY)()


class AsOfSnapshot(AsOfSnapshotRefusals):
    """
    A `LedgerSnapshot` as of a point. What belongs to it never changes, except that chats are deleted.

    Nothing is replayed inside it: reading the log takes long, and the as-of index cannot grow while it is read. So a read
    names its chats first, and begins when none of them is `missing`.

    `described` keeps how changed chats were described, encoded, for all snapshots of the point.
    """

    is_past = True

    def __init__(
        self,
        live: LedgerSnapshot,
        point: AsOfPoint,
        past: tuple[AsOfIndex, Transaction] | None,
        described: dict[int, bytes],
    ) -> None:
        self.live, self._point, self._past = live, point, past
        self.until = point.position, point.time
        self._is_searched_there = False
        self.user_id, self.refuse = live.user_id, live.refuse
        self._known: dict[int, IndexedChat | ChatToReplay] = {}
        self._described = described
        self._chats: dict[int, Chat | ChatToReplay | None] = {}

    @property
    def txn(self) -> Transaction:
        """The transaction on the index in which the chats can be searched that were asked for last."""
        return self._past[1] if self._past is not None and self._is_searched_there else self.live.txn

    @property
    def tables(self) -> Tables:
        return self._past[0].tables if self._past is not None and self._is_searched_there else self.live.tables

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> IndexedChat:
        """The chat of that id; its record is None when there was none, or is no more."""
        then = _replayed(self._then(self.live.chat(chat_id, even_quarantined=even_quarantined)))
        self._is_searched_there = isinstance(then, AsOfChat)
        return then

    def chat_nos(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of all chats, or of those of an owner, the last changed first. They can be searched together."""
        by_place: list[tuple[bytes, IndexedChat]] = []
        for then in self._all_then(user_id):
            chat = _replayed(then)
            if chat.record is not None and chat.chat_no is not None:
                by_place.append((order_suffix(chat.record.updated_at, chat.chat_id, chat.chat_no), chat))
        chats = [chat for _, chat in sorted(by_place, key=itemgetter(0))]
        self._is_searched_there = any(isinstance(chat, AsOfChat) for chat in chats)
        return [chat.chat_no for chat in chats if chat.chat_no is not None]

    def searched_chats(self, *, user_id: str | None = None) -> list[int] | None:
        """The same for a search: the index may have more chats."""
        return self.chat_nos(user_id=user_id)

    def searched_values(self, *, user_id: str | None = None) -> list[int]:
        """The same of threads, states and items: in the index as it is now."""
        return self.live.searched_values(user_id=user_id)

    def missing(self, chats: ChatsToRead) -> MissingChats:
        """Return the chats that the as-of index lacks for a read of these. More may be missing when it has them."""
        to_replay = [then for then in self._named(chats) if isinstance(then, ChatToReplay)]
        if chats.are_all:
            to_replay += [then for _, then in self._described_then(chats.user_id) if isinstance(then, ChatToReplay)]
        if to_replay or self._past is None or not chats.are_searched:
            return MissingChats(to_replay, [])
        past, txn = self._past
        numbers = self.chat_nos(user_id=chats.user_id)
        is_elsewhere = self._is_searched_there
        return MissingChats([], [no for no in numbers if is_elsewhere and not past.is_searchable(txn, no)])

    def _named(self, chats: ChatsToRead) -> Iterator[IndexedChat | ChatToReplay]:
        """Yield the chats, those of messages up to the first one that is not found."""
        if chats.chat_id is not None:
            yield self._then(self.live.chat(chats.chat_id))
        for message_id in chats.message_ids:
            located = self._look_for(message_id)
            if located is None:
                break
            if isinstance(located, ChatToReplay):
                yield located
                break
        if chats.are_searched:
            yield from self._all_then(chats.user_id)

    def _all_then(self, user_id: str | None) -> Iterator[IndexedChat | ChatToReplay]:
        tables, txn = self.live.tables, self.live.txn
        for chat_no in self.live.chat_nos(user_id=user_id):
            if chat_no <= self._point.position:
                yield self._known.get(chat_no) or self._then(IndexedChat(tables, txn, self._id(chat_no), chat_no))

    def _id(self, chat_no: int) -> str:
        profile = IndexedChat(self.live.tables, self.live.txn, "", chat_no).profile
        assert profile is not None, "a living chat has a profile"
        return profile.id

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None:
        located = self._look_for(message_id)
        if located is not None:
            chat = _replayed(located if isinstance(located, ChatToReplay) else located[0])
            self._is_searched_there = isinstance(chat, AsOfChat)
        return None if isinstance(located, ChatToReplay) else located

    def _look_for(self, message_id: str) -> tuple[IndexedChat, Place] | ChatToReplay | None:
        for chat_no, _ in self.live.tables.locations(self.live.txn, message_id):
            chat = self._then(self.live.chat(self._id(chat_no)))
            if isinstance(chat, ChatToReplay):
                return chat
            place = chat.place(message_id) if chat.chat_no == chat_no else None
            if place is not None:
                return chat, place
        return None

    def list_chats(
        self, chats: ChatList = ALL_CHATS, *, limit: int | None = None, offset: int = 0, after: ChatCursor | None = None
    ) -> list[Chat]:
        listed = self._listed(chats)
        if after is not None:
            # The number tells chats of one place apart, and that of a chat never changes, so the present one serves.
            chat_no = after.chat_no if after.chat_no is not None else self.live.chat(after.chat_id).chat_no or 0
            start = order_suffix(after.time, after.chat_id, chat_no)
            is_ascending = chats.is_ascending
            listed = [(place, chat) for place, chat in listed if (place < start if is_ascending else place > start)]
        return [chat for _, chat in listed[offset : None if limit is None else offset + limit]]

    def count_chats(self, chats: ChatList) -> int:
        return len(self._listed(chats))

    def _listed(self, chats: ChatList) -> list[tuple[bytes, Chat]]:
        described = ((chat_no, _replayed(then)) for chat_no, then in self._described_then(chats.user_id))
        listed = [
            (order_suffix(chats.time_of(chat), chat.id, chat_no), chat)
            for chat_no, chat in described
            if chat is not None and all(has_entry(chat.metadata, entry) for entry in chats.entries)
        ]
        return sorted(listed, key=itemgetter(0), reverse=chats.is_ascending)

    def _described_then(self, user_id: str | None) -> Iterator[tuple[int, Chat | ChatToReplay | None]]:
        """Yield all chats, or those of an owner, as they were described, by their numbers; None where there was none."""
        for chat_no in self.live.chat_nos(user_id=user_id):
            if chat_no > self._point.position:
                continue
            if chat_no not in self._chats:
                self._chats[chat_no] = self._describe(chat_no)
            yield chat_no, self._chats[chat_no]

    def _describe(self, chat_no: int) -> Chat | ChatToReplay | None:
        """Return a chat as it was described, counted back where it has changed; a chat to replay where that is not possible."""
        kept = self._described.get(chat_no)
        if kept is not None:
            return _decode(kept) if kept else None
        tables, txn = self.live.tables, self.live.txn
        chat = IndexedChat(tables, txn, "", chat_no)
        record, profile = chat.record, chat.profile
        assert record is not None, "a listed chat has a record"
        assert profile is not None, "a listed chat has a profile"
        if self._point.is_after(record.head):
            return chat.chat
        described = describe_earlier(txn, tables, record, profile, position=self._point.position, time=self._point.time)
        if isinstance(described, UnsetType):
            then = self._then(IndexedChat(tables, txn, profile.id, chat_no))
            return then if isinstance(then, ChatToReplay) else then.chat
        if len(self._described) < _DESCRIBED:
            self._described[chat_no] = b"" if described is None else _encode(described)
        return described

    def _then(self, chat: IndexedChat) -> IndexedChat | ChatToReplay:
        chat_no = chat.chat_no
        if chat_no is None or chat_no > self._point.position:
            return IndexedChat(self.live.tables, self.live.txn, chat.chat_id, None)
        if chat_no not in self._known:
            self._known[chat_no] = self._look_up(chat, chat_no)
        return self._known[chat_no]

    def _look_up(self, chat: IndexedChat, chat_no: int) -> IndexedChat | ChatToReplay:
        record = chat.record
        if record is None:
            return IndexedChat(self.live.tables, self.live.txn, chat.chat_id, None)
        if self._point.is_after(record.head):
            return chat
        if self._past is not None:
            past, txn = self._past
            if past.is_complete(txn, chat_no):
                return AsOfChat(past.tables, txn, chat.chat_id, chat_no)
        event_count = record.head.version - record.first_version + 1
        cost = max(event_count, record.message_count)
        return ChatToReplay(chat.chat_id, chat_no, chat.tombstone, event_count, record.head.position, cost)


R = TypeVar("R")


def _replayed(chat: R | ChatToReplay) -> R:
    if isinstance(chat, ChatToReplay):
        msg = f"chat {chat.chat_id!r} is not prepared: a read says which chats it concerns before it begins"
        raise RuntimeError(msg)  # noqa: TRY004 - a mistake in ours; an assertion would be taken for damage of the index
    return chat
