"""
The kinds of streams on the log: of chats, and of the families of versioned values: agents' threads, states of graphs, and items.

The index, the store, the scopes of users and repairs know a kind by its row in `STREAM_KINDS`; another kind is another row.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from chatledger.domain.chat.events import Body
from chatledger.domain.chat.members import User
from chatledger.domain.chat.state import StreamSnapshot
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.versioned.keys import ITEM, STATE, THREAD, Family, family_of_id

from ..chat.reader import IndexedChat, chat_at
from ..lmdb.environment import Transaction
from ..lmdb.tables import Tables
from ..user_streams import UserChat, UserVersioned, permitted_in_chat, permitted_in_value
from ..versioned.cascades import (
    DecideOnValue,
    deletions_of_holds,
    deletions_of_states,
    deletions_of_threads,
    reemissions,
)
from ..versioned.reader import IndexedVersioned, stream_at
from ..versioned.rows import forget_copies


class StoredStream(StreamSnapshot, Protocol):
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

    @property
    def name(self) -> str: ...

    @property
    def holds(self) -> tuple[LegalHold, ...]: ...

    def mark(self, holds: Sequence[LegalHold]) -> list[Body]:
        """Return the event after which these are the holds on it; none where they are."""
        ...

    def command(self, command_id: str) -> tuple[int, int] | None:
        """Return the positions of the first and the last event of a command; None when it left no trace."""
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
        find: Returns the id of the living stream of a number, "" where its first events do not tell it; None for other numbers.
        read_for: Returns a stream, by its key, as a user may see it: a stranger's as none, with `is_taken`.
        has_members: Whether one of another user may be open to members of a chat.
        permitted: Returns the events of a user's decision as they may be written. Raises `AccessDeniedError` where they would be
            another's or the user's role does not allow them, `AlreadyExistsError` where an id is taken.
        on_deleted: Given the kind and the key of what was deleted, and the position of its tombstone, returns keys of streams that
            go with it, with the decisions that delete them.
        before_erasure: Given the number of a deleted stream, returns what has to be written before its events are erased: keys,
            with decisions to carry out one after another.
        after_erasure: Forgets what `before_erasure` found, as that is written.
    """

    name: str
    prefix: str
    stream_of: Callable[[str], str]
    read: Callable[[Tables, Transaction, str], R]
    find: Callable[[Transaction, Tables, int], str | None]
    read_for: Callable[[Tables, Transaction, str, User], R]
    has_members: bool
    permitted: Callable[[R, list[Body], User], list[Body]]
    on_deleted: Callable[[Transaction, Tables, str, str, int], Sequence[tuple[str, Decision[R]]]]
    before_erasure: Callable[[Transaction, Tables, int], Sequence[tuple[str, Iterable[Decision[R]]]]]
    after_erasure: Callable[[Transaction, Tables, int], None]

    def describe(self, stream_id: str) -> str:
        return f"{self.name} {stream_id.removeprefix(self.prefix)!r}"


CHATS: Final = StreamKind[IndexedChat](
    name="chat",
    prefix="",
    stream_of=str,
    read=IndexedChat,
    find=chat_at,
    read_for=UserChat,
    has_members=True,
    permitted=permitted_in_chat,
    on_deleted=lambda _txn, _tables, _name, _key, _position: (),
    before_erasure=lambda _txn, _tables, _stream_no: (),
    after_erasure=lambda _txn, _tables, _stream_no: None,
)


def _versioned(
    family: Family, on_deleted: Callable[[Transaction, Tables, str, str, int], Sequence[tuple[str, DecideOnValue]]]
) -> StreamKind[IndexedVersioned]:
    return StreamKind[IndexedVersioned](
        name=family.name,
        prefix=family.prefix,
        stream_of=family.stream_of,
        read=IndexedVersioned,
        find=lambda txn, tables, stream_no: stream_at(txn, tables, family, stream_no),
        read_for=lambda tables, txn, key, user: UserVersioned(tables, txn, family, key, user),
        has_members=family is THREAD,
        permitted=permitted_in_value,
        on_deleted=on_deleted,
        before_erasure=reemissions,
        after_erasure=forget_copies,
    )


THREADS: Final = _versioned(THREAD, deletions_of_threads)
STATES: Final = _versioned(STATE, deletions_of_states)
ITEMS: Final = _versioned(ITEM, deletions_of_holds)
STREAM_KINDS: Final[tuple[StreamKind[Any], ...]] = (THREADS, STATES, ITEMS, CHATS)
"""All kinds; that of chats, whose ids have no prefix, is last."""
KIND_OF_FAMILY: Final = {kind.name: kind for kind in (THREADS, STATES, ITEMS)}


def kind_of_id(some_id: str) -> StreamKind[IndexedVersioned]:
    """Return the kind of the state or the item with an id. Raises `InvalidValueError` when it is an id of neither."""
    return KIND_OF_FAMILY[family_of_id(some_id).name]


def kind_of(stream_id: str) -> StreamKind[Any]:
    return next(kind for kind in STREAM_KINDS if stream_id.startswith(kind.prefix))
