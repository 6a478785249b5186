"""Stores as of a point: a ledger reads through them to answer as it did then."""

import contextlib
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Never

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import LedgerClosedError
from chatledger.projections.as_of_index import AsOfIndex
from chatledger.projections.chat.reader import IndexedChat

from ....store.commands import NO_CHATS, ChatsToRead
from ....store.meaning import Meaning
from ...port import StorePort, passed_on, refused
from .replaying import Anchors, KeptIndex, carry_on, has_deleted, no_anchor, replay_chats
from .snapshot import NOTHING_MISSING, WHY, AsOfPoint, AsOfSnapshot, ChatToReplay, position_of_point


class AsOfRefusals:
    """The members of `StorePort` that a store as of a point refuses: those that write, and those about the present."""

    adopt = refused("adopt", WHY)
    begin = refused("begin", WHY)
    execute = refused("execute", WHY)
    erase_deleted = refused("erase_deleted", WHY)
    finish_erasures = refused("finish_erasures", WHY)
    page = refused("page", WHY)
    search_later = refused("search_later", WHY)
    submit = refused("submit", WHY)
    sweep_large = refused("sweep_large", WHY)
    whole = refused("whole", WHY)

    @property
    def log(self) -> Never:
        """Raise `AccessDeniedError`: the log has what was written since."""
        refused("log", WHY)()

    @property
    def live(self) -> Never:
        """Raise `AccessDeniedError`: what is being written now is not of an earlier moment."""
        refused("live", WHY)()

    @property
    def redactor(self) -> Never:
        """Raise `AccessDeniedError`: nothing is written to an earlier moment."""
        refused("redactor", WHY)()

    @property
    def task_writes(self) -> Never:
        """Raise `AccessDeniedError`: what waits to be stored is not of an earlier moment."""
        refused("task_writes", WHY)()

    @property
    def user_id(self) -> Never:
        """Raise `AccessDeniedError`: a snapshot says it."""
        refused("user_id", WHY)()

    @property
    def scratch(self) -> Never:
        """Raise `AccessDeniedError`: a view keeps nothing but the chats that it replays."""
        refused("scratch", WHY)()


