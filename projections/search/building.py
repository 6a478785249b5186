"""Taking in the messages of many chats at once, when the search index is built."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.search.fields import FIELDS, TEXT, SearchField
from chatledger.domain.search.tokens import LANDMARK_TERMS, landmarks_of

from ..chat.reader import IndexedChat
from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from .documents import EARLIEST, LENGTHS, PLACE_OFFSET, PLACE_SEGMENT, ROLE, TIME, DocumentDirectory, Documents
from .indexer import SIGNS, count_indexed, is_current, landmarks_key, put_landmarks
from .log_order import FieldTexts, LogOrder, Places
from .manifest import FANOUT, manifest_of, put_manifest, put_totals, totals_of
from .merging import merge_all, plan
from .postings import Postings, invert
from .segments import PackedSegment, pack_segment, write_segment
from .term_numbers import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_BYTES: Final = 16 << 20
"""Of messages as they are stored; these and what is worked out from them are in memory together."""
STEP_MESSAGES: Final = 2_048
STEP_BYTES: Final = 1 << 20
"""Texts of so many messages, or bytes, are taken apart together."""


_SHORT: Final = 1_024
"""A chat of so many messages is read at once."""


class Listed(NamedTuple):
    """
    Messages, in the order of chats and of the log of each.

    Args:
        chats: The number of the chat of each (`uint64`).
        numbers: Its number in the order of the log of the chat (`uint32`).
        segments: Where it is in the chains of the chat: the segment (`uint32`).
        offsets: Its offset there (`uint32`).
    """

    chats: "NDArray[np.uint64]"
    numbers: "NDArray[np.uint32]"
    segments: "NDArray[np.uint32]"
    offsets: "NDArray[np.uint32]"

    def sliced(self, start: int, end: int) -> "Listed":
        """Return those from one to before another."""
        within = slice(start, end)
        return Listed(self.chats[within], self.numbers[within], self.segments[within], self.offsets[within])


class _CodedTexts(NamedTuple):
    """The terms of texts, numbered, and the documents that the texts belong to."""

    documents: "NDArray[np.uint32]"
    codes: "NDArray[np.int32]"
    lengths: "NDArray[np.int64]"


class SegmentDraft:
    """
    Messages in the order of chats and of the log of each: what a segment keeps of them.

    Args:
        vocabulary: Numbers the terms.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.size = 0
        self.counts: dict[int, tuple[int, int]] = {}
        """Of each chat the number of its first message, and how many follow it with it."""
        self.landmarks: list[tuple[int, int, SearchField, list[int]]] = []
        self._chats: list[NDArray[np.uint64]] = []
        self._numbers: list[NDArray[np.uint32]] = []
        self._places: list[tuple[NDArray[np.uint32], NDArray[np.uint32]]] = []
        self._times: list[int] = []
        self._roles: dict[str, int] = {}
        self._role_numbers: list[int] = []
        self._waiting: dict[SearchField, tuple[list[int], list[str]]] = {}
        self._waiting_messages = self._waiting_bytes = 0
        self._coded: dict[SearchField, list[_CodedTexts]] = {}

    def add(self, order: LogOrder, chat_no: int, places: Places) -> int:
        """Read messages of a chat at these places, or the first of them where the vocabulary becomes full; returns how many."""
        at, end = 0, len(places.segments)
        while at < end and (not self.size or not self._vocabulary.is_full):
            stop = min(places.fitting(at, STEP_MESSAGES, STEP_BYTES), end)
            self._take(order.texts_at(places, at, stop))
            at = stop
        self._note(chat_no, places._replace(segments=places.segments[:at], offsets=places.offsets[:at]))
        return at

    def add_short(self, chat_no: int, places: Places, messages: FieldTexts) -> None:
        """Take in all messages of a chat that are not taken in yet."""
        self._take(messages)
        self._note(chat_no, places)

    def add_listed(self, listed: Listed, messages: FieldTexts) -> None:
        """Take in messages that follow those that are taken in, in the order of chats and of the log of each."""
        self._take(messages)
        self._chats.append(listed.chats)
        self._numbers.append(listed.numbers)
        self._places.append((listed.segments, listed.offsets))

    def _note(self, chat_no: int, places: Places) -> None:
        count = len(places.segments)
        self.counts[chat_no] = places.first, count
        self._chats.append(np.full(count, chat_no, np.uint64))
        self._numbers.append(np.arange(places.first, places.first + count, dtype=np.uint32))
        self._places.append((places.segments, places.offsets))

    def _take(self, messages: FieldTexts) -> None:
        count = len(messages.names)
        self._wait(TEXT, range(self.size, self.size + count), messages.texts)
        for field, (having, texts) in messages.others.items():
            self._wait(field, [self.size + at for at in having], texts)
        self._role_numbers += [self._roles.setdefault(name, len(self._roles)) for name in messages.names]
        self._times += messages.times
        self.size += count
        self._waiting_messages += count
        if self._waiting_messages >= STEP_MESSAGES or self._waiting_bytes >= STEP_BYTES:
            self._code()

    def _wait(self, field: SearchField, documents: Sequence[int], texts: Sequence[str]) -> None:
        waiting = self._waiting.setdefault(field, ([], []))
        waiting[0].extend(documents)
        waiting[1].extend(texts)
        self._waiting_bytes += sum(map(len, texts))

    def _code(self) -> None:
        """Take the texts that wait apart."""
        for field, (documents, texts) in self._waiting.items():
            coded = self._vocabulary.code(texts)
            self._coded.setdefault(field, []).append(
                _CodedTexts(np.array(documents, dtype=np.uint32), coded.codes, coded.lengths)
            )
            for at in np.flatnonzero(coded.lengths > LANDMARK_TERMS).tolist():
                self.landmarks.append((documents[at], 0, field, landmarks_of(texts[at])))
        self._waiting = {}
        self._waiting_messages = self._waiting_bytes = 0

    def segment(self) -> PackedSegment:
        """Return a segment of the messages."""
        self._code()
        chats, numbers = np.concatenate(self._chats), np.concatenate(self._numbers)
        self.landmarks = [
            (int(chats[document]), int(numbers[document]), field, landmarks)
            for document, _, field, landmarks in self.landmarks
        ]
        columns: dict[int, NDArray[np.uint64]] = {
            TIME: np.array(self._times, dtype=np.int64).view(np.uint64) ^ np.uint64(EARLIEST),
            ROLE: np.array(self._role_numbers, dtype=np.uint64),
            PLACE_SEGMENT: np.concatenate([segments for segments, _ in self._places]).astype(np.uint64),
            PLACE_OFFSET: np.concatenate([offsets for _, offsets in self._places]).astype(np.uint64),
        }
        for field, parts in self._coded.items():
            lengths = columns[LENGTHS[field]] = np.zeros(self.size, np.uint64)
            for part in parts:
                lengths[part.documents] = part.lengths
        documents = Documents(DocumentDirectory.of_messages(chats, numbers), columns, list(self._roles))
        return pack_segment(documents, self._inverted())

    def _inverted(self) -> Postings:
        """Return the postings, those of the other fields with the signs of these."""
        terms, every = self._vocabulary.terms, [part for parts in self._coded.values() for part in parts]
        codes: list[NDArray[np.int32]] = []
        names: list[bytes] = []
        for field, parts in self._coded.items():
            of_field = np.concatenate([part.codes for part in parts])
            used = np.flatnonzero(np.bincount(of_field, minlength=1)) if len(of_field) else np.empty(0, np.int64)
            numbers = np.zeros(len(terms), np.int32)
            numbers[used] = np.arange(len(names), len(names) + len(used), dtype=np.int32)
            codes.append(numbers[of_field])
            names += [(SIGNS[field] + terms[code]).encode() for code in used.tolist()]
        order = sorted(range(len(names)), key=names.__getitem__)
        ranks = np.empty(len(names), np.int32)
        ranks[order] = np.arange(len(names), dtype=np.int32)
        return invert(
            ranks[np.concatenate(codes)],
            np.concatenate([part.lengths for part in every]),
            np.concatenate([part.documents for part in every]),
            [names[at] for at in order],
        )

    @property
    def lengths(self) -> list[int]:
        """Number of terms that all messages have, by field."""
        return [sum(int(part.lengths.sum()) for part in self._coded.get(field, ())) for field in FIELDS]


