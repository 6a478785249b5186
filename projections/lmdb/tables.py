"""The tables of an index, and finding things in them by id."""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Final

import msgspec

from chatledger.domain.chat.state import StreamHead, Tombstone
from chatledger.domain.proof.head_sums import BUCKET_BYTES, bucket_of, moved

from ..chat.chains import Place
from .cache import Caches
from .checksums import CHECKSUM_BYTES, check_sums, stored_row, with_checksum, without_checksum
from .environment import Environment, Transaction, prefixed
from .keys import id_key, message_key, number, to_number

_LOCATION: Final = Struct(">QII")
_NUMBER_BYTES: Final = 8
_CHAT, _TOMBSTONE = b"c", b"t"
_decode_tombstone = msgspec.msgpack.Decoder(Tombstone).decode
_FOREIGN: Final = b"foreign:"
_decode_foreign = msgspec.msgpack.Decoder(tuple[int, str]).decode
_encode = msgspec.msgpack.Encoder().encode


def decode_tombstone(raw: bytes) -> Tombstone:
    return _decode_tombstone(without_checksum(raw))


class Tables:
    """
    The handles of the tables of one environment.

    `meta` holds the position and whatever else concerns the whole index; `chat_ids` finds chats and tombstones by id,
    `message_ids` finds messages, `copies` their copies, and `branch_ids` branches; `order` lists chats by time, `expiry` those that end; `rows` holds what belongs to one chat, chat by chat,
    and `search` the search index of all chats; `blobs` says which chats have which large data. `versioned` holds what belongs to one versioned value (a thread, a state
    or an item), value by value, with `version_rows` and `version_writes`, which have tables of their own as pages get full where all that
    comes goes last, and `version_lists` the lists over all of them. `states` holds what belongs to one stored state of a graph, state by
    state, and `state_order` the lists over all states. `heads` lists chats by the digests of their ids, and `head_sums` has a sum over
    the last events of each bucket of these. `custom` holds the
    rows of projections of users, projection by projection. `log_entries` says what stands at each position of the log, and `tiles` has parts of the Merkle trees of streams.

    `caches` are in memory.
    """

    def __init__(self) -> None:
        self.caches = Caches()

    def open(self, env: Environment) -> None:
        """Take the handles of the tables, which become others when the environment is opened anew."""
        self.meta = env.meta
        self.chat_ids = env.table(b"chat_ids")
        self.message_ids = env.table(b"message_ids", dupsort=True)
        self.branch_ids = env.table(b"branch_ids", dupsort=True)
        self.copies = env.table(b"copies", dupsort=True)
        self.order = env.table(b"order")
        self.rows = env.table(b"rows")
        self.search = env.table(b"search")
        self.expiry = env.table(b"expiry")
        self.blobs = env.table(b"blobs")
        self.versioned = env.table(b"versioned")
        self.version_rows = env.table(b"version_rows")
        self.version_writes = env.table(b"version_writes")
        self.version_lists = env.table(b"version_lists")
        self.custom = env.table(b"custom")
        self.log_entries = env.table(b"log_entries")
        self.tiles = env.table(b"tiles")
        self.states = env.table(b"states")
        self.state_order = env.table(b"state_order")
        self.heads = env.table(b"heads")
        self.head_sums = env.table(b"head_sums")

    def chat_no(self, txn: Transaction, chat_id: str) -> int | None:
        """The number of a living chat: the position of the event that created it."""
        raw = txn.get(_CHAT + id_key(chat_id), db=self.chat_ids)
        return None if raw is None else to_number(raw)

    def put_chat_no(self, txn: Transaction, chat_id: str, chat_no: int) -> None:
        txn.put(_CHAT + id_key(chat_id), number(chat_no), db=self.chat_ids)

    def tombstone(self, txn: Transaction, stream_id: str) -> Tombstone | None:
        """Return the tombstone of the last deleted stream of an id."""
        raw = txn.get(_TOMBSTONE + id_key(stream_id), db=self.chat_ids)
        return None if raw is None else decode_tombstone(raw)

    def put_tombstone(self, txn: Transaction, stream_id: str, tombstone: Tombstone) -> None:
        key = id_key(stream_id)
        txn.delete(_CHAT + key, db=self.chat_ids)
        txn.put(_TOMBSTONE + key, with_checksum(_encode(tombstone)), db=self.chat_ids)

    def move_head(
        self, txn: Transaction, chat_id: str, chat_no: int, before: StreamHead | None, head: StreamHead | None
    ) -> None:
        """Put the last event of a chat into the sums, in place of the one before; None before it begins, and after it is deleted."""
        bucket = bucket_of(chat_id)
        total = moved(stored_row(txn, self.head_sums, bucket) or b"", chat_id, before, head)
        if total:
            txn.put(bucket, with_checksum(total), db=self.head_sums)
        else:
            txn.delete(bucket, db=self.head_sums)
        if before is None:
            txn.put(bucket + number(chat_no), b"", db=self.heads)
        elif head is None:
            txn.delete(bucket + number(chat_no), db=self.heads)

    def head_sums_of(self, txn: Transaction, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the buckets that begin with some bytes, with the sums over the last events of their chats."""
        rows = list(prefixed(txn, self.head_sums, first))
        check_sums([total for _, total in rows])
        return ((bucket, total[:-CHECKSUM_BYTES]) for bucket, total in rows)

    def chats_in(self, txn: Transaction, bucket: bytes) -> list[int]:
        """Return the numbers of the chats of a bucket."""
        return [to_number(key[BUCKET_BYTES:]) for key, _ in prefixed(txn, self.heads, bucket)]

    def foreign(self, txn: Transaction, stream_id: str) -> tuple[int, str] | None:
        """The first foreign message on the subject of a stream: its position, and what is wrong with it."""
        raw = txn.get(_FOREIGN + id_key(stream_id), db=self.meta)
        return None if raw is None else _decode_foreign(raw)

    def note_foreign(self, txn: Transaction, stream_id: str, position: int, why: str) -> None:
        """Note a foreign message, if it is the first one of its stream."""
        txn.put(_FOREIGN + id_key(stream_id), _encode((position, why)), overwrite=False, db=self.meta)

    def forget_foreign(self, txn: Transaction, until: int) -> None:
        """Forget the foreign messages up to a position, which were removed."""
        for key, raw in list(prefixed(txn, self.meta, _FOREIGN)):
            if _decode_foreign(raw)[0] <= until:
                txn.delete(key, db=self.meta)

    def locations(self, txn: Transaction, message_id: str) -> Iterator[tuple[int, Place]]:
        """
        Yield the places of the messages of an id: (chat number, place), the oldest chat first.

        More than one only where two writers gave the same id to messages of two chats at the same moment.
        """
        cursor = txn.cursor(self.message_ids)
        is_row = cursor.set_key(message_key(message_id))
        while is_row:
            chat_no, segment, offset = _LOCATION.unpack(cursor.value())
            yield chat_no, (segment, offset)
            is_row = cursor.next_dup()

    def first_location(self, txn: Transaction, message_id: str) -> tuple[int, Place] | None:
        """The first of `locations`, for one look-up."""
        first = txn.get(message_key(message_id), db=self.message_ids)
        if first is None:
            return None
        chat_no, segment, offset = _LOCATION.unpack(first)
        return chat_no, (segment, offset)

    def first_locations(self, txn: Transaction, message_ids: Iterable[str]) -> dict[str, tuple[int, Place] | None]:
        """The `first_location` of each of many messages, in one pass over the table."""
        keys = {message_key(message_id): message_id for message_id in message_ids}
        locations: dict[str, tuple[int, Place] | None] = dict.fromkeys(keys.values())
        # In the order of the keys, so that each page of the table is visited once.
        for key, value in txn.cursor(self.message_ids).getmulti(sorted(keys)):
            chat_no, segment, offset = _LOCATION.unpack(value)
            locations[keys[key]] = chat_no, (segment, offset)
        return locations

    def put_locations(self, txn: Transaction, chat_no: int, places: Mapping[str, Place]) -> None:
        """Make messages of a chat known."""
        rows = [(message_key(message_id), _LOCATION.pack(chat_no, *place)) for message_id, place in places.items()]
        rows.sort()  # one page of the table after the other
        txn.cursor(self.message_ids).putmulti(rows)

    def drop_location(self, txn: Transaction, message_id: str, chat_no: int, place: Place) -> None:
        txn.delete(message_key(message_id), _LOCATION.pack(chat_no, *place), db=self.message_ids)

    def put_copy(self, txn: Transaction, original_id: str, chat_no: int, place: Place) -> None:
        """Note that a message is a copy of another one."""
        txn.put(message_key(original_id), _LOCATION.pack(chat_no, *place), db=self.copies)

    def drop_copy(self, txn: Transaction, original_id: str, chat_no: int, place: Place) -> None:
        txn.delete(message_key(original_id), _LOCATION.pack(chat_no, *place), db=self.copies)

    def copies_of(self, txn: Transaction, message_id: str) -> list[tuple[int, Place]]:
        """Return the places of the copies of a message: (chat number, place)."""
        cursor = txn.cursor(self.copies)
        rows = cursor.iternext_dup() if cursor.set_key(message_key(message_id)) else ()
        locations = [_LOCATION.unpack(row) for row in rows]
        return [(chat_no, (segment, offset)) for chat_no, segment, offset in locations]

    def branch_keys(self, txn: Transaction, branch_id: str) -> Iterator[tuple[int, bytes]]:
        """
        Yield (chat number, key of the name) for each branch of an id, the oldest chat first.

        More than one only where an id was given to branches of several chats.
        """
        cursor = txn.cursor(self.branch_ids)
        is_row = cursor.set_key(id_key(branch_id))
        while is_row:
            value = cursor.value()
            yield to_number(value[:_NUMBER_BYTES]), value[_NUMBER_BYTES:]
            is_row = cursor.next_dup()

    def put_branch_key(self, txn: Transaction, branch_id: str, chat_no: int, name: str) -> None:
        txn.put(id_key(branch_id), number(chat_no) + id_key(name), db=self.branch_ids)

    def drop_branch_key(self, txn: Transaction, branch_id: str, chat_no: int, name: str) -> None:
        txn.delete(id_key(branch_id), number(chat_no) + id_key(name), db=self.branch_ids)
