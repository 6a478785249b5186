"""
The Merkle trees of streams: their subtrees, from the entries of the log and from tiles, and where all streams end.

A tile is the root of 256 leaves that follow each other. With them any subtree is computed from the entries of one tile and one row for
each other tile, without reading the log.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.redaction import content_slot
from chatledger.domain.chat.state import StreamHead
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.log.merkle import HASH_BYTES, event_leaf, node, root_of_peaks

from ..lmdb.checksums import with_checksum, without_checksum
from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.keys import digest_of_key, number, to_number
from ..lmdb.tables import Tables, decode_tombstone
from ..versioned.lists import record_at
from ..versioned.rows import STREAM
from .entries import LogEntry, entry_at

if TYPE_CHECKING:
    from ..chat.reader import IndexedChat

TILE: Final = 256
_TILE_HEIGHT: Final = 8
_ROW: Final = Struct(">QI32s")


class Tile(NamedTuple):
    """A tile: the position of its last event, how many messages the chat had after it, and the root of its leaves."""

    position: int
    message_count: int
    root: bytes


def note_tile(
    txn: Transaction, tables: Tables, stream_no: int, before: StreamHead, recorded: Recorded, record: Any
) -> None:
    """Write the tile that an event completes: `before` is the head that it follows, `record` that of its stream after it."""
    # The tree before it ends with peaks of 128, 64, ... and 1 leaves, which are those of this tile.
    peaks = before.peaks[-_TILE_HEIGHT * HASH_BYTES :]
    root = root_of_peaks(peaks + event_leaf(recorded.position, recorded.hash))
    row = _ROW.pack(recorded.position, getattr(record, "message_count", 0), root)
    txn.put(_key(stream_no, before.size // TILE), with_checksum(row), db=tables.tiles)


def drop_tiles(txn: Transaction, tables: Tables, stream_no: int) -> None:
    drop_prefixed(txn, tables.tiles, number(stream_no))


def _key(stream_no: int, tile_no: int) -> bytes:
    return number(stream_no) + tile_no.to_bytes(4)


class StreamTree:
    """
    The tree of a living stream as the index has it. Raises `CorruptStateError` where the index lacks a row.

    `head`: its last event.
    """

    def __init__(self, txn: Transaction, tables: Tables, stream_no: int, head: StreamHead) -> None:
        self._txn, self._tables, self._stream_no, self._head = txn, tables, stream_no, head
        self._tiles: dict[int, Tile] = {}
        self._entries: dict[int, list[LogEntry]] = {}

    @property
    def size(self) -> int:
        return self._head.size

    @property
    def first_version(self) -> int:
        return self._head.version - self._head.size + 1

    def subtree(self, start: int, end: int) -> bytes:
        """Return the root of the leaves from one number on up to another, which are on one side of a node of the whole tree."""
        count = end - start
        if count == TILE and start % TILE == 0:
            return self.tile(start // TILE).root
        if count == 1:
            entry = self.entry(start)
            return event_leaf(entry.position, entry.hash)
        middle = start + (1 << (count - 1).bit_length() - 1)
        return node(self.subtree(start, middle), self.subtree(middle, end))

    def peaks(self, size: int) -> bytes:
        """Return the roots of the perfect trees over the first events, the largest first, as `StreamHead` has them of all."""
        peaks, start = b"", 0
        while size > start:
            end = start + (1 << (size - start).bit_length() - 1)
            peaks += self.subtree(start, end)
            start = end
        return peaks

    def tile(self, tile_no: int) -> Tile:
        tile = self._tiles.get(tile_no)
        if tile is None:
            raw = self._txn.get(_key(self._stream_no, tile_no), db=self._tables.tiles)
            if raw is None:
                raise self._incomplete()
            tile = self._tiles[tile_no] = Tile(*_ROW.unpack(without_checksum(raw)))
        return tile

    def entry(self, leaf_no: int) -> LogEntry:
        """Return the entry of the event with a number in the tree."""
        return self._entries_of(leaf_no // TILE)[leaf_no % TILE]

    def place_of_message(self, ordinal: int) -> tuple[int, int]:
        """Return the number of the event that brought a message of a chat, which has that number in log order, and its place in it, from 0."""
        low, high = 0, self._head.size // TILE
        while low < high:
            middle = (low + high) // 2
            if self.tile(middle).message_count > ordinal:
                high = middle
            else:
                low = middle + 1
        count = self.tile(low - 1).message_count if low else 0
        for offset, entry in enumerate(self._entries_of(low)):
            added = entry.step[0] if entry.step else 0
            if count + added > ordinal:
                return low * TILE + offset, ordinal - count
            count += added
        raise self._incomplete()

    def _entries_of(self, tile_no: int) -> list[LogEntry]:
        entries = self._entries.get(tile_no, [])
        if not entries:
            is_complete = (tile_no + 1) * TILE <= self._head.size
            at = self.tile(tile_no).position if is_complete else self._head.position
            for _ in range(TILE if is_complete else self._head.size % TILE):
                entry = entry_at(self._txn, self._tables, at)
                if entry is None:
                    raise self._incomplete()
                entries.append(entry)
                at = entry.previous
            entries.reverse()
            self._entries[tile_no] = entries
        return entries

    def _incomplete(self) -> CorruptStateError:
        msg = f"the index lacks events of the stream that began at position {self._stream_no}; 'chatledger rebuild' repairs that"
        return CorruptStateError(msg, position=self._stream_no)


def content_slots(chat: "IndexedChat", message_ids: Iterable[str]) -> list[tuple[int, int]]:
    """Return where the content of each message of a chat is: the version of its event, and the slot of that."""
    record, chat_no = chat.record, chat.chat_no
    assert record is not None, "only a living chat has messages"
    assert chat_no is not None, "only a living chat has messages"
    tree = StreamTree(*chat.read_from, chat_no, record.head)
    places = [tree.place_of_message(chat.ordinal(chat.place_of(message_id))) for message_id in message_ids]
    return [(tree.first_version + number, content_slot(place)) for number, place in places]


def stream_heads(txn: Transaction, tables: Tables) -> Iterator[tuple[bytes, StreamHead]]:
    """Yield the SHA-256 of the id of each stream that ever was, and its last event: of one that was deleted, its tombstone."""
    from ..chat.reader import IndexedChat

    deleted: dict[bytes, StreamHead] = {}
    living: set[bytes] = set()
    for key, raw in txn.cursor(tables.chat_ids):
        kind, rest = key[:1], key[1:]
        if kind == b"t":
            deleted[digest_of_key(rest)] = decode_tombstone(raw).head
            continue
        stream_no = to_number(raw)
        digest = digest_of_key(rest)
        record: Any
        is_versioned = kind == STREAM
        record = record_at(txn, tables, stream_no) if is_versioned else IndexedChat(tables, txn, "", stream_no).record
        if record is None:
            msg = f"the index lacks the record of the stream that began at position {stream_no}; 'chatledger rebuild' repairs that"
            raise CorruptStateError(msg, position=stream_no)
        living.add(digest)
        yield digest, record.head
    yield from ((digest, head) for digest, head in deleted.items() if digest not in living)
