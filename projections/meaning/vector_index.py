"""
The vectors of one embedding: an LMDB environment beside the generations of the index, which outlives them.

    meta         the log and the embedding that it belongs to, how far it is, counts
    blocks       of 1,024 slots each: the directory, which says what message a slot is of; and two bits a dimension of all vectors
    vectors      of each slot: digest of the piece, scale, and two bytes for each dimension
    contents     slots by the digest of their pieces: an equal piece takes the vector from there
    chats        how many messages of each chat were taken in, in the order of its log
    failures     messages whose text the function refuses

A slot has a vector of a piece of a message. Those of deleted chats are emptied, and used again. What is here can be computed
anew, but that may cost money: so each transaction is synced, and a rebuild of the index leaves it as it is. A chat keeps its
number, and a message its place in the chains, as long as the log is the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import lmdb
import msgspec
import numpy as np

from chatledger.domain.errors import CorruptStateError

from ..lmdb.checksums import CHECKSUM_BYTES, with_checksum, without_checksum
from ..lmdb.environment import Environment, Transaction, drop_prefixed, prefixed
from ..lmdb.keys import number, to_number
from .vectors import Bits, Codes, words_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOTS: Final = 1_024
"""Slots of a block."""
_U8, _I8, _U4 = np.dtype("<u8"), np.dtype("<i8"), np.dtype("<u4")
_DIRECTORY, _SIGNS, _FINE = b"d", b"s", b"f"
_FORMAT: Final = b"1"
_MAP_BYTES: Final = 16 * 1024 * 1024
_DIGEST_BYTES: Final = 16
_CODE: Final = np.dtype("<i2")
_HEAD_BYTES: Final = _DIGEST_BYTES + 4
_u32: Final = Struct(">I").pack
_unpack_u32: Final = Struct(">I").unpack
_ABOUT, _STATE, _LIVE = b"about", b"state", b"live"
_encode: Final = msgspec.msgpack.Encoder().encode


class About(msgspec.Struct, frozen=True, array_like=True):
    """The log and the embedding that vectors belong to."""

    format: bytes
    identity: str
    name: str
    dimensions: int
    piece_chars: int


class TakenIn(msgspec.Struct, frozen=True, array_like=True):
    """
    How far the vectors are.

    Args:
        position: All messages of events up to here were taken in; those that failed are listed.
        messages: How many messages were taken in, with those that failed and those without text.
        failed: How many of them failed.
        generation: The generation of the index whose chats were compared with these.
    """

    position: int = 0
    messages: int = 0
    failed: int = 0
    generation: int = 0


class EmbeddedPiece(NamedTuple):
    """The vector of a piece of a message: the digest of the piece, and the code of the vector, its scale and its numbers."""

    digest: bytes
    code: bytes

    @classmethod
    def of(cls, digests: Sequence[bytes], codes: Codes) -> list[Self]:
        scales, numbers = codes.scales.astype("<f4"), codes.numbers.astype(_CODE)
        rows = zip(digests, scales, numbers, strict=True)
        return [cls(digest, scale.tobytes() + row.tobytes()) for digest, scale, row in rows]


class Taken(NamedTuple):
    """
    A message to take in.

    Args:
        chat_no: Its chat.
        ordinal: Its number in the order of the log of the chat; messages are taken in in that order.
        segment, offset: Its place in the chains.
        created_at: In ms.
        role: See `role_key`.
        pieces: None where the function refused it; empty without text.
    """

    chat_no: int
    ordinal: int
    segment: int
    offset: int
    created_at: int
    role: int
    pieces: Sequence[EmbeddedPiece] | None


class RefusedMessage(NamedTuple):
    """A message whose text the function refused: where it is, and how often it was tried."""

    chat_no: int
    ordinal: int
    segment: int
    offset: int
    attempts: int


class SlotDirectory(NamedTuple):
    """The messages of the slots of a block: the chat of each (0 for a free one), and what filters need."""

    chats: "NDArray[np.uint64]"
    times: "NDArray[np.int64]"
    roles: "NDArray[np.uint64]"
    ordinals: "NDArray[np.uint32]"
    segments: "NDArray[np.uint32]"
    offsets: "NDArray[np.uint32]"

    @classmethod
    def from_row(cls, row: bytes) -> Self:
        """Unpack it, read-only."""
        return cls(
            np.frombuffer(row, _U8, SLOTS),
            np.frombuffer(row, _I8, SLOTS, 8 * SLOTS),
            np.frombuffer(row, _U8, SLOTS, 16 * SLOTS),
            np.frombuffer(row, _U4, SLOTS, 24 * SLOTS),
            np.frombuffer(row, _U4, SLOTS, 28 * SLOTS),
            np.frombuffer(row, _U4, SLOTS, 32 * SLOTS),
        )

    @classmethod
    def empty(cls) -> Self:
        """Return that of a block without messages."""
        return cls.from_row(bytes(36 * SLOTS)).copied()

    def copied(self) -> Self:
        return type(self)(*[column.copy() for column in self.columns])

    @property
    def columns(self) -> "Sequence[NDArray[Any]]":
        return self

    @property
    def row(self) -> bytes:
        return b"".join(column.tobytes() for column in self.columns)


class VectorIndex(Environment):
    """The vectors of one embedding. `path`: the folder of its environment, made if it is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, map_bytes=_MAP_BYTES, is_synced=True)

    def open_tables(self) -> None:
        super().open_tables()
        self.chats, self.failures = self.table(b"chats"), self.table(b"failures")
        self.blocks, self.vectors = self.table(b"blocks"), self.table(b"vectors")
        self.contents = self.table(b"contents", dupsort=True)

    # What it belongs to

    def about(self, txn: Transaction) -> About | None:
        """Return what it belongs to; None of a new one, or one of another format."""
        raw = txn.get(_ABOUT, db=self.meta)
        if raw is None:
            return None
        about = msgspec.msgpack.decode(without_checksum(raw), type=About)
        return about if about.format == _FORMAT else None

    def describe(self, txn: Transaction, *, identity: str, name: str, dimensions: int, piece_chars: int) -> None:
        about = About(_FORMAT, identity, name, dimensions, piece_chars)
        txn.put(_ABOUT, with_checksum(_encode(about)), db=self.meta)

    def taken_in(self, txn: Transaction) -> TakenIn:
        """Return how far it is."""
        raw = txn.get(_STATE, db=self.meta)
        return TakenIn() if raw is None else msgspec.msgpack.decode(without_checksum(raw), type=TakenIn)

    def note(self, txn: Transaction, **changes: int) -> None:
        """Change how far it is."""
        state = msgspec.structs.replace(self.taken_in(txn), **changes)
        txn.put(_STATE, with_checksum(_encode(state)), db=self.meta)

    # Reading

    def counts(self, txn: Transaction, chat_nos: Iterable[int]) -> dict[int, int]:
        """Return how many messages of each of these chats were taken in."""
        return {chat_no: self._count(txn, chat_no) for chat_no in chat_nos}

    def _count(self, txn: Transaction, chat_no: int) -> int:
        raw = txn.get(number(chat_no), db=self.chats)
        return 0 if raw is None else to_number(raw)

    def chat_nos(self, txn: Transaction) -> list[int]:
        """Return the numbers of all chats of which messages were taken in."""
        return [to_number(key) for key in txn.cursor(self.chats).iternext(values=False)]

    def known(self, txn: Transaction, digests: Iterable[bytes]) -> dict[bytes, EmbeddedPiece]:
        """Return the vectors of those pieces that some message has."""
        pieces: dict[bytes, EmbeddedPiece] = {}
        for digest in digests:
            slot = txn.get(digest, db=self.contents)
            raw = None if slot is None else txn.get(slot, db=self.vectors)
            if raw is not None:
                pieces[digest] = EmbeddedPiece(digest, without_checksum(raw)[_DIGEST_BYTES:])
        return pieces

    def directories(self, txn: Transaction) -> Iterator[tuple[int, SlotDirectory]]:
        for key, raw in prefixed(txn, self.blocks, _DIRECTORY):
            yield _unpack_u32(key[1:])[0], SlotDirectory.from_row(without_checksum(raw))

    def signs(self, txn: Transaction, blocks: Sequence[int], dimensions: int) -> "NDArray[np.uint64]":
        """Return the signs of the vectors of blocks, of shape (blocks, words, slots)."""
        return self._words(txn, _SIGNS, blocks, dimensions)

    def fine(self, txn: Transaction, blocks: Sequence[int], dimensions: int) -> "NDArray[np.uint64]":
        """Return the second bits, of the same shape."""
        return self._words(txn, _FINE, blocks, dimensions)

    def _words(self, txn: Transaction, kind: bytes, blocks: Sequence[int], dimensions: int) -> "NDArray[np.uint64]":
        rows = [without_checksum(self._block(txn, kind, block)) for block in blocks]
        return np.frombuffer(b"".join(rows), _U8).reshape(len(blocks), words_for(dimensions), SLOTS)

    def _block(self, txn: Transaction, kind: bytes, block: int) -> bytes:
        raw = txn.get(kind + _u32(block), db=self.blocks)
        if raw is None:
            msg = f"block {block} of the vectors at {self.path} is missing; delete that folder, and they are computed anew"
            raise CorruptStateError(msg)
        return raw

    def vectors_at(self, txn: Transaction, slots: "NDArray[Any]", dimensions: int) -> "tuple[NDArray[np.int64], Codes]":
        """
        Return the vectors of ascending slots, with their places among these: of those that have one.

        Checksums are not looked at, as most of these are not shown; see `digest_at`.
        """
        packed = slots.astype(">u4").tobytes()
        keys = [packed[at : at + 4] for at in range(0, len(packed), 4)]
        rows = txn.cursor(self.vectors).getmulti(keys)
        width = _HEAD_BYTES + _CODE.itemsize * dimensions
        table = np.frombuffer(b"".join([row for _, row in rows]), np.uint8).reshape(len(rows), width + CHECKSUM_BYTES)
        codes = Codes(
            np.ascontiguousarray(table[:, _HEAD_BYTES:width]).view(_CODE),
            np.ascontiguousarray(table[:, _DIGEST_BYTES:_HEAD_BYTES]).view("<f4")[:, 0],
        )
        if len(rows) == len(keys):
            return np.arange(len(keys)), codes
        having = np.frombuffer(b"".join([key for key, _ in rows]), ">u4")
        return np.searchsorted(slots, having), codes

    def digest_at(self, txn: Transaction, slot: int) -> bytes:
        """Return the digest of the piece that a slot has the vector of. Raises `CorruptStateError` when the row is damaged."""
        raw = txn.get(_u32(slot), db=self.vectors)
        return b"" if raw is None else without_checksum(raw)[:_DIGEST_BYTES]

    def failed(self, txn: Transaction, chat_nos: Collection[int] | None = None) -> list[RefusedMessage]:
        refused = [
            RefusedMessage(
                to_number(key[:8]), _unpack_u32(key[8:])[0], *msgspec.msgpack.decode(raw, type=tuple[int, int, int])
            )
            for key, raw in txn.cursor(self.failures)
        ]
        return refused if chat_nos is None else [failure for failure in refused if failure.chat_no in chat_nos]

    # Writing

    def take_in(self, txn: Transaction, messages: Sequence[Taken], dimensions: int) -> int:
        """
        Take messages in, in order; returns how many were.

        One that does not follow the last one of its chat was taken in by another process, and is left out.
        """
        counts: dict[int, int] = {}
        fresh: list[Taken] = []
        for message in messages:
            count = counts.get(message.chat_no)
            if count is None:
                count = counts[message.chat_no] = self._count(txn, message.chat_no)
            if message.ordinal == count:
                counts[message.chat_no] = count + 1
                fresh.append(message)
        self._put_slots(txn, [(message, piece) for message in fresh for piece in message.pieces or ()], dimensions)
        failed = [message for message in fresh if message.pieces is None]
        for message in failed:
            self._put_failure(txn, message, attempts=1)
        for chat_no in {message.chat_no for message in fresh}:
            txn.put(number(chat_no), number(counts[chat_no]), db=self.chats)
        if fresh:
            state = self.taken_in(txn)
            self.note(txn, messages=state.messages + len(fresh), failed=state.failed + len(failed))
        return len(fresh)

    def retake(self, txn: Transaction, message: Taken, failure: RefusedMessage, dimensions: int) -> None:
        """Take a message in that failed before, if it is still listed."""
        key = number(message.chat_no) + _u32(message.ordinal)
        if txn.get(key, db=self.failures) is None:
            return
        if message.pieces is None:
            self._put_failure(txn, message, attempts=failure.attempts + 1)
            return
        txn.delete(key, db=self.failures)
        self._put_slots(txn, [(message, piece) for piece in message.pieces], dimensions)
        self.note(txn, failed=self.taken_in(txn).failed - 1)

    def _put_failure(self, txn: Transaction, message: Taken, *, attempts: int) -> None:
        key = number(message.chat_no) + _u32(message.ordinal)
        txn.put(key, _encode((message.segment, message.offset, attempts)), db=self.failures)

    def _live(self, txn: Transaction) -> "NDArray[np.uint32]":
        """The number of slots in use of each block."""
        raw = txn.get(_LIVE, db=self.meta)
        return np.empty(0, np.uint32) if raw is None else np.frombuffer(without_checksum(raw), _U4).copy()

    def _put_slots(self, txn: Transaction, slots: Sequence[tuple[Taken, EmbeddedPiece]], dimensions: int) -> None:
        live, done = self._live(txn), 0
        while done < len(slots):
            having_room = np.flatnonzero(live < SLOTS)
            block = int(having_room[0]) if len(having_room) else len(live)
            if block == len(live):
                live = np.append(live, np.uint32(0))
                none = np.zeros((words_for(dimensions), SLOTS), np.uint64)
                self._put_block(txn, block, SlotDirectory.empty(), Bits(none, none))
            part = slots[done : done + SLOTS - int(live[block])]
            self._fill(txn, block, part, dimensions)
            live[block] += len(part)
            done += len(part)
        if done:
            txn.put(_LIVE, with_checksum(live.astype(_U4).tobytes()), db=self.meta)

    def _fill(self, txn: Transaction, block: int, part: Sequence[tuple[Taken, EmbeddedPiece]], dimensions: int) -> None:
        directory = SlotDirectory.from_row(without_checksum(self._block(txn, _DIRECTORY, block))).copied()
        bits = self._bits(txn, block, dimensions)
        free = np.flatnonzero(directory.chats == 0)[: len(part)]
        for place, (message, piece) in zip(free.tolist(), part, strict=True):
            facts = message.chat_no, message.created_at, message.role, message.ordinal, message.segment, message.offset
            for column, value in zip(directory.columns, facts, strict=True):
                column[place] = value
            slot = _u32(block * SLOTS + place)
            txn.put(slot, with_checksum(piece.digest + piece.code), db=self.vectors)
            txn.put(piece.digest, slot, db=self.contents)
        raw = b"".join([piece.code for _, piece in part])
        table = np.frombuffer(raw, np.uint8).reshape(len(part), len(raw) // len(part))
        numbers, scales = np.ascontiguousarray(table[:, 4:]).view(_CODE), np.ascontiguousarray(table[:, :4]).view("<f4")
        signs, fine = Bits.of(numbers * scales)
        bits.signs[:, free], bits.fine[:, free] = signs, fine
        self._put_block(txn, block, directory, bits)

    def _bits(self, txn: Transaction, block: int, dimensions: int) -> Bits:
        """Return the bits of a block, to be changed."""
        return Bits(self.signs(txn, [block], dimensions)[0].copy(), self.fine(txn, [block], dimensions)[0].copy())

    def _put_block(self, txn: Transaction, block: int, directory: SlotDirectory, bits: Bits) -> None:
        txn.put(_DIRECTORY + _u32(block), with_checksum(directory.row), db=self.blocks)
        for kind, words in ((_SIGNS, bits.signs), (_FINE, bits.fine)):
            txn.put(kind + _u32(block), with_checksum(words.astype(_U8).tobytes()), db=self.blocks)

    def forget_chats(self, txn: Transaction, chat_nos: Collection[int], dimensions: int) -> bool:
        """Remove what there is of chats; returns whether there was any. The file must be scrubbed then."""
        gone = {chat_no: count for chat_no, count in self.counts(txn, chat_nos).items() if count}
        if not gone:
            return False
        wanted = np.array(sorted(gone), np.uint64)
        self._empty(txn, lambda directory: np.flatnonzero(np.isin(directory.chats, wanted)), dimensions)
        failed = 0
        for chat_no in gone:
            failed += sum(1 for _ in prefixed(txn, self.failures, number(chat_no)))
            drop_prefixed(txn, self.failures, number(chat_no))
            txn.delete(number(chat_no), db=self.chats)
        state = self.taken_in(txn)
        self.note(txn, messages=state.messages - sum(gone.values()), failed=state.failed - failed)
        self.note_dirty(txn)
        return True

    def forget_messages(self, txn: Transaction, messages: Collection[tuple[int, int]], dimensions: int) -> bool:
        """
        Remove the vectors of messages, given by their chats and numbers in log order, which count as taken in.

        Returns whether there were any. The file must be scrubbed then.
        """
        numbers: dict[int, list[int]] = {}
        for chat_no, ordinal in messages:
            numbers.setdefault(chat_no, []).append(ordinal)

        def places_of(directory: SlotDirectory) -> "NDArray[np.int64]":
            places = [
                np.flatnonzero((directory.chats == chat_no) & np.isin(directory.ordinals, ordinals))
                for chat_no, ordinals in numbers.items()
            ]
            return np.concatenate(places)

        has_any = self._empty(txn, places_of, dimensions)
        failed = sum(
            txn.delete(number(chat_no) + _u32(ordinal), db=self.failures) is True for chat_no, ordinal in messages
        )
        if failed:
            self.note(txn, failed=self.taken_in(txn).failed - failed)
        if has_any:
            self.note_dirty(txn)
        return has_any

    def _empty(
        self, txn: Transaction, places_of: "Callable[[SlotDirectory], NDArray[np.int64]]", dimensions: int
    ) -> bool:
        live, count = self._live(txn), 0
        for block, directory in list(self.directories(txn)):
            places = places_of(directory)
            if not len(places):
                continue
            emptied, bits = directory.copied(), self._bits(txn, block, dimensions)
            for place in places.tolist():
                slot = _u32(block * SLOTS + place)
                raw = txn.pop(slot, db=self.vectors)
                if raw is not None:
                    # Only this slot of the piece: messages of other chats may have it too.
                    txn.delete(without_checksum(raw)[:_DIGEST_BYTES], slot, db=self.contents)
            for column in emptied.columns:
                column[places] = 0
            bits.signs[:, places] = bits.fine[:, places] = 0
            self._put_block(txn, block, emptied, bits)
            live[block] -= len(places)
            count += len(places)
        if count:
            txn.put(_LIVE, with_checksum(live.astype(_U4).tobytes()), db=self.meta)
        return count > 0


DAMAGE: Final = (lmdb.Error, ValueError, msgspec.MsgspecError)
"""Errors that reading damaged rows comes to."""
