"""A store limited to one user: what the user may not read is not there, and what concerns everybody is refused."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import copy_context
from functools import cached_property, partial
from typing import Final, Never

import msgspec

from chatledger.domain.chat.events import MEMBER_BODIES, Recorded, StreamDeleted
from chatledger.domain.chat.members import User
from chatledger.domain.errors import AccessDeniedError
from chatledger.domain.log.codec import EncodedEvent
from chatledger.domain.log.shares import owner_named
from chatledger.domain.log.tombstones import is_member_of_deleted, is_owner_of_deleted
from chatledger.domain.versioned.keys import thread_stream
from chatledger.projections.log.kinds import Decision, R, StreamKind, kind_of
from chatledger.projections.snapshot import Snapshot
from chatledger.projections.user_snapshot import UserSnapshot

from ...log.bookmarks import Bookmark, bookmark_key, feeds_of
from ...log.envelope import acting_unless_named
from ...log.live import LiveStreams
from ...log.port import READ_PAGE
from ...store.commands import NO_CHATS, RETRY_S, ChatsToRead, EventKind, Take
from ...store.meaning import Meaning
from ...store.redactor import Redactor
from ...store.task_writes import TaskWriteBuffer
from ...store.temp_folders import Scratch
from ..port import AdminTask, LedgerLog, StorePort, WholeStore, passed_on, refused

_KEPT: Final = 10_000


class Owners:
    """
    Tells the events of one user's chats and threads from those of others. To be asked in the order of the log.

    The owner of a chat never changes, but its id can get another owner after its deletion. What is still on the log of a
    deleted chat is about to be erased, and belongs to nobody any more unless its beginning was seen here; its tombstone
    belongs to its last owner.
    """

    def __init__(self, store: StorePort) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    def is_owner(self, user_id: str, recorded: Recorded) -> bool:
        """Whether the event belongs to a chat of this user."""
        stream, body = recorded.chat_id, recorded.body
        if isinstance(body, StreamDeleted):
            return is_owner_of_deleted(body, stream, user_id, known=self._known.pop(stream, None))
        owner = owner_named(stream, body)
        if owner is not None:
            self._keep(stream, owner)
        elif stream not in self._known:
            self._keep(stream, self._look_up(recorded))
        return self._known[stream] == user_id

    def _keep(self, stream: str, user_id: str | None) -> None:
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[stream] = user_id

    def _look_up(self, recorded: Recorded) -> str | None:
        """The owner of the chat that the event belongs to; None when that chat is deleted."""
        for is_caught_up in (False, True):
            with self._store.snapshot() as snapshot:
                position = snapshot.state.position
                stream_id = recorded.chat_id
                stream = kind_of(stream_id).read(snapshot.tables, snapshot.txn, stream_id)
                first_position, owner = stream.stream_no, stream.owner
            # An index that is behind the event may have the owner of an earlier chat of this id.
            if is_caught_up or position >= recorded.position:
                return None if first_position is None or recorded.position < first_position else owner
            self._store.catch_up(recorded.position, RETRY_S)
        raise AssertionError


class Readable:
    """
    Tells the events that one user may read: those of the user's own streams, and those of streams that a chat or the
    application opens to the user when the event is read, not when it was written. To be asked in the order of the log.

    A user who is removed from a chat sees nothing more of it at once, not even the removal.
    """

    def __init__(self, store: WholeStore, user: User) -> None:
        self._store, self._user = store, user
        self._owners = Owners(store)
        self._closed: set[str] = set()
        """Streams that were not open to the user. The event by which a user becomes a member comes before those that follow."""

    def __call__(self, recorded: Recorded) -> bool:
        """Whether the user may read an event."""
        stream, body = recorded.chat_id, recorded.body
        if isinstance(body, MEMBER_BODIES):
            self._closed -= {stream, thread_stream(stream)}
        if self._owners.is_owner(self._user.id, recorded):
            return True
        if isinstance(body, StreamDeleted):
            self._closed.discard(stream)
            return is_member_of_deleted(body, stream, self._user.id)
        if stream in self._closed or not kind_of(stream).has_members:
            return False
        is_open = self._is_open(recorded)
        if not is_open:
            if len(self._closed) >= _KEPT:
                self._closed.clear()
            self._closed.add(stream)
        return is_open

    def _is_open(self, recorded: Recorded) -> bool:
        """Whether a stream of another user is open to this one, once the index knows the event."""
        kind = kind_of(recorded.chat_id)
        for is_caught_up in (False, True):
            with self._store.snapshot() as snapshot:
                position = snapshot.state.position
                key = recorded.chat_id.removeprefix(kind.prefix)
                stream_no = UserSnapshot(snapshot, self._user).stream(kind, key, even_quarantined=True).stream_no
            if is_caught_up or position >= recorded.position:
                return stream_no is not None and stream_no <= recorded.position
            self._store.catch_up(recorded.position, RETRY_S)
        raise AssertionError

    def next_of(self, read: Callable[[int], Sequence[Recorded]], after: int) -> Sequence[Recorded]:
        """Return the user's events of the next page after a position that has any; none at the end of the log."""
        while page := read(after):
            if readable := [recorded for recorded in page if self(recorded)]:
                return readable
            after = page[-1].position
        return []


