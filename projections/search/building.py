"""Taking in the messages of many chats at once, when the search index is built."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.search.fields import FIELDS, TEXT, SearchField
from chatledger.domain.search.tokens import (
    LANDMARK_TERMS,
    ascii_words,
    has_ascii_words,
    landmarks_of,
    terms_of,
    terms_of_words,
)

from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from ..versioned.messages import HeldMessages, value_at
from .documents import EARLIEST, LENGTHS, PLACE_OFFSET, PLACE_SEGMENT, ROLE, TIME, DocumentDirectory, Documents
from .indexer import count_indexed, is_current, landmarks_key, message_count, put_landmarks, signed
from .log_order import FieldTexts, LogOrder, Places, texts_in
from .manifest import FANOUT, manifest_of, put_manifest, put_totals, totals_of
from .merging import merge_all, plan
from .postings import Postings, invert
from .segments import PackedSegment, pack_segment, write_segment

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SLOT_BITS: Final = 17
_MAX_TERMS: Final = 1 << 16
"""Some 10 MB of them."""
_WINDOW_BYTES: Final = 100_000
"""So many bytes of text at a time: what NumPy makes of them stays in the processor's cache."""
_FIRST_WINDOW_BYTES: Final = 2_000
"""The first windows are smaller: most of their words are new, and each of these is looked up as often as it occurs in one."""

_BLANK: Final = 32
_DIGITS: Final = 64
"""Digits are below, letters above, as ASCII has them."""
_SMALL: Final = 97
_HALF: Final = 8
_MAX_BYTES: Final = 2 * _HALF
_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(_HALF + 1)], dtype=np.uint64)
_FIRST_HALF: Final = np.concatenate((_BYTES, _BYTES[-1:].repeat(_HALF)))
_SECOND_HALF: Final = np.concatenate((_BYTES[:1].repeat(_HALF), _BYTES))
"""By the length of a word: which bits of its first and second eight bytes belong to it."""
_MIX: Final = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT: Final = np.uint64(64 - _SLOT_BITS)


class Coded(NamedTuple):
    """The terms of texts as their numbers (`int32`), one text's after the other, and how many each text has (`int64`)."""

    codes: "NDArray[np.int32]"
    lengths: "NDArray[np.int64]"


class Vocabulary:
    """
    Terms, numbered in the order in which they were met.

    NumPy looks up most words of a text in one go, in a table of words of up to 16 bytes in which each has one slot, by its
    bytes. The others are looked up one by one: those that are new or longer, or whose slot another word has.
    """

    def __init__(self) -> None:
        self._numbers = _Numbers()
        self._window = _FIRST_WINDOW_BYTES
        slots = 1 << _SLOT_BITS
        self._first_halves, self._second_halves = np.zeros(slots, np.uint64), np.zeros(slots, np.uint64)
        self._codes = np.zeros(slots, np.int32)

    @property
    def terms(self) -> list[str]:
        """The terms by their numbers, also those that are still to come."""
        return self._numbers.terms

    @property
    def is_full(self) -> bool:
        """Whether it should be replaced by a new one: words come from users, and there may be any number of them."""
        return len(self._numbers) > _MAX_TERMS

    def code(self, texts: Sequence[str]) -> Coded:
        if all(map(str.isascii, texts)):
            return self._code_ascii(texts)
        others = [at for at, text in enumerate(texts) if not has_ascii_words(text)]
        plain = list(texts)
        for at in others:
            plain[at] = ""
        coded = self._code_ascii(plain)
        terms = [terms_of(texts[at]) for at in others]
        counts = np.fromiter(map(len, terms), np.int64, len(terms))
        codes = np.array(self._numbers.of(chain.from_iterable(terms)), dtype=np.int32)
        places = np.cumsum(coded.lengths)[others]
        coded.lengths[others] = counts
        return Coded(np.insert(coded.codes, places.repeat(counts), codes), coded.lengths)

    def _code_ascii(self, texts: Sequence[str]) -> Coded:
        words = ascii_words(texts)
        cased = b" " + words + b" " * _MAX_BYTES
        raw = cased.lower()
        codes: list[NDArray[np.int32]] = []
        starts: list[NDArray[np.int64]] = []
        start, last = 0, len(words) + 1
        while start < last:
            self._window = min(2 * self._window, _WINDOW_BYTES)
            end = last if last - start < self._window else raw.index(b" ", start + self._window)
            starts_of_window, codes_of_window = self._code_window(cased, raw, start, end)
            starts.append(starts_of_window)
            codes.append(codes_of_window)
            start = end
        sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        return Coded(np.concatenate(codes), np.diff(np.searchsorted(np.concatenate(starts), bounds)))

    def _code_window(
        self, cased: bytes, raw: bytes, start: int, end: int
    ) -> "tuple[NDArray[np.int64], NDArray[np.int32]]":
        """The words between two blanks: where they are, and the numbers of their terms; `raw` has them in lower case."""
        letters = np.frombuffer(cased, np.uint8, end + 1 - start, start)
        is_word = letters != _BLANK
        edges = np.flatnonzero(is_word[1:] != is_word[:-1]) + (start + 1)
        starts, ends = edges[::2], edges[1::2]
        sizes = ends - starts
        halves = np.ndarray((len(raw) - _HALF + 1,), "<u8", raw, 0, (1,))  # the eight bytes from every place on
        known_sizes = np.minimum(sizes, _MAX_BYTES)
        first = halves[starts] & _FIRST_HALF[known_sizes]
        second = halves[starts + _HALF] & _SECOND_HALF[known_sizes]
        slots = (((first * _MIX[0]) ^ (second * _MIX[1])) * _MIX[0] >> _SHIFT).view(np.int64)
        is_known = (self._first_halves[slots] == first) & (self._second_halves[slots] == second) & (sizes <= _MAX_BYTES)
        # Identifiers differ by their capitals, and are looked up one by one: a capital behind a small letter, or between others.
        is_capital, is_small = letters[1:-1] < _SMALL, letters >= _SMALL
        is_capital &= letters[1:-1] > _DIGITS
        capitals = np.flatnonzero(is_capital & (is_small[:-2] | (is_word[:-2] & is_small[2:]))) + (start + 1)
        has_parts = np.zeros(len(starts), np.bool_)
        has_parts[np.searchsorted(starts, capitals, "right") - 1] = True
        codes = self._codes[slots]
        others = np.flatnonzero(~is_known | has_parts)
        if len(others):
            # Of other words one form is looked up: with those in capitals more are met than are remembered.
            text, cased_text = raw[start:end].decode(), cased[start:end].decode()
            spans = zip((starts[others] - start).tolist(), (ends[others] - start).tolist(), strict=True)
            among = zip(spans, has_parts[others].tolist(), strict=True)
            words = [(cased_text if is_cased else text)[begin:stop] for (begin, stop), is_cased in among]
            codes[others] = self._numbers.of(terms_of_words(words))
            others = others[(sizes[others] <= _MAX_BYTES) & ~has_parts[others]]
            others = others[self._first_halves[slots[others]] == 0]  # slots that no word has yet
            # Of several words for one slot the last gets it, as it does in each of these.
            free = slots[others]
            self._first_halves[free], self._second_halves[free] = first[others], second[others]
            self._codes[free] = codes[others]
        return starts, codes


