"""A store limited to one user: what belongs to others is not there, and what concerns everybody is refused."""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from typing import Final, Never

import msgspec

from chatledger.domain.chat.events import Body, ChatCreated, ChatDeleted, MessagesAppended, Recorded
from chatledger.domain.errors import AccessDeniedError, AlreadyExistsError, ChatExistsError, MessageConflictError
from chatledger.domain.graph.events import StateDeleted, StatePut, is_state_stream, parse_state_id, shown_id
from chatledger.domain.log.tombstones import is_owner_of_deleted, owner_digest
from chatledger.domain.thread.events import AgentThreadDeleted, thread_of, thread_stream, with_owner
from chatledger.projections.graph.reader import IndexedGraphState
from chatledger.projections.index import Snapshot
from chatledger.projections.thread.reader import IndexedThread
from chatledger.projections.user_snapshot import OwnedChat, OwnedSnapshot, OwnedThread

from ...log.bookmarks import Bookmark, bookmark_key
from ...log.port import READ_PAGE
from ...store.commands import Decide, DecideOnState, DecideOnThread, EventKind
from ...store.store import RETRY_S, Store
from ..port import AdminTask, LedgerSnapshot, LedgerStore, refused

_KEPT: Final = 10_000


class Owners:
    """
    Tells the events of one user's chats and threads from those of others. To be asked in the order of the log.

    The owner of a chat never changes, but its id can get another owner after its deletion. What is still on the log of a
    deleted chat is about to be erased, and belongs to nobody any more unless its beginning was seen here; its tombstone
    belongs to who owned it.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    def is_owner(self, user_id: str, recorded: Recorded) -> bool:
        """Whether the event belongs to a chat of this user."""
        chat_id, body = recorded.chat_id, recorded.body
        if isinstance(body, ChatDeleted | AgentThreadDeleted):
            known = self._known.pop(chat_id, None)
            if body.owner_digest is None:  # written before tombstones could tell
                return known == user_id
            return is_owner_of_deleted(body, chat_id, user_id)
        if isinstance(body, StateDeleted):  # who has not seen the state cannot tell whose it was
            return self._known.pop(chat_id, None) == user_id
        if isinstance(body, ChatCreated):
            self._keep(chat_id, body.user_id)
        elif isinstance(body, StatePut):
            self._keep(chat_id, parse_state_id(body.state_id).user_id)
        elif chat_id not in self._known:
            self._keep(chat_id, self._look_up(recorded))
        return self._known[chat_id] == user_id

    def _keep(self, chat_id: str, user_id: str | None) -> None:
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[chat_id] = user_id

    def _look_up(self, recorded: Recorded) -> str | None:
        """The owner of the chat that the event belongs to; None when that chat is deleted."""
        while True:
            with self._store.snapshot() as snapshot:
                position = snapshot.state.position
                first_position, owner = _life(snapshot, recorded.chat_id)
            if position >= recorded.position:
                break
            self._store.catch_up(recorded.position, RETRY_S)
        return None if first_position is None or recorded.position < first_position else owner


def _life(snapshot: LedgerSnapshot, stream: str) -> tuple[int | None, str | None]:
    """Where a chat or a thread of agents that is there began, and its owner."""
    thread_id = thread_of(stream)
    if thread_id is not None:
        thread = snapshot.thread(thread_id, even_quarantined=True)
        return (None, None) if thread.record is None else (thread.record.first_position, thread.owner)
    if is_state_stream(stream):
        state = IndexedGraphState(snapshot.tables, snapshot.txn, stream).record
        return (None, None) if state is None else (state.first_position, parse_state_id(state.state_id).user_id)
    chat = snapshot.chat(stream, even_quarantined=True)
    if chat.record is None or chat.profile is None:
        return None, None
    return chat.record.first_position, chat.profile.user_id


_WHY: Final = "concerns the chats of all users; use the ledger that this one was made from, not one made by for_user"


class OwnedLog:
    """The events of one user's chats on a log. Positions count over everybody's."""

    def __init__(self, store: Store, user_id: str) -> None:
        self._whole, self._user_id = store, user_id

    def last_position(self) -> int:
        """The position of the last event of all."""
        return self._whole.log.last_position()

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until anybody's event follows a position."""
        return self._whole.log.wait(after, timeout_s)

    def read(self, after: int, limit: int = READ_PAGE) -> list[Recorded]:
        """The events after a position, in order; empty at the end of the log."""
        # Of others there may be many: as many requests as pages, not as events.
        while page := self._whole.log.read(after, max(limit, READ_PAGE)):
            if owned := self._owned(page):
                return owned[:limit]
            after = page[-1].position
        return []

    def read_stream(
        self, stream_id: str, *, after: int, limit: int = READ_PAGE, after_version: int = 0
    ) -> list[Recorded]:
        """Return the events of a stream after a position (and a version), in order."""
        while page := self._whole.log.read_stream(stream_id, after=after, limit=limit, after_version=after_version):
            if owned := self._owned(page):
                return owned
            after = page[-1].position
        return []

    def event_at(self, position: int) -> Recorded | None:
        """The event at a position; None where it was erased, beyond the end, or another user's."""
        found = self._whole.log.event_at(position)
        return found if found is not None and self._owned([found]) else None

    @property
    def identity(self) -> str:
        """Tells the log from others."""
        return self._whole.log.identity

    def load_bookmark(self, key: str) -> Bookmark | None:
        """Return the bookmark of a member of one of the user's named feeds."""
        found = self._whole.log.load_bookmark(self._kept_key(key))
        return None if found is None else self._given(found)

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """Keep it; see `EventLog.save_bookmark`."""
        kept = msgspec.structs.replace(bookmark, name=self._prefix + bookmark.name)
        return self._given(self._whole.log.save_bookmark(kept))

    def bookmarks(self) -> list[Bookmark]:
        """Return the bookmarks of the user's named feeds."""
        return [self._given(kept) for kept in self._whole.log.bookmarks() if kept.name.startswith(self._prefix)]

    def drop_bookmark(self, key: str) -> None:
        """Forget it."""
        self._whole.log.drop_bookmark(self._kept_key(key))

    @cached_property
    def _prefix(self) -> str:
        # Users may give their feeds the same names. No chat has the empty id, so this is no tombstone's digest.
        return f"{owner_digest('', self._user_id)}/"

    def _kept_key(self, key: str) -> str:
        index, count, name = key.split("/", 2)
        return bookmark_key(self._prefix + name, int(index), int(count))

    def _given(self, kept: Bookmark) -> Bookmark:
        return msgspec.structs.replace(kept, name=kept.name.removeprefix(self._prefix))

    def _owned(self, page: Sequence[Recorded]) -> list[Recorded]:
        owners = Owners(self._whole)
        return [recorded for recorded in page if owners.is_owner(self._user_id, recorded)]