_WHY: Final = "covers the chats of all users, and this ledger is limited to one; only the ledger of all of them has it"


class UserLog:
    """The events on a log that one user may read. Positions count over everybody's."""

    def __init__(self, store: WholeStore, user: User) -> None:
        self._whole, self._user = store, user

    def _log_of_all(self) -> LedgerLog:
        return self._whole.log

    last_position = passed_on(LedgerLog.last_position, _log_of_all)
    settled_position = passed_on(LedgerLog.settled_position, _log_of_all)
    wait = passed_on(LedgerLog.wait, _log_of_all)

    def read(self, after: int, limit: int = READ_PAGE) -> Sequence[Recorded]:
        """Return the next events after a position, in order; none at the end of the log."""
        # Many events may be others': whole pages are read, or there would be a request for nearly every event.
        read = partial(self._whole.log.read, limit=max(limit, READ_PAGE))
        return Readable(self._whole, self._user).next_of(read, after)[:limit]

    def event_at(self, position: int) -> Recorded | None:
        """The event at a position; None where it was erased, beyond the end, or not the user's to read."""
        recorded = self._whole.log.event_at(position)
        return recorded if recorded is not None and Readable(self._whole, self._user)(recorded) else None

    @property
    def identity(self) -> str:
        return self._whole.log.identity

    def load_bookmark(self, key: str) -> Bookmark | None:
        """Return the bookmark of a member of one of the user's named feeds."""
        stored = self._whole.log.load_bookmark(self._kept_key(key))
        return None if stored is None else self._shown(stored)

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """Keep it; see `EventLog.save_bookmark`."""
        stored = msgspec.structs.replace(bookmark, name=self._prefix + bookmark.name)
        return self._shown(self._whole.log.save_bookmark(stored))

    def bookmarks(self) -> list[Bookmark]:
        """Return the bookmarks of the user's named feeds."""
        return [self._shown(stored) for stored in self._whole.log.bookmarks() if stored.name.startswith(self._prefix)]

    def drop_bookmark(self, key: str) -> None:
        self._whole.log.drop_bookmark(self._kept_key(key))

    @cached_property
    def _prefix(self) -> str:
        return feeds_of(self._user.id)

    def _kept_key(self, key: str) -> str:
        index, count, name = key.split("/", 2)
        return bookmark_key(self._prefix + name, int(index), int(count))

    def _shown(self, stored: Bookmark) -> Bookmark:
        """The bookmark under the name that the user gave to the feed."""
        return msgspec.structs.replace(stored, name=stored.name.removeprefix(self._prefix))


class UserRefusals:
    """The members of `StorePort` that one user's store refuses."""

    submit = refused("submit", _WHY)

    def whole(self, task: AdminTask) -> Never:
        """Raise `AccessDeniedError`, which names the task."""
        refused(task, _WHY)()