class _Numbers(dict[str, int]):
    """Terms with their numbers; who looks for a new one gives it the next."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: list[str] = []

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self.terms)
        self.terms.append(term)
        return number

    def of(self, terms: Iterable[str]) -> list[int]:
        return list(map(self.__getitem__, terms))


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
    """Messages in the order of chats and of the log of each: what a segment keeps of them."""

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

    def add_held(self, number: int, first: int, held: Sequence[tuple[tuple[int, int], bytes]]) -> int:
        """Take in messages of a thread, a state or an item, with their places; returns how many bytes they are."""
        self._take(texts_in([body for _, body in held]))
        columns = np.array([place for place, _ in held], dtype=np.uint32).reshape(-1, 2).T
        sizes = np.cumsum([0, *(len(body) for _, body in held)])
        self._note(number, Places(first, columns[0], columns[1], sizes))
        return int(sizes[-1])

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
            names += [signed(field, terms[code]).encode() for code in used.tolist()]
        return invert(
            np.concatenate(codes),
            np.concatenate([part.lengths for part in every]),
            np.concatenate([part.documents for part in every]),
            names,
        )

    @property
    def lengths(self) -> list[int]:
        """Number of terms that all messages have, by field."""
        return [sum(int(part.lengths.sum()) for part in self._coded.get(field, ())) for field in FIELDS]


class Builder:
    """
    Takes in the messages of chats, some at a time.

    They are read and inverted outside of write transactions, as messages and their places never change.

    `chunk_messages`: at most so many at a time; fewer where they are long, or have many different words.
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
            messages = message_count(txn, self._tables, chat_no)
            if messages is None or first >= messages:  # deleted, or complete
                del firsts[chat_no]
                continue
            room = self._chunk_messages - batch.size
            value = value_at(txn, self._tables, chat_no)
            if value is not None:
                held = HeldMessages(txn, self._tables, value).bodies(first, min(room, STEP_MESSAGES))
                size += batch.add_held(chat_no, first, list(held))
                if batch.size >= self._chunk_messages or size >= CHUNK_BYTES or self._vocabulary.is_full:
                    break
                continue
            # Many chats are short: these are read as they lie, without looking for places first.
            order = LogOrder(txn, self._tables.rows, chat_no, "")
            short = order.short(first, STEP_BYTES) if messages - first <= min(room, _SHORT) else None
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
        living = [no for no in chats if message_count(txn, tables, no) is not None]
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
