"""One stored state as the index has it at one moment: the state that decisions read, and the source of answers."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.events import Body
from chatledger.domain.chat.state import Tombstone
from chatledger.domain.content import Content, Edited, ListNode, piece_digest
from chatledger.domain.errors import DECODE_ERRORS, CorruptStateError
from chatledger.domain.graph.decide import GraphStateRecord, VersionRecord, decide_delete_state
from chatledger.domain.graph.events import (
    ASSISTANT_STATES,
    owner_of_state,
    parse_item_id,
    parse_state_id,
    shown_id,
    state_stream,
)

from ..content import StoredPiece, decode_piece, elements_of, leaf_of
from ..lmdb.checksums import without_keyed_checksum
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import number, to_number
from ..lmdb.tables import Tables
from . import keys

T = TypeVar("T")

MAX_DEPTH: Final = 32
"""So many lists may grow out of one another before one is stored whole."""

_record_decoder: Final = msgspec.msgpack.Decoder(GraphStateRecord)
_version_decoder: Final = msgspec.msgpack.Decoder(VersionRecord)
_DAMAGED: Final = (*DECODE_ERRORS, ValueError)
_LAST: Final = b"\xff" * 17
"""Behind all places in an order."""


class IndexedGraphState:
    """
    A `StoredGraphState` that answers from one transaction.

    Whatever is read is verified: rows have a checksum, pieces are named by what is in them.
    """

    is_taken = False

    def __init__(self, tables: Tables, txn: Transaction, stream: str) -> None:
        self.stream_id = stream
        self._tables, self._txn = tables, txn
        raw = txn.get(keys.stream_key(stream), db=tables.chat_ids)
        self.state_no: int | None = None if raw is None else to_number(raw)
        self._record: GraphStateRecord | UnsetType | None = UNSET

    @property
    def record(self) -> GraphStateRecord | None:
        """None when there is no such state. Raises `CorruptStateError` when it is damaged."""
        if self._record is UNSET:
            self._record = None if self.state_no is None else _record_of(self._txn, self._tables, self.state_no)
        return self._record

    @property
    def stream_no(self) -> int | None:
        """The number of the state: the position of its first event."""
        return self.state_no

    @property
    def owner(self) -> str | None:
        """The owner; None when there is no such state, or its first events do not name it. Raises `CorruptStateError`."""
        state_id = None if self.record is None else self.record.state_id
        return owner_of_state(state_id) if state_id else None

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone of its last deletion."""
        return self._tables.tombstone(self._txn, self.stream_id)

    def command(self, command_id: str) -> tuple[int, int] | None:
        """Always None: repeated commands are told by the version that they expect."""
        del command_id
        return None

    def version(self, version: int) -> VersionRecord | None:
        """A version. Raises `CorruptStateError` when it is damaged."""
        if self.state_no is None or not 0 < version < 2**63:
            return None
        return _read(self._txn, self._tables, keys.version_key(self.state_no, version), _version_decoder)

    def newest_version(self) -> int:
        """The number of the newest version, also where rows are damaged; 0 when there is none."""
        return next(self.version_numbers(), 0)

    def version_numbers(self, *, before: int | None = None) -> Iterator[int]:
        """The numbers of versions, the newest first; only those smaller than `before`."""
        if self.state_no is None:
            return
        start = number(self.state_no) + keys.PIECE
        if before is not None:
            start = keys.version_key(self.state_no, min(max(before, 0), 2**63))
        prefix = number(self.state_no) + keys.VERSION
        cursor = self._txn.cursor(self._tables.states)
        found = cursor.prev() if cursor.set_range(start) else cursor.last()
        while found and cursor.key().startswith(prefix):
            yield to_number(cursor.key()[len(prefix) :])
            found = cursor.prev()

    def content(self, digest: bytes) -> Content | None:
        """A piece, of a list all elements; None when there is none. Raises `CorruptStateError` when it is damaged."""
        stored = self.stored_piece(digest)
        if stored is None:
            return None
        content = self.whole(stored.content)
        if piece_digest(content) != digest:
            raise _damaged()
        return content

    def need_content(self, digest: bytes) -> Content:
        """A piece that must be there. Raises `CorruptStateError` when it is missing or damaged."""
        content = self.content(digest)
        if content is None:
            raise _damaged()
        return content

    def stored_piece(self, digest: bytes) -> StoredPiece | None:
        """A piece as it is stored, not verified."""
        if self.state_no is None:
            return None
        raw = self._txn.get(keys.piece_key(self.state_no, digest), db=self._tables.states)
        return None if raw is None else _decoded(raw, decode_piece)

    def whole(self, content: Content) -> Content:
        """A piece as it is stored, without the ones that it came out of."""
        if isinstance(content, Edited):
            return leaf_of(content, self.stored_piece, "it")
        if isinstance(content, ListNode) and content.base:
            return ListNode(elements_of(content, self.stored_piece, max_depth=MAX_DEPTH, where="it"))
        return content


def state_at(txn: Transaction, tables: Tables, state_no: int) -> str | None:
    """Return the id of the stream of the state of a number, "" before its first version; None when there is none."""
    if txn.get(keys.record_key(state_no), db=tables.states) is None:
        return None
    state_id = record_at(txn, tables, state_no).state_id
    return state_stream(state_id) if state_id else ""


