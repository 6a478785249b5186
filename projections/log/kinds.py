"""
The kinds of streams on the log: of chats, of agents' threads, of the states of graphs.

The index, the store, the scopes of users and repairs know a kind by its row in `STREAM_KINDS`; another kind is another row.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from chatledger.domain.chat.events import Body, ChatCreated, Recorded
from chatledger.domain.chat.members import User
from chatledger.domain.chat.state import StreamState
from chatledger.domain.graph.events import STATE_PREFIX, StatePut, owner_of_state, state_stream
from chatledger.domain.thread.events import THREAD_PREFIX, thread_stream

from ..chat.reader import IndexedChat, chat_at
from ..graph.reader import IndexedGraphState, deletions_of_states, state_at
from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from ..thread.cascades import deletions_of_threads, reemissions
from ..thread.reader import IndexedThread, thread_at
from ..thread.rows import forget_copies
from ..user_streams import UserChat, UserThread, permitted_in_chat, permitted_in_thread, state_of_user


class StoredStream(StreamState, Protocol):
    """A stream as the index has it at one moment: the state that decisions read."""

    @property
    def stream_no(self) -> int | None:
        """The position of its first event; None when there is no such thing."""
        ...

    @property
    def owner(self) -> str | None:
        """Its owner; None when it is nobody's."""
        ...

    @property
    def is_taken(self) -> bool:
        """Whether its id is that of a stranger's, which is not shown."""
        ...

    def command(self, command_id: str) -> tuple[int, int] | None:
        """Return the positions of the first and the last event of a command; None when it left no trace."""
        ...


class StreamWriter(StoredStream, Protocol):
    """A stream in a write transaction."""

    def apply(self, recorded: Recorded) -> None:
        """Apply its next event. Raises `ChainIntegrityError` when it does not follow."""
        ...

    def flush(self) -> None:
        """Write what was kept back."""
        ...


R = TypeVar("R", bound=StoredStream)
Decision = Callable[[R, int], list[Body]]
"""A decision on the state of a stream: given the state and the time in ms, it returns the events to be written."""


class StreamKind(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """
    A kind of streams. Users know one of them by a key: the id of a chat, a thread or a state.

    Args:
        name: What one of them is called in errors.
        prefix: How the ids of its streams begin, and those of no other kind.
        stream_of: Returns the id of the stream with a key.
        read: Returns a stream, by its id; one without a record where there is none.
        write: Returns what applies the events of a stream, by its id.
        find: Returns the id of the living stream of a number, "" where its first events do not tell it; None for other numbers.
        read_for: Returns a stream, by its key, as a user may see it: a stranger's as none, with `is_taken`.
        permitted: Returns the events of a user's decision as they may be written. Raises `AccessDeniedError` where they would be
            another's or the user's role does not allow them, `AlreadyExistsError` where an id is taken.
        owner_named: Returns the owner that an event names with which a stream begins; None for other events.
        is_refused_in_quarantine: Whether a quarantined stream takes no commands.
        on_chat_deleted: Given a chat and the position of its tombstone, returns keys of streams that go with it, with the
            decisions that delete them.
        before_erasure: Given the number of a deleted stream, returns what has to be written before its events are erased: keys,
            with decisions to carry out one after another.
        after_erasure: Forgets what `before_erasure` found, as that is written.
    """

    name: str
    prefix: str
    stream_of: Callable[[str], str]
    read: Callable[[Tables, Transaction, str], R]
    write: Callable[[Tables, Transaction, str], StreamWriter]
    find: Callable[[Transaction, Tables, int], str | None]
    read_for: Callable[[Tables, Transaction, str, User], R]
    permitted: Callable[[R, list[Body], User], list[Body]]
    owner_named: Callable[[Body], str | None]
    is_refused_in_quarantine: bool
    on_chat_deleted: Callable[[Transaction, Tables, str, int], Sequence[tuple[str, Decision[R]]]]
    before_erasure: Callable[[Transaction, Tables, int], Sequence[tuple[str, Iterable[Decision[R]]]]]
    after_erasure: Callable[[Transaction, Tables, int], None]

    def describe(self, stream_id: str) -> str:
        """Return the name of a stream in errors."""
        return f"{self.name} {stream_id.removeprefix(self.prefix)!r}"


# Who only reads does without the writers, which bring the search index with them.
def _write_chat(tables: Tables, txn: Transaction, stream: str) -> StreamWriter:
    from ..chat.writer import ChatWriter

    return ChatWriter(tables, txn, stream)


def _write_thread(tables: Tables, txn: Transaction, stream: str) -> StreamWriter:
    from ..thread.writer import ThreadWriter

    return ThreadWriter(tables, txn, stream.removeprefix(THREAD_PREFIX))


def _write_state(tables: Tables, txn: Transaction, stream: str) -> StreamWriter:
    from ..graph.writer import GraphStateWriter

    return GraphStateWriter(tables, txn, stream)


CHATS: Final = StreamKind[IndexedChat](
    name="chat",
    prefix="",
    stream_of=lambda chat_id: chat_id,
    read=lambda tables, txn, stream: IndexedChat(tables, txn, stream, tables.chat_no(txn, stream)),
    write=_write_chat,
    find=chat_at,
    read_for=UserChat,
    permitted=permitted_in_chat,
    owner_named=lambda body: body.user_id if isinstance(body, ChatCreated) else None,
    is_refused_in_quarantine=True,
    on_chat_deleted=lambda _txn, _tables, _chat_id, _position: (),
    before_erasure=lambda _txn, _tables, _stream_no: (),
    after_erasure=lambda _txn, _tables, _stream_no: None,
)
THREADS: Final = StreamKind[IndexedThread](
    name="thread",
    prefix=THREAD_PREFIX,
    stream_of=thread_stream,
    read=lambda tables, txn, stream: IndexedThread(tables, txn, stream.removeprefix(THREAD_PREFIX)),
    write=_write_thread,
    find=thread_at,
    read_for=UserThread,
    permitted=permitted_in_thread,
    owner_named=lambda _body: None,  # a thread without an owner has that of the chat with its id
    is_refused_in_quarantine=True,
    on_chat_deleted=deletions_of_threads,
    before_erasure=reemissions,
    after_erasure=forget_copies,
)
STATES: Final = StreamKind[IndexedGraphState](
    name="state",
    prefix=STATE_PREFIX,
    stream_of=state_stream,
    read=IndexedGraphState,
    write=_write_state,
    find=state_at,
    read_for=state_of_user,
    permitted=lambda _state, bodies, _user: bodies,  # its id names its owner
    owner_named=lambda body: owner_of_state(body.state_id) if isinstance(body, StatePut) else None,
    is_refused_in_quarantine=False,
    on_chat_deleted=deletions_of_states,
    before_erasure=lambda _txn, _tables, _stream_no: (),
    after_erasure=lambda _txn, _tables, _stream_no: None,
)
STREAM_KINDS: Final[tuple[StreamKind[Any], ...]] = (THREADS, STATES, CHATS)
"""All kinds; that of chats, whose ids have no prefix, is last."""


def kind_of(stream_id: str) -> StreamKind[Any]:
    """Return the kind of a stream."""
    return next(kind for kind in STREAM_KINDS if stream_id.startswith(kind.prefix))
