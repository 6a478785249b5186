"""The port of a ledger: what it asks of its store, which may be the whole one, or one user's, or one moment's part of it."""

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Literal, Never, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import AccessDeniedError
from chatledger.domain.limits import sought_id
from chatledger.domain.values import Branch, Chat
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.lists import ChatCursor, ChatList
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.generations import Erasure, IndexState
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.tables import Tables
from chatledger.projections.log.kinds import Decision, R, StreamKind
from chatledger.projections.snapshot import Snapshot

from ..log.bookmarks import Bookmark
from ..log.live import LiveStreams
from ..store.commands import ChatsToRead, Decide, EventKind, Take, View
from ..store.redactor import Redactor
from ..store.task_writes import TaskWriteBuffer

if TYPE_CHECKING:
    from ..store.group_commit import QueuedCommand
    from ..store.meaning import Meaning
    from ..store.store import Store
    from ..store.temp_folders import Scratch

P = ParamSpec("P")
T = TypeVar("T")

AdminTask = Literal[
    "add_remote",
    "anchor",
    "backup",
    "erase_user",
    "export_user",
    "forget_backup",
    "hold",
    "holds",
    "import_bundle",
    "projections",
    "pull",
    "rebuild",
    "release",
    "remotes",
    "remove_remote",
    "remove_retention",
    "repair",
    "retention",
    "set_retention",
    "verify",
]
"""A task on the chats of all users: the whole store carries it out, the others refuse it by this name."""


class LedgerLog(Protocol):
    """The events of the log, and the positions of named feeds: everybody's, or one user's. See `EventLog`."""

    @property
    def identity(self) -> str: ...

    def last_position(self) -> int:
        """Return the position of the last event, whosever it is; 0 for an empty log."""
        ...

    def settled_position(self, seen: int) -> int:
        """Return where the log ends. That it ends before a position that was seen is certain."""
        ...

    def wait(self, after: int, timeout_s: float) -> bool: ...

    def read(self, after: int, limit: int = ...) -> Sequence[Recorded]:
        """Return the next events after a position, in order; none at the end of the log."""
        ...

    def event_at(self, position: int) -> Recorded | None:
        """Return the event at a position; None where it was erased, or beyond the end."""
        ...

    def load_bookmark(self, key: str) -> Bookmark | None:
        """Return where the member of a named feed stands; None when nothing is kept under that key."""
        ...

    def save_bookmark(self, bookmark: Bookmark) -> Bookmark:
        """Keep a bookmark in place of the one with its revision, and return it with the new revision."""
        ...

    def bookmarks(self) -> list[Bookmark]:
        """Return all bookmarks, in no order."""
        ...

    def drop_bookmark(self, key: str) -> None: ...


class LedgerSnapshot(Protocol):
    """The index at one moment, inside one transaction: everybody's, one user's, or as it stood earlier. See `Snapshot`."""

    @property
    def user_id(self) -> str | None:
        """The only user whose chats are there; None when those of all are."""
        ...

    @property
    def is_past(self) -> bool:
        """Whether this is how it was at an earlier moment; its `state` is refused then."""
        ...

    @property
    def live(self) -> "LedgerSnapshot":
        """The index as it is now, which has threads, states and items; itself, where it is of no earlier moment."""
        ...

    @property
    def until(self) -> tuple[int, int | None] | None:
        """Up to which position, and time in ms, the messages of those count; None: all."""
        ...

    @property
    def state(self) -> IndexState:
        """The position of the index; it counts everybody's events."""
        ...

    @property
    def redacted_at(self) -> int:
        """The position of the last event that took content away, whoever's; 0 for none."""
        ...

    @property
    def txn(self) -> Transaction: ...

    @property
    def tables(self) -> Tables:
        """The tables of its environment: for reading what belongs to a chat that this snapshot gave."""
        ...

    def receipts(self, *, is_pending: bool | None = ...) -> list[Erasure]:
        """Return erasures that are to be done, or those that were done lately, or both."""
        ...

    def refuse(self, stream: str) -> None:
        """Raise `QuarantinedError` when a stream lost events, or has a foreign message on its subject."""

    def chat(self, chat_id: str, *, even_quarantined: bool = ...) -> IndexedChat:
        """Return the chat of that id; its record is None when there is none."""
        ...

    def stream(self, streams: StreamKind[R], key: str, *, even_quarantined: bool = ...) -> R:
        """Return the stream of that kind and key; its record is None when there is none."""
        ...

    def chat_nos(self, *, user_id: str | None = ...) -> list[int]:
        """Return the numbers of all chats, or of those of an owner, the last changed first."""
        ...

    def searched_chats(self, *, user_id: str | None = ...) -> list[int] | None:
        """Return the same for a search; None: all chats that the search index has."""
        ...

    def searched_values(self, *, user_id: str | None = ...) -> list[int]:
        """Return the numbers of the messages of an owner's threads, states and items, as far as they may be read."""
        ...

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None: ...

    def branch(self, branch_id: str) -> Branch | None:
        """Return the branch of that id, whatever its chat."""
        ...

    def list_chats(
        self, chats: ChatList = ..., *, limit: int | None = ..., offset: int = ..., after: ChatCursor | None = ...
    ) -> list[Chat]: ...

    def count_chats(self, chats: ChatList) -> int: ...