class OwnerRefusals:
    """The members of `LedgerStore` that one user's store refuses."""

    submit = refused("submit", _WHY)

    def whole(self, task: AdminTask) -> Never:
        """Raise `AccessDeniedError`, which names the task."""
        refused(task, _WHY)()


class OwnedStore(OwnerRefusals):
    """
    The `LedgerStore` of one user.

    Decisions are made on a state without the others. Only where they would write what cannot be, an id that somebody uses, they
    are refused like an id of the user's own.
    """

    def __init__(self, store: Store, user_id: str) -> None:
        self._whole, self._user_id = store, user_id
        self.log = OwnedLog(store, user_id)

    @contextlib.contextmanager
    def snapshot(self, _chats: object = None, /) -> Generator[OwnedSnapshot]:
        """Open a snapshot restricted to the user's chats and threads."""
        with self._whole.snapshot() as snapshot:
            yield OwnedSnapshot(snapshot, self._user_id)

    def execute(
        self, chat_id: str, decide: Decide, *, kind: EventKind | None, timeout_s: float = RETRY_S
    ) -> list[Recorded]:
        """
        Decide, write and apply; see `Store.execute`.

        Raises:
            AccessDeniedError: It would make a chat of another user.
            ChatExistsError: It would make a chat whose id is taken.
            MessageConflictError: It would add a message whose id is used in another chat.
        """

        def read(snapshot: Snapshot) -> OwnedChat:
            return OwnedSnapshot(snapshot, self._user_id).chat(chat_id)

        def decide_owned(state: OwnedChat, now: int) -> list[Body]:
            bodies = decide(state, now)
            self._check(state, bodies)
            return bodies

        return self._whole.execute_on_stream(chat_id, read, decide_owned, kind=kind, timeout_s=timeout_s)

    def execute_on_thread(self, thread_id: str, decide: DecideOnThread) -> list[Recorded]:
        """
        Decide, write and apply on a thread of agents; a new one becomes the user's.

        Raises:
            AlreadyExistsError: The id is another user's.
        """

        def read(snapshot: Snapshot) -> OwnedThread:
            return OwnedSnapshot(snapshot, self._user_id).thread(thread_id)

        def decide_owned(state: OwnedThread, now: int) -> list[Body]:
            bodies = decide(state, now)
            if bodies and state.is_taken:
                msg = f"thread {thread_id!r} cannot be used, as its id is taken; use another one"
                raise AlreadyExistsError(msg)
            return bodies if state.record is not None else [with_owner(body, self._user_id) for body in bodies]

        return self._whole.execute_on_stream(thread_stream(thread_id), read, decide_owned, kind=None)

    def execute_on_state(self, state_id: str, decide: DecideOnState) -> list[Recorded]:
        """
        Decide, write and apply on the state of a graph, whose id names its owner.

        Raises:
            AccessDeniedError: It is another user's.
        """
        if parse_state_id(state_id).user_id != self._user_id:
            msg = f"may not modify state {shown_id(state_id)!r}: it belongs to another user"
            raise AccessDeniedError(msg)
        return self._whole.execute_on_state(state_id, decide)

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread of the user's, and erase its events."""
        with self.snapshot() as snapshot:
            if snapshot.thread(thread_id).record is None:
                return
        self._whole.delete_thread(thread_id, is_due=self._is_owned)

    def _is_owned(self, thread: IndexedThread) -> bool:
        return thread.is_of(self._user_id)

    def _check(self, state: OwnedChat, bodies: Sequence[Body]) -> None:
        if any(isinstance(body, ChatCreated) and body.user_id != self._user_id for body in bodies):
            msg = f"chat {state.chat_id!r} cannot be made for another user by a ledger that is limited to one"
            raise AccessDeniedError(msg)
        if bodies and state.is_taken:
            raise ChatExistsError(state.chat_id)
        for body in bodies:
            for message in body.messages if isinstance(body, MessagesAppended) else ():
                if state.is_used_elsewhere(message.id):
                    raise MessageConflictError(message.id, chat_id=state.chat_id, other_chat=True)

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Take in everything up to the present end of the log, or to `position`; returns the position reached."""
        return self._whole.catch_up(position, timeout_s)

    def events(
        self, after: int, *, stream_id: str | None = None, is_closed: Callable[[], bool] = lambda: False
    ) -> Iterator[Recorded]:
        """The user's events that are on the log after a position."""
        owners = Owners(self._whole)
        for recorded in self._whole.events(after, stream_id=stream_id, is_closed=is_closed):
            if owners.is_owner(self._user_id, recorded):
                yield recorded

    def page(self, after: int, *, stream_id: str | None = None, limit: int = READ_PAGE) -> Sequence[Recorded]:
        """About so many of the user's next events after a position; none at the end of the log."""
        owners = Owners(self._whole)
        while page := self._whole.page(after, stream_id=stream_id, limit=limit):
            if owned := [recorded for recorded in page if owners.is_owner(self._user_id, recorded)]:
                return owned
            after = page[-1].position
        return []

    def sweep_large(self) -> int:
        """Do nothing: unreferenced large data belong to nobody. A sweep of the whole store erases them."""
        return 0

    def finish_erasures(self) -> None:
        """Erase what deleted chats left on the log and in the index."""
        self._whole.finish_erasures()

    def check_open(self) -> None:
        """Raise `LedgerClosedError` after the store was closed."""
        self._whole.check_open()