class UserStore(UserRefusals):
    """
    The `StorePort` of one user.

    Decisions are made on a state without the others. Only where they would write what cannot be, an id that somebody uses, they
    are refused like an id of the user's own.
    """

    def __init__(self, store: WholeStore, user: User) -> None:
        self._whole, self._user, self.user_id = store, user, user.id
        self.log = UserLog(store, user)

    def _store_of_all(self) -> WholeStore:
        return self._whole

    @property
    def scratch(self) -> Scratch:
        return self._whole.scratch

    @property
    def task_writes(self) -> TaskWriteBuffer:
        return self._whole.task_writes

    @property
    def live(self) -> LiveStreams:
        return self._whole.live

    @property
    def redactor(self) -> Redactor | None:
        return self._whole.redactor

    @property
    def meaning(self) -> Meaning:
        return self._whole.meaning

    @contextlib.contextmanager
    def snapshot(self, chats: ChatsToRead = NO_CHATS, /) -> Generator[UserSnapshot]:
        """Open a snapshot restricted to the chats and threads that the user may read."""
        # All chats of a user are in one share, so that is what is asked for: an error about another share would tell which chats
        # of others there are.
        if chats != NO_CHATS and not chats.is_written:
            chats = ChatsToRead(user_id=self._user.id)
        with self._whole.snapshot(chats) as snapshot:
            yield UserSnapshot(snapshot, self._user)

    def execute(
        self,
        streams: StreamKind[R],
        key: str,
        decide: Decision[R],
        *,
        kind: EventKind | None = None,
        timeout_s: float = RETRY_S,
    ) -> list[Recorded]:
        """
        Decide, write and apply; see `Store.execute`. A new stream becomes the user's, who is the actor unless the context names one.

        Raises:
            AccessDeniedError: It would make a chat of another user, is not allowed by the user's role, or concerns the state of
                a graph that is another's.
            AlreadyExistsError: It would use an id that is taken.
        """
        with acting_unless_named(self._user.id):
            permitted = self._permitted(streams, decide)
            return self._whole.execute(streams, key, permitted, kind=kind, timeout_s=timeout_s, view=self._view)

    def adopt(self, streams: StreamKind[R], takes: Sequence[tuple[str, Take[R]]]) -> list[Callable[[], list[Recorded]]]:
        """
        Implement `StorePort.adopt`, where the user may write the events.

        What waits raises `AccessDeniedError` as `execute`, or where an event says that somebody else did it, and `AlreadyExistsError`
        where it would use an id that is taken.
        """

        def permitted(take: Take[R], state: R) -> Sequence[EncodedEvent]:
            events = take(state)
            streams.permitted(state, [encoded.event.body for encoded in events], self._user)
            for encoded in events:
                if encoded.event.actor not in {None, self._user.id}:
                    msg = (
                        f"event {encoded.event.originator_version} of {state.name} is by somebody else, as whom this user cannot act; "
                        "whoever may write as everybody can bring it"
                    )
                    raise AccessDeniedError(msg)
            return events

        return self._whole.adopt(streams, [(key, partial(permitted, take)) for key, take in takes], view=self._view)

    def begin(
        self, streams: StreamKind[R], decisions: Sequence[tuple[str, Decision[R]]]
    ) -> list[Callable[[], list[Recorded]]]:
        """Implement `StorePort.begin`; what is begun is refused as by `execute`."""
        with acting_unless_named(self._user.id):
            permitted = [(key, self._permitted(streams, decide)) for key, decide in decisions]
            waits = self._whole.begin(streams, permitted, view=self._view)
            # A decision that lost a race is made again by the thread that waits for it, which must act in the same name.
            return [partial(copy_context().run, wait) for wait in waits]

    def _view(self, snapshot: Snapshot) -> UserSnapshot:
        return UserSnapshot(snapshot, self._user)

    def _permitted(self, streams: StreamKind[R], decide: Decision[R]) -> Decision[R]:
        """Return a decision as the user may make it."""
        return lambda state, now: streams.permitted(state, decide(state, now), self._user)

    catch_up = passed_on(WholeStore.catch_up, _store_of_all)
    check_open = passed_on(WholeStore.check_open, _store_of_all)
    erase_deleted = passed_on(WholeStore.erase_deleted, _store_of_all)
    finish_erasures = passed_on(WholeStore.finish_erasures, _store_of_all)
    search_later = passed_on(WholeStore.search_later, _store_of_all)
    bytes_at = passed_on(WholeStore.bytes_at, _store_of_all)  # the caller knows that it may be read

    def events(
        self,
        after: int,
        *,
        up_to: int | None = None,
        stream_id: str | None = None,
        is_closed: Callable[[], bool] = lambda: False,
    ) -> Iterator[Recorded]:
        """The events that the user may read and that are on the log after a position, up to another one."""
        is_readable = Readable(self._whole, self._user)
        for recorded in self._whole.events(after, up_to=up_to, stream_id=stream_id, is_closed=is_closed):
            if is_readable(recorded):
                yield recorded

    def page(
        self, after: int, *, stream_id: str | None = None, limit: int = READ_PAGE, is_woken: bool = False
    ) -> Sequence[Recorded]:
        """About so many of the user's next events after a position; none at the end of the log."""
        read = partial(self._whole.page, stream_id=stream_id, limit=limit, is_woken=is_woken)
        return Readable(self._whole, self._user).next_of(read, after)

    def sweep_large(self) -> int:
        """Do nothing: unreferenced large data belong to nobody. A sweep of the whole store erases them."""
        return 0
