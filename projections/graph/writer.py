"""Applying the events of a stored state to its rows, inside one write transaction."""

from typing import Final

import msgspec

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.state import StreamHead, Tombstone, check_follows, misplaced, next_head
from chatledger.domain.content import Piece
from chatledger.domain.graph.decide import GraphStateRecord, VersionRecord
from chatledger.domain.graph.events import (
    StateContentPut,
    StateDeleted,
    StateExpirySet,
    StatePut,
    parse_item_id,
    parse_state_id,
    state_stream,
)
from chatledger.domain.graph.items import has_value

from ..content import encode_piece, piece_to_store
from ..lmdb.checksums import with_keyed_checksum
from ..lmdb.environment import drop_prefixed
from ..lmdb.keys import number
from . import keys
from .items import Namespace, decode_namespace
from .reader import MAX_DEPTH, IndexedGraphState

_encode: Final = msgspec.msgpack.Encoder().encode


class GraphStateWriter(IndexedGraphState):
    """A stored state in a write transaction. The record is written by `flush`, everything else at once."""

    def apply(self, recorded: Recorded) -> None:
        """Take the next event of the state in. Raises `ChainIntegrityError` when it does not follow."""
        head = next_head(check_follows(self, recorded), recorded)
        event, body = recorded.event, recorded.body
        if isinstance(body, StateDeleted):
            self._delete(Tombstone(head, event.occurred_at, event.command_id))
        elif isinstance(body, StateContentPut):
            self._touch(head, event.occurred_at, recorded.position)
            self._put_pieces(body.pieces)
        elif isinstance(body, StatePut):
            if state_stream(body.state_id) != self.stream_id:
                raise misplaced(recorded, "it is of another state")
            self._put(body, head, event.occurred_at, recorded.position)
        elif isinstance(body, StateExpirySet):
            self._set_expiry(body.expires_at, head, event.occurred_at, recorded.position)
        else:
            raise misplaced(recorded, "it is not of a graph's state")

    def flush(self) -> None:
        """Write what was kept back."""
        if self.state_no is not None and self.record is not None:
            key = keys.record_key(self.state_no)
            self._txn.put(key, with_keyed_checksum(key, _encode(self.record)), db=self._tables.states)

    def _touch(self, head: StreamHead, time: int, position: int) -> None:
        """Note the event as the last one; the first one makes the state."""
        if self.record is None:
            self.state_no = position
            self._txn.put(keys.stream_key(self.stream_id), number(position), db=self._tables.chat_ids)
            self._record = GraphStateRecord("", position, head.version, head, time, time)
        else:
            self._record = msgspec.structs.replace(self.record, head=head)

    def _put(self, body: StatePut, head: StreamHead, time: int, position: int) -> None:
        self._touch(head, time, position)
        record = self.record
        assert record is not None, "events make a state"
        assert self.state_no is not None, "events make a state"
        self._put_pieces(body.pieces)
        stored_at = time if body.stored_at is None else body.stored_at
        version = VersionRecord(body.version, body.fields, body.node, body.parent, stored_at, body.is_final, position)
        key = keys.version_key(self.state_no, body.version)
        self._txn.put(key, with_keyed_checksum(key, _encode(version)), db=self._tables.states)
        if not record.version:
            self._list(body.state_id)
        was_living = self._is_living(record)
        self._unlist_times(record, is_living=was_living)
        self._record = msgspec.structs.replace(
            record,
            state_id=body.state_id,
            created_at=record.created_at if record.version or body.stored_at is None else body.stored_at,
            updated_at=stored_at,
            version=body.version,
            node=body.node,
            size_bytes=version.size_bytes,
            expires_at=body.expires_at,
        )
        is_living = has_value(version)
        self._list_times(self._record, is_living=is_living)
        self._count_in_namespace(body.state_id, is_living - was_living)

    def _set_expiry(self, expires_at: int | None, head: StreamHead, time: int, position: int) -> None:
        self._touch(head, time, position)
        record = self.record
        assert record is not None, "events make a state"
        is_living = self._is_living(record)
        self._unlist_times(record, is_living=is_living)
        self._record = msgspec.structs.replace(record, expires_at=expires_at)
        self._list_times(self._record, is_living=is_living)

    def _put_pieces(self, pieces: tuple[Piece, ...]) -> None:
        assert self.state_no is not None, "events make a state"
        for piece in pieces:
            key = keys.piece_key(self.state_no, piece.digest)
            stored = piece_to_store(piece.content, self.stored_piece, self.whole, max_depth=MAX_DEPTH)
            self._txn.put(key, encode_piece(stored), db=self._tables.states)

    def _list(self, state_id: str) -> None:
        for key in self._list_keys(state_id):
            self._txn.put(key, b"", db=self._tables.state_order)

    def _list_keys(self, state_id: str) -> list[bytes]:
        assert self.state_no is not None, "events make a state"
        item = parse_item_id(state_id)
        if item is None:
            user_id, conversation_id = parse_state_id(state_id)
            prefixes = [keys.ALL, keys.user_prefix(user_id), keys.conversation_prefix(conversation_id)]
        else:
            prefixes = [keys.ITEMS, keys.items_of_user_prefix(item.user_id)]
            prefixes += [keys.known_items_prefix(item.user_id, labels) for labels in _beginnings(item.namespace)]
        return [prefix + number(self.state_no) for prefix in prefixes]

    def _time_keys(self, record: GraphStateRecord, *, is_living: bool) -> list[bytes]:
        assert self.state_no is not None, "events make a state"
        found: list[bytes] = []
        item = parse_item_id(record.state_id)
        if not record.state_id:  # before its first version it is in no list
            return found
        if item is None:
            by_user = keys.updates_of_user_prefix(parse_state_id(record.state_id).user_id)
            found += [keys.time_key(prefix, record.updated_at) for prefix in (keys.BY_UPDATE, by_user)]
        elif is_living:
            prefixes = [keys.living_items_prefix(item.user_id, labels) for labels in _beginnings(item.namespace)]
            found += [keys.time_key(prefix, record.updated_at) for prefix in prefixes]
        if record.expires_at is not None:
            found.append(keys.time_key(keys.BY_EXPIRY, record.expires_at))
        return [key + number(self.state_no) for key in found]

    def _list_times(self, record: GraphStateRecord, *, is_living: bool) -> None:
        for key in self._time_keys(record, is_living=is_living):
            self._txn.put(key, b"", db=self._tables.state_order)

    def _unlist_times(self, record: GraphStateRecord, *, is_living: bool) -> None:
        for key in self._time_keys(record, is_living=is_living):
            self._txn.delete(key, db=self._tables.state_order)

    def _count_in_namespace(self, state_id: str, change: int) -> None:
        """Note that a namespace has an item more or fewer."""
        item = parse_item_id(state_id)
        if item is None or not change:
            return
        key = keys.namespace_key(item.user_id, item.namespace)
        raw = self._txn.get(key, db=self._tables.state_order)
        count = change + (0 if raw is None else decode_namespace(raw).count)
        if count > 0:
            self._txn.put(key, _encode(Namespace(item.namespace, count)), db=self._tables.state_order)
        else:
            self._txn.delete(key, db=self._tables.state_order)

    def _delete(self, tombstone: Tombstone) -> None:
        record = self.record
        if self.state_no is not None and record is not None:
            if record.state_id:
                is_living = self._is_living(record)
                self._unlist_times(record, is_living=is_living)
                self._count_in_namespace(record.state_id, -is_living)
                for key in self._list_keys(record.state_id):
                    self._txn.delete(key, db=self._tables.state_order)
            drop_prefixed(self._txn, self._tables.states, number(self.state_no))
            self._txn.delete(keys.stream_key(self.stream_id), db=self._tables.chat_ids)
        self._tables.put_tombstone(self._txn, self.stream_id, tombstone)
        self.state_no, self._record = None, None

    def _is_living(self, record: GraphStateRecord) -> bool:
        """Whether it is an item that has a value."""
        item = parse_item_id(record.state_id)
        if item is None:
            return False
        key = keys.living_items_prefix(item.user_id, ()) + keys.moment(record.updated_at)
        assert self.state_no is not None, "a record has a number"
        return self._txn.get(key + number(self.state_no), db=self._tables.state_order) is not None


def _beginnings(namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the beginnings of a namespace, from no label to all."""
    return [namespace[:count] for count in range(len(namespace) + 1)]