class StorePort(Protocol):
    """All that ledgers, and what stands on them, know of a store. See `Store` for details and errors."""

    @property
    def log(self) -> LedgerLog: ...

    @property
    def live(self) -> LiveStreams:
        """The live streams of all users; show only those of chats that a snapshot has."""
        ...

    @property
    def scratch(self) -> "Scratch":
        """The place of temporary folders for what is derived from the log."""
        ...

    @property
    def user_id(self) -> str | None:
        """The user whom it is limited to; None where it is everybody's."""
        ...

    @property
    def task_writes(self) -> TaskWriteBuffer:
        """The writes of tasks, of all users, that are not stored yet."""
        ...

    @property
    def redactor(self) -> Redactor | None:
        """Takes secrets out of what is to be written; None where nothing does."""
        ...

    @property
    def meaning(self) -> "Meaning":
        """The vectors of the messages of all users; look only at those of chats that a snapshot has."""
        ...

    def check_open(self) -> None:
        """Raise `LedgerClosedError` after the store was closed."""

    def snapshot(self, chats: ChatsToRead = ..., /) -> AbstractContextManager[LedgerSnapshot]:
        """Return the index as it is, inside a transaction, for a read of these chats."""
        ...

    def execute(
        self,
        streams: StreamKind[R],
        key: str,
        decide: Decision[R],
        *,
        kind: EventKind | None = ...,
        timeout_s: float = ...,
    ) -> list[Recorded]:
        """Decide on the present state of a stream, write and apply; return the events that were written."""
        ...

    def adopt(self, streams: StreamKind[R], takes: Sequence[tuple[str, Take[R]]]) -> list[Callable[[], list[Recorded]]]:
        """Begin to write events of another log, which were checked, as they are; return what waits for those that were written."""
        ...

    def begin(
        self, streams: StreamKind[R], decisions: Sequence[tuple[str, Decision[R]]]
    ) -> list[Callable[[], list[Recorded]]]:
        """Begin what `execute` does for each key and decision, together; return what waits for the outcome of each."""
        ...

    def submit(self, chat_id: str, decide: Decide, kind: EventKind, on_end: Callable[[], object]) -> "QueuedCommand":
        """Begin what `execute` does, in another thread, which calls `on_end` when it is over."""
        ...

    def erase_deleted(self) -> None:
        """Erase what deletions left on the log and in the index: now, or soon in another thread."""

    def finish_erasures(self) -> None:
        """Erase it now."""

    def sweep_large(self) -> int:
        """Erase large data that no event refers to, and return how many there were."""
        ...

    def search_later(self) -> AbstractContextManager[None]:
        """Return a time in which much is written, which gets into the search index in its end."""
        ...

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Take in everything up to the present end of the log, or to `position`; return the position reached."""
        ...

    def page(
        self, after: int, *, stream_id: str | None = ..., limit: int = ..., is_woken: bool = ...
    ) -> Sequence[Recorded]:
        """
        Return about so many of the next events after a position, whole commits at a time; none at the end of the log.

        `is_woken`: `wait` of the log has just said that there are some, and may have brought them.
        """
        ...

    def events(
        self,
        after: int,
        *,
        up_to: int | None = ...,
        stream_id: str | None = ...,
        is_closed: Callable[[], bool] = ...,
    ) -> Iterator[Recorded]:
        """Yield the events that are on the log after a position, up to another one; not more is read than may be between them."""
        ...

    def bytes_at(self, positions: Sequence[int]) -> dict[int, bytes]:
        """The bytes of the events at ascending positions, which their hashes are over. The caller knows that they may be read."""
        ...

    def whole(self, task: AdminTask) -> "Store":
        """
        Return the store of all users.

        Raises:
            AccessDeniedError: This one is limited to one user or one moment, and does no such task.
        """
        ...


class WholeStore(StorePort, Protocol):
    """The store of all users, which those of one user and of one moment stand on. See `Store`."""

    def snapshot(self, chats: ChatsToRead = ..., /) -> AbstractContextManager[Snapshot]:
        """Return the index as it is, inside a transaction."""
        ...

    def execute(
        self,
        streams: StreamKind[R],
        key: str,
        decide: Decision[R],
        *,
        kind: EventKind | None = ...,
        timeout_s: float = ...,
        view: View | None = ...,
    ) -> list[Recorded]:
        """Decide on the present state of a stream, as `view` shows it, write and apply; return the events that were written."""
        ...

    def adopt(
        self, streams: StreamKind[R], takes: Sequence[tuple[str, Take[R]]], *, view: View | None = ...
    ) -> list[Callable[[], list[Recorded]]]:
        """Begin to write events of another log, which were checked, as they are; return what waits for those that were written."""
        ...

    def begin(
        self, streams: StreamKind[R], decisions: Sequence[tuple[str, Decision[R]]], *, view: View | None = ...
    ) -> list[Callable[[], list[Recorded]]]:
        """Begin what `execute` does for each key and decision, together; return what waits for the outcome of each."""
        ...


class HeldStore(Protocol):
    """A store as a ledger holds it, alone or with other ledgers of the process."""

    @property
    def location(self) -> str:
        """Where it is, without secrets."""
        ...

    @property
    def store(self) -> WholeStore: ...

    def release(self) -> None:
        """Give it up; the last holder closes it."""


def refused(name: str, why: str) -> Callable[..., Never]:
    """Return a method that raises `AccessDeniedError`: a member of the port that a restricted store does not have."""

    def refuse(*_args: object, **_options: object) -> Never:
        msg = f"{name} {why}"
        raise AccessDeniedError(msg)

    return refuse


def passed_on(
    method: Callable[Concatenate[Any, P], T], to: Callable[[Any], object]
) -> Callable[Concatenate[Any, P], T]:
    """Return a member of the port that hands each call on, as it came, to the same member of the store that `to` finds."""
    name = method.__name__

    def hand_on(self: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = getattr(to(self), name)(*args, **kwargs)
        return answer

    functools.update_wrapper(hand_on, method)
    return hand_on


class LedgerPart:
    """A part of a ledger: its methods on one matter."""

    _cursors: "WeakSet[Any]"
    """The feeds and live streams that are open: closing the ledger closes them first."""

    @property
    def _store(self) -> StorePort:
        """The store, if the ledger is open. Raises `LedgerClosedError`."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether the ledger was closed; for what goes on after the call that began it."""
        raise NotImplementedError

    def _of_chat(self, chat_id: str, read: Callable[[IndexedChat], T]) -> T:
        """Return what a function reads of a chat; see `_chat`, which takes 2 µs more, a seventh of `get_chat`."""
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            return read(snapshot.chat(sought))

    def _of_message(
        self, message_id: str, read: Callable[[IndexedChat, Place], T], *, absent: T, what: str = "message_id"
    ) -> T:
        """Return what a function reads of a message, given its chat and its place there; `absent` where there is no such message."""
        sought = sought_id(message_id, what)
        with self._store.snapshot(ChatsToRead(message_ids=(sought,))) as snapshot:
            located = snapshot.find(sought)
            return absent if located is None else read(*located)

    @contextmanager
    def _chat(self, chat_id: str) -> Generator[IndexedChat]:
        """A chat at one moment, to be read inside; its record is None where there is no such chat, as of an id that no chat can have."""
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            yield snapshot.chat(sought)


def store_of(ledger: LedgerPart) -> StorePort:
    """
    Return what a ledger stands on, for the parts of chatledger that are not among its methods.

    Raises:
        LedgerClosedError: The ledger is closed.
    """
    return ledger._store  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # users are not to see it