def record_at(txn: Transaction, tables: Tables, state_no: int) -> GraphStateRecord:
    """The record of a listed state. Raises `CorruptStateError` when it is damaged."""
    with contextlib.suppress(CorruptStateError):
        record = _record_of(txn, tables, state_no)
        if record is not None:
            return record
    msg = f"the record of the state that began at position {state_no} is damaged in the index; rebuild it"
    raise CorruptStateError(msg, position=state_no)


def _record_of(txn: Transaction, tables: Tables, state_no: int) -> GraphStateRecord | None:
    return _read(txn, tables, keys.record_key(state_no), _record_decoder)


def _read(txn: Transaction, tables: Tables, key: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    raw = txn.get(key, db=tables.states)
    if raw is None:
        return None
    row = without_keyed_checksum(key, raw)
    if row is None:
        raise _damaged()
    return _decoded(row, decoder.decode)


def _decoded(row: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(row)
    except _DAMAGED as error:
        raise _damaged() from error


def _damaged() -> CorruptStateError:
    """Return the error for a damaged row; the caller adds state and version."""
    return CorruptStateError("a part of it is missing or damaged in the index")


def listed_states(
    txn: Transaction, tables: Tables, *, user_id: str | None = None, conversation_id: str | None = None
) -> Iterator[GraphStateRecord]:
    """Stored states, in the order in which they began; of a user or of a conversation (and a user). Expired ones too."""
    prefix = keys.ALL
    if user_id is not None:
        prefix = keys.user_prefix(user_id)
    elif conversation_id is not None:
        prefix = keys.conversation_prefix(conversation_id)
    for key, _ in prefixed(txn, tables.state_order, prefix):
        yield record_at(txn, tables, to_number(key[-8:]))


def ordered_states(
    txn: Transaction,
    tables: Tables,
    *,
    user_id: str | None,
    is_by_update: bool,
    is_ascending: bool,
    after: bytes | None,
) -> Iterator[tuple[bytes, GraphStateRecord]]:
    """
    Stored states, each with its place in the order of their last versions, or of their beginnings; of a user. Expired ones too.

    `after` is the place before the first one.
    """
    if is_by_update:
        prefix = keys.BY_UPDATE if user_id is None else keys.updates_of_user_prefix(user_id)
    else:
        prefix = keys.ALL if user_id is None else keys.user_prefix(user_id)
    cursor = txn.cursor(tables.state_order)
    if is_ascending:
        found = cursor.set_range(prefix if after is None else prefix + after + b"\0")
    else:
        found = cursor.prev() if cursor.set_range(prefix + (_LAST if after is None else after)) else cursor.last()
    while found and (key := cursor.key()).startswith(prefix):
        yield key[len(prefix) :], record_at(txn, tables, to_number(key[-8:]))
        found = cursor.next() if is_ascending else cursor.prev()


def deletions_of_states(
    txn: Transaction, tables: Tables, conversation_id: str, before: int
) -> list[tuple[str, Callable[[IndexedGraphState, int], list[Body]]]]:
    """Return the states of a conversation that began before a position: ids, with the decisions that delete them."""

    def decide(state: IndexedGraphState, _now: int) -> list[Body]:
        is_due = state.record is not None and state.record.first_position < before
        return decide_delete_state(state, reason="chat_deleted") if is_due else []

    found = listed_states(txn, tables, conversation_id=conversation_id)
    return [(state.state_id, decide) for state in found if state.first_position < before]


def outdated_states(
    txn: Transaction,
    tables: Tables,
    *,
    expired_at: int,
    updated_before: int | None,
    user_id: str | None = None,
    limit: int,
) -> list[str]:
    """
    The ids of at most so many states (of a user) that have expired, or whose last version is too old. Costs what is found.

    Assistants stay, however old they are.
    """
    found: dict[str, None] = {}
    bounds = [keys.time_key(keys.BY_EXPIRY, expired_at + 1)]
    if updated_before is not None:
        bounds.append(keys.time_key(keys.BY_UPDATE, updated_before))
    for bound in bounds:
        for key, _ in prefixed(txn, tables.state_order, bound[:1]):
            if key[:-8] >= bound or len(found) == limit:
                break
            state_id = record_at(txn, tables, to_number(key[-8:])).state_id
            if user_id in {None, owner_of_state(state_id)} and not _is_assistant(state_id):
                found[state_id] = None
    return [*found]


def _is_assistant(state_id: str) -> bool:
    return parse_item_id(state_id) is None and parse_state_id(state_id).conversation_id.startswith(ASSISTANT_STATES)


@contextlib.contextmanager
def named_state(state_id: str, version: int | None) -> Generator[None]:
    """Let errors of damaged rows say which state and version it is, and nothing of what is in them."""
    try:
        yield
    except CorruptStateError as error:
        which = "" if version is None else f" at version {version}"
        msg = f"state {shown_id(state_id)!r}{which} cannot be read: {error}; rebuild the index, or read an earlier version"
        raise CorruptStateError(msg, chat_id=state_id, version=version) from error