class AsOfStore(AsOfRefusals):
    """
    A `StorePort` as of a point. Chats that changed since are replayed before a snapshot with them is opened.

    A long chat is replayed from the nearest earlier point that `earlier` has it of: the index of that is copied, and carried on
    by the events in between. Its replay from the beginning leaves a few copies on the way (anchors), for points before this one.

    `source`: the store as it is now, or what shows a part of it; asked for it every time, so that closing is noticed.
    `earlier`: returns stores of the same ledger and user as of other points, which may be closed meanwhile.

    Attributes:
        is_closed: Whether it was closed.
        start: The store whose chats it was carried on from; None where they were replayed from their beginnings.
    """

    def __init__(
        self,
        source: Callable[[], StorePort],
        point: AsOfPoint,
        *,
        earlier: "Callable[[], Iterable[AsOfStore]] | None" = None,
    ) -> None:
        self._source, self.point, self._earlier = source, point, earlier
        self._anchors = Anchors()
        self.start: weakref.ref[AsOfStore] | None = None
        self._replaying = threading.Lock()
        self._past: AsOfIndex | None = None
        self._position: int | None = None
        self._redacted_at: int | None = None
        """The position of the last redaction when the chats began to be replayed."""
        self._described: dict[int, bytes] = {}
        self.is_closed = False

    @property
    def position(self) -> int:
        """The position of the last event up to the point."""
        source = self.source
        source.check_open()
        if self._position is None:
            self._position = position_of_point(source, self.point)
        return self._position

    @property
    def used_bytes(self) -> int:
        """Bytes of the chats that were replayed, and of the anchors."""
        past = self._past
        return 0 if past is None else past.used_bytes + self._anchors.used_bytes

    @property
    def holds_deleted(self) -> bool:
        """Whether something may be kept here of a chat that was deleted since, or a message redacted. Nothing reads it, but it takes room."""
        past = self._past
        if past is None:
            return False
        with self.source.snapshot() as live:
            return live.redacted_at != self._redacted_at or has_deleted(live, past.held)

    def kept(self) -> list[KeptIndex]:
        """Return what later points can be carried on from, the chats up to this point and at the anchors."""
        past = self._past
        return [] if past is None else [KeptIndex(self.point, past), *self._anchors.kept]

    @property
    def source(self) -> StorePort:
        """
        The store as it is now.

        Raises:
            LedgerClosedError: This was closed.
        """
        if self.is_closed:
            msg = "the view is closed; ask for another one with as_of"
            raise LedgerClosedError(msg)
        return self._source()

    @property
    def meaning(self) -> Meaning:
        """The vectors of messages as they are now: a message has the same one for ever."""
        return self.source.meaning

    @contextlib.contextmanager
    def snapshot(self, chats: ChatsToRead = NO_CHATS, /) -> Generator[AsOfSnapshot]:
        """
        Open a snapshot of the index as of the point, after replaying those of these chats that changed since.

        Raises:
            ChainIntegrityError: Events of a chat are missing on the log, repeated or altered.
            LogUnavailableError: The log did not answer.
        """
        while True:
            with self._snapshot(chats) as snapshot:
                is_as_it_is = snapshot.live.redacted_at == self._redacted_at
                missing = snapshot.missing(chats) if is_as_it_is else NOTHING_MISSING
                if is_as_it_is and not missing:
                    yield snapshot
                    return
            if not is_as_it_is:
                self._begin_anew()
                continue
            with self._replaying:  # here, where no transaction is open; others may have replayed them meanwhile
                source = self.source
                past = self._past or self._open_past(missing.to_replay)
                with past.reading() as txn:
                    to_replay = [chat for chat in missing.to_replay if not past.is_complete(txn, chat.chat_no)]
                # An anchor is a copy of the whole index, so anchors are left only where the index has no other chat.
                leaves_anchors = (
                    self._earlier is not None and len(to_replay) == 1 and past.held <= {to_replay[0].chat_no}
                )
                anchor = self._anchors.leaving(source, past, to_replay[0]) if leaves_anchors else no_anchor
                replay_chats(source, past, self.point, to_replay, anchor=anchor)
                if missing.to_copy:
                    with source.snapshot() as live:
                        records = (
                            (chat_no, IndexedChat(live.tables, live.txn, "", chat_no).record)
                            for chat_no in missing.to_copy
                        )
                        unchanged = [
                            chat_no
                            for chat_no, record in records
                            if record is not None and self.point.is_after(record.head)
                        ]
                        past.copy_chats(live.txn, live.tables, unchanged)

    def _begin_anew(self) -> None:
        """Forget what was replayed: content was redacted since, and this may have it."""
        with self.source.snapshot() as live:
            redacted_at = live.redacted_at
        with self._replaying:
            past, self._past, self._redacted_at = self._past, None, redacted_at
            anchors, self._anchors = self._anchors, Anchors()
            self._described.clear()
        anchors.close()
        if past is not None:
            past.close()

    @contextlib.contextmanager
    def _snapshot(self, chats: ChatsToRead) -> Generator[AsOfSnapshot]:
        past = self._past
        with self.source.snapshot(chats) as live:
            if past is None:
                yield AsOfSnapshot(live, self.point, None, self._described)
            else:
                with past.reading() as txn:
                    yield AsOfSnapshot(live, self.point, (past, txn), self._described)

    def events(
        self,
        after: int,
        *,
        up_to: int | None = None,
        stream_id: str | None = None,
        is_closed: Callable[[], bool] = lambda: False,
    ) -> Iterator[Recorded]:
        """Yield the events after a position, up to another one and the point; those of chats that were deleted since are erased."""
        ended: set[str] = set()
        last = self.point.position if up_to is None else min(up_to, self.point.position)
        for recorded in self.source.events(after, up_to=last, stream_id=stream_id, is_closed=is_closed):
            if not self.point.includes(recorded):
                ended.add(recorded.chat_id)
            if recorded.chat_id not in ended:
                yield recorded

    def bytes_at(self, positions: Sequence[int]) -> dict[int, bytes]:
        """The bytes of the events at ascending positions, which their hashes are over. The caller knows that they may be read."""
        return self.source.bytes_at(positions)

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Return the point's position; nothing is added to the past."""
        del position, timeout_s
        return self.point.position

    def check_open(self) -> None:
        """Raise `LedgerClosedError` after this or its source was closed."""
        self.source.check_open()

    def close(self) -> None:
        """Remove the replayed chats. Idempotent."""
        self.is_closed = True
        with self._replaying:
            past, self._past = self._past, None
        self._anchors.close()
        if past is not None:
            past.close()

    def _open_past(self, to_replay: Sequence[ChatToReplay]) -> AsOfIndex:
        """Begin the index of the chats up to this point: a copy of an earlier one where that helps, else an empty one."""
        earlier = () if self._earlier is None else self._earlier()
        reusable = [
            (index, store)
            for store in earlier
            if store is not self and store._redacted_at == self._redacted_at  # noqa: SLF001 - of the same class
            for index in store.kept()
        ]
        carried_on = carry_on(self.source, self.point, [index for index, _ in reusable], to_replay)
        if carried_on is not None:
            past, start = carried_on
            self.start = next(weakref.ref(store) for index, store in reusable if index is start)
        else:
            # The folder is removed at once: its files live on without a name as long as they are open, so that nothing stays
            # behind, even of a process that is killed.
            with self.source.scratch.folder() as folder:
                past = AsOfIndex(folder)
        weakref.finalize(self, past.close)
        self._past = past
        return past


class AsOfEvents(AsOfRefusals):
    """
    The `StorePort` of a history: the events up to a point, and the index as it is now.

    Owners are looked up in the present: the owner of a chat never changes, and the tombstone of a deleted one has it.
    """

    def __init__(self, as_of_store: AsOfStore) -> None:
        self._as_of_store = as_of_store

    @property
    def meaning(self) -> Meaning:
        """The vectors of messages as they are now."""
        return self._as_of_store.meaning

    def _store_then(self) -> AsOfStore:
        return self._as_of_store

    def _store_now(self) -> StorePort:
        return self._as_of_store.source

    events = passed_on(StorePort.events, _store_then)
    bytes_at = passed_on(StorePort.bytes_at, _store_then)
    check_open = passed_on(StorePort.check_open, _store_then)
    snapshot = passed_on(StorePort.snapshot, _store_now)
    catch_up = passed_on(StorePort.catch_up, _store_now)
