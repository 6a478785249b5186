"""
Taking messages into the search index as a whole log is applied: in batches, which other processes may invert.

A rebuild with 100,000 messages took 5.4 s of processor time this way, 6.7 s with the messages read from their chains afterwards, and
8 to 13 s with each added as writers do, in segments of 4,096 or 32,768. Only batches can be shared: with a second process it ended
after 11 s instead of 14 to 17.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from .indexer import begin_anew, note_complete
from .manifest import FANOUT, manifest_of, put_manifest, put_totals, totals_of

if TYPE_CHECKING:
    from ..chat.chains import Place
    from .inversion import Inversion, Inverted

BATCH_MESSAGES: Final = 32_768
"""A batch of so many messages is full."""
BATCH_BYTES: Final = 16 << 20
"""Of messages as they are stored: a batch of so many is full."""
_LEFT_SEGMENTS: Final = 4 * FANOUT
"""So many segments are left to whoever is idle: merging them takes a tenth of the time of the whole work."""
_HEAD: Final = Struct("<QIII")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, list[bytes]]).decode


class Inverter:
    """
    Inverts batches of messages elsewhere; this one does not, so each is inverted where it was gathered.

    Attributes:
        batch_messages: A batch of so many messages is full.
    """

    batch_messages = BATCH_MESSAGES

    def submit(self, batch: bytes, messages: int) -> Future[bytes] | None:
        """
        Begin to invert a batch of so many messages, which is as `Inversion.invert` takes it, and so is the answer.

        None where there is no room: then the caller inverts it.
        """
        del batch, messages
        return None


_Message = tuple[int, int, "Place", bytes]
"""The number of the chat, that of the message in the order of its log, its place, and what is stored."""


class _Batch(NamedTuple):
    """Messages that are being inverted, packed."""

    packed: bytes
    future: Future[bytes]


class Intake:
    """
    Takes in the messages that transactions add to an index which nobody reads yet.

    In each transaction `begin`, `add`, `drop` and `replace` are called, in this order; `commit` follows it. In the end `finish`.

    `env`: what the index is in; its search index is begun anew.
    """

    def __init__(self, env: Environment, tables: Tables, inverter: Inverter) -> None:
        self._env, self._tables, self._inverter = env, tables, inverter
        self._added: list[_Message] = []
        self._dropped: set[int] = set()
        self._replaced: dict[tuple[int, int], bytes] = {}
        self._gathered: list[_Message] = []
        self._gathered_bytes = 0
        self._under_way: list[_Batch] = []
        self._gone: set[int] = set()
        self._changed: dict[tuple[int, int], bytes] = {}
        self._inversion: Inversion | None = None
        env.update(lambda txn: begin_anew(txn, tables))

    def begin(self) -> None:
        """Forget what was added in a transaction that did not come to its end."""
        self._added.clear()
        self._dropped.clear()
        self._replaced.clear()

    def add(self, chat_no: int, number: int, place: "Place", bodies: Iterable[bytes]) -> None:
        """
        Take in messages that follow each other, as they are stored.

        `number`: the number of the first one in the order of the log of its chat.
        """
        segment, offset = place
        self._added += [(chat_no, number + at, (segment, offset + at), body) for at, body in enumerate(bodies)]

    def drop(self, chat_no: int) -> None:
        """Leave out the messages of a chat, which is deleted; those that are in the search index are removed by the caller."""
        self._dropped.add(chat_no)

    def replace(self, chat_no: int, number: int, body: bytes) -> None:
        """Take a message in as it is without its content; where it is in the search index, its words are removed by the caller."""
        self._replaced[chat_no, number] = body

    def commit(self) -> None:
        """Keep what the last transaction added, and invert and write as much as there is."""
        self._gathered += self._added
        self._gathered_bytes += sum([len(body) for *_, body in self._added])
        if self._dropped or self._replaced:
            self._gone |= self._dropped
            self._changed |= self._replaced
            self._gathered = self._as_they_are(self._gathered)
            self._gathered_bytes = sum([len(body) for *_, body in self._gathered])
        self.begin()
        while len(self._gathered) >= self._inverter.batch_messages or self._gathered_bytes >= BATCH_BYTES:
            messages = self._next()
            batch = _packed(messages)
            future = self._inverter.submit(batch, len(messages))
            if future is None:  # nobody else has room for it
                self._put(self._inverted(batch))
            else:
                self._under_way.append(_Batch(batch, future))
        under_way, self._under_way = self._under_way, []
        for waiting in under_way:
            if waiting.future.done():
                self._write(waiting)
            else:
                self._under_way.append(waiting)
        if not self._under_way:  # batches that are under way may still have messages of chats that are gone
            self._gone.clear()
            self._changed.clear()

    def _as_they_are(self, messages: Sequence[_Message]) -> list[_Message]:
        """Return messages without those of deleted chats, and those that were redacted without their content."""
        return [
            (chat_no, number, place, self._changed.get((chat_no, number), body))
            for chat_no, number, place, body in messages
            if chat_no not in self._gone
        ]

    def finish(self) -> None:
        """Write what is left; the search index is complete then."""
        while self._gathered:
            self._put(self._inverted(_packed(self._next())))
        # The last ones first: others begin with the first ones, and what they have not begun is inverted here meanwhile.
        unbegun = [batch for batch in reversed(self._under_way) if batch.future.cancel()]
        for batch in unbegun:
            self._write(batch)
        for batch in self._under_way:
            if batch not in unbegun:
                self._write(batch)
        self._under_way.clear()
        with self._env.reading() as txn:
            is_split = len(manifest_of(txn, self._tables).segments) > _LEFT_SEGMENTS
        if is_split:
            from .merging import merge_all

            merge_all(self._env, self._tables)
        self._env.update(lambda txn: note_complete(txn, self._tables))

    def _next(self) -> Sequence[_Message]:
        """Take a batch of those that are gathered."""
        count = size = 0
        while count < min(len(self._gathered), self._inverter.batch_messages) and size < BATCH_BYTES:
            size += len(self._gathered[count][-1])
            count += 1
        messages, self._gathered = self._gathered[:count], self._gathered[count:]
        self._gathered_bytes -= size
        return messages

    def _write(self, batch: _Batch) -> None:
        """Write a batch, inverted here if nobody has, or if messages that it has were deleted or redacted since."""
        living = self._living(batch.packed)
        if living is batch.packed and not batch.future.cancelled():  # what was inverted is as it is now
            self._put(batch.future.result())
        elif living:
            self._put(self._inverted(living))

    def _living(self, packed: bytes) -> bytes:
        """Return a batch as its messages are now; empty when none is left."""
        if not (self._gone or self._changed):
            return packed
        heads, bodies = _decode(packed)
        messages = [
            (chat_no, number, (segment, offset), body)
            for (chat_no, number, segment, offset), body in zip(_HEAD.iter_unpack(heads), bodies, strict=True)
        ]
        living = self._as_they_are(messages)
        if living == messages:
            return packed
        return _packed(living) if living else b""

    def _inverted(self, packed: bytes) -> bytes:
        if self._inversion is None:
            # NumPy takes a tenth of a second to import: only for those who have messages.
            from .inversion import Inversion

            self._inversion = Inversion()
        return self._inversion.invert(packed)

    def _put(self, inverted: bytes) -> None:
        from .inversion import decode_inverted

        for segment in decode_inverted(inverted):
            self._env.update(partial(self._put_segment, segment))

    def _put_segment(self, inverted: "Inverted", txn: Transaction) -> None:
        from .segments import write_segment

        tables = self._tables
        manifest = manifest_of(txn, tables)
        write_segment(txn, tables, manifest, inverted.segment)
        put_manifest(txn, tables, manifest)
        txn.cursor(tables.search).putmulti(inverted.landmarks)
        put_totals(txn, tables, totals_of(txn, tables).with_more(inverted.segment.documents, inverted.lengths))


def _packed(messages: Sequence[_Message]) -> bytes:
    heads = b"".join([_HEAD.pack(chat_no, number, *place) for chat_no, number, place, _ in messages])
    return _encode((heads, [body for *_, body in messages]))