class Builder:
    """
    Takes in the messages of chats, some at a time.

    They are read and inverted outside of write transactions, as messages and their places never change.

    Args:
        env: What the search index is in.
        tables: Its tables.
        chunk_messages: At most so many at a time; fewer where they are long, or have many different words.
    """

    def __init__(self, env: Environment, tables: Tables, chunk_messages: int) -> None:
        self._env, self._tables, self._chunk_messages = env, tables, chunk_messages
        self._vocabulary = Vocabulary()

    def take_in(self, chat_nos: Sequence[int]) -> Iterator[int]:
        """Take in the messages of chats, also those that are written meanwhile; yields how many after each transaction."""
        with self._env.reading() as txn:
            counts = count_indexed(txn, self._tables, chat_nos)
        firsts = dict(sorted(zip(chat_nos, counts, strict=True)))
        transactions = 0
        while firsts:
            if self._vocabulary.is_full:
                self._vocabulary = Vocabulary()
            with self._env.reading() as txn:
                batch = self._read(txn, firsts)
            if not batch.size:
                break
            after = self._env.update(partial(self._write, batch, batch.segment()))
            if after is None:
                return
            taken = sum(after[chat_no] - first for chat_no, (first, _) in batch.counts.items() if chat_no in after)
            for chat_no in batch.counts:  # go on behind what was taken in, and not with chats that were deleted
                if chat_no in after:
                    firsts[chat_no] = after[chat_no]
                else:
                    del firsts[chat_no]
            transactions += 1
            if taken:
                yield taken
        if transactions > FANOUT:
            merge_all(self._env, self._tables)

    def _read(self, txn: Transaction, firsts: dict[int, int]) -> SegmentDraft:
        """Read the next messages of chats; chats that lack none are dropped from `firsts`."""
        batch, size = SegmentDraft(self._vocabulary), 0
        for chat_no, first in list(firsts.items()):
            record = IndexedChat(self._tables, txn, "", chat_no).record
            if record is None or first >= record.message_count:  # deleted, or complete
                del firsts[chat_no]
                continue
            room = self._chunk_messages - batch.size
            # Many chats are short: these are read as they lie, without looking for places first.
            order = LogOrder(txn, self._tables.rows, chat_no, "")
            short = order.short(first, STEP_BYTES) if record.message_count - first <= min(room, _SHORT) else None
            if short is not None:
                batch.add_short(chat_no, *short)
                size += int(short[0].bytes_before[-1])
                is_whole = True
            else:
                places = order.places(order.pages(), first, room)
                end = places.fitting(0, len(places.segments), max(CHUNK_BYTES - size, 0))
                size += int(places.bytes_before[end])
                wanted = places._replace(segments=places.segments[:end], offsets=places.offsets[:end])
                is_whole = batch.add(order, chat_no, wanted) == len(places.segments)
            if not is_whole or batch.size >= self._chunk_messages or size >= CHUNK_BYTES or self._vocabulary.is_full:
                break
        return batch

    def _write(self, batch: SegmentDraft, segment: PackedSegment, txn: Transaction) -> dict[int, int] | None:
        """
        Write the messages of a batch; returns how many of each of its chats are in the index then.

        Nothing is written if that changed meanwhile, or a chat was deleted; None if the search index was begun anew by another version.
        """
        tables, chats = self._tables, list(batch.counts)
        if not is_current(txn, tables):
            return None
        living = [no for no in chats if IndexedChat(tables, txn, "", no).record is not None]
        after = dict(zip(living, count_indexed(txn, tables, living), strict=True))
        # A writer may have taken in what the batch has, while it was inverted outside of transactions.
        if after != {chat_no: first for chat_no, (first, _) in batch.counts.items()}:
            return after
        manifest = manifest_of(txn, tables)
        write_segment(txn, tables, manifest, segment)
        plan(manifest)
        put_manifest(txn, tables, manifest)
        for chat_no, number, field, landmarks in batch.landmarks:
            put_landmarks(txn, tables, landmarks_key(chat_no, number, field), landmarks)
        put_totals(txn, tables, totals_of(txn, tables).with_more(batch.size, batch.lengths))
        return {chat_no: first + count for chat_no, (first, count) in batch.counts.items()}
