"""Indexing messages for search: as they are written, and from the chains of all chats, while the index is in use."""

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField, search_texts
from chatledger.domain.search.tokens import LANDMARK_TERMS, PART, TOKENIZER, landmarks_of, terms_of
from chatledger.domain.values import Message

from ..chat.chains import Place
from ..chat.reader import IndexedChat
from ..lmdb.environment import Environment, Transaction
from ..lmdb.keys import number
from ..lmdb.tables import Tables
from ..versioned.lists import record_at, searched_at
from .deletion import forget_chat, forget_terms
from .manifest import (
    LANDMARKS,
    SearchManifest,
    Totals,
    WaitingMessage,
    add_rows,
    manifest_of,
    messages_in,
    packed,
    put_manifest,
    put_totals,
    rows_of,
    totals_of,
    u32,
)

VERSION: Final = b"4/" + TOKENIZER
"""Changes whenever rows, keys or terms do; a search index of another version is built anew."""

_VERSION, _BEHIND = b"search", b"search behind"


def is_current(txn: Transaction, tables: Tables) -> bool:
    return txn.get(_VERSION, db=tables.meta) == VERSION


def is_behind(txn: Transaction, tables: Tables) -> bool:
    """Whether there may be chats with messages that are not in the search index."""
    return txn.get(_BEHIND, db=tables.meta) is not None


def note_behind(txn: Transaction, tables: Tables) -> None:
    """Note that a message was left out."""
    if not is_behind(txn, tables):
        txn.put(_BEHIND, b"1", db=tables.meta)


def note_complete(txn: Transaction, tables: Tables) -> None:
    txn.delete(_BEHIND, db=tables.meta)


def begin_anew(txn: Transaction, tables: Tables) -> None:
    """Drop the whole search index; it is of this version from now on, and behind."""
    _drop(txn, tables)
    txn.put(_VERSION, VERSION, db=tables.meta)


def _drop(txn: Transaction, tables: Tables) -> None:
    """Drop the whole search index; it is of no version from now on."""
    try:
        # What processes remember of the index goes by these two, which are never used again.
        next_id, version = manifest_of(txn, tables).next_id, totals_of(txn, tables).version
    except (msgspec.MsgspecError, struct.error, CorruptStateError):
        # Numbers far beyond those that are given out one by one, others for each transaction of this environment.
        next_id, version = 2**31 + txn.id() % 2**20 * 2**10, 2**62 + txn.id() * 2**20
    txn.drop(tables.search, delete=False)
    put_manifest(txn, tables, SearchManifest(next_id))
    put_totals(txn, tables, Totals(version))
    txn.delete(_VERSION, db=tables.meta)
    note_behind(txn, tables)


def count_indexed(txn: Transaction, tables: Tables, chat_nos: Sequence[int]) -> list[int]:
    """Return how many messages of each of some chats are in the search index: the first ones, in the order of the log."""
    waiting = dict.fromkeys(chat_nos, 0)
    for message in messages_in(rows_of(txn, tables)):
        if message.chat_no in waiting:
            waiting[message.chat_no] += 1
    segments = manifest_of(txn, tables).segments
    if segments:
        # NumPy takes a tenth of a second to import: only where there are segments, which it has written.
        from .documents import SegmentDocuments

        for segment in segments:
            directory = SegmentDocuments(txn, tables, segment, may_remember=False).directory
            for chat_no in waiting.keys() & set(directory.chats.tolist()):
                start, end = directory.bounds(chat_no)
                waiting[chat_no] += end - start
    return [waiting[chat_no] for chat_no in chat_nos]


def message_count(txn: Transaction, tables: Tables, stream_no: int) -> int | None:
    """Return how many messages a chat has, or another stream under this number; None where there is none."""
    record = IndexedChat(tables, txn, "", stream_no).record
    if record is not None:
        return record.message_count
    place = searched_at(txn, tables, stream_no)
    return None if place is None else record_at(txn, tables, place[1]).message_count


FLUSH_MESSAGES: Final = 128
FLUSH_BYTES: Final = 1 << 17
"""With so many messages, or bytes of them, those that wait become a segment: the write that comes to it takes two milliseconds longer."""
SIGNS: Final[dict[SearchField, str]] = dict(zip(FIELDS, ("", "\x01", "\x02"), strict=True))
"""Begin the terms of each field in the index; no term has such a character."""


def landmarks_key(chat_no: int, ordinal: int, field: SearchField) -> bytes:
    return LANDMARKS + number(chat_no) + u32(ordinal) + bytes((FIELDS.index(field),))


class SearchWriter:
    """
    Adds messages of one chat to the search index in a write transaction. What was added is in the tables after `flush`.

    A chat whose index lags behind, because it is being built, is left alone: whoever builds it will come to the new messages.
    """

    def __init__(self, txn: Transaction, tables: Tables, chat_no: int) -> None:
        self._txn, self._tables, self._chat_no = txn, tables, chat_no
        self._is_current = not tables.caches.is_search_deferred and is_current(txn, tables)
        self._is_behind = False
        self._next: int | None = None  # while the index lags behind
        if self._is_current and is_behind(txn, tables):
            (self._next,) = count_indexed(txn, tables, [chat_no])
        self._messages: list[tuple[bytes, bytes]] = []
        self._lengths = [0, 0, 0]
        self.last_text = ""
        """The text of the last message; empty where it was left alone."""

    def add(self, message: Message, ordinal: int, place: Place) -> None:
        """Take the next message in, which is at that place of the chains."""
        self.last_text = ""
        # A message is taken in only behind the last one of its chat that was, so that a count says which are there.
        if not self._is_current or (self._next is not None and ordinal != self._next):
            if not self._is_behind:
                note_behind(self._txn, self._tables)
                self._is_behind = True
            return
        if self._next is not None:
            self._next += 1
        lengths = [0, 0, 0]
        body = ""
        # What stands in the place of redacted content is not searched: segments could not take its words in afterwards.
        texts = search_texts(message.form, message.data, message.name) if message.redacted is None else {}
        self.last_text = texts.get(TEXT, "")
        for field, text in texts.items():
            of_field = terms_of(text)
            if len(of_field) > LANDMARK_TERMS:
                put_landmarks(self._txn, self._tables, landmarks_key(self._chat_no, ordinal, field), landmarks_of(text))
            lengths[FIELDS.index(field)] = len(of_field)
            if of_field:
                body += signed_all(field, of_field)
        for at, length in enumerate(lengths):
            self._lengths[at] += length
        waiting = WaitingMessage(
            *(self._chat_no, ordinal, message.created_at, place, message.name, (lengths[0], lengths[1], lengths[2])),
            f"{body}\0".encode() if body else b"",
        )
        self._messages.append(packed(waiting))

    def flush(self) -> None:
        """Write what was added since the last flush."""
        if not self._messages:
            return
        totals = totals_of(self._txn, self._tables)
        next_row = add_rows(self._txn, self._tables, self._messages, totals.next_row)
        totals = totals.with_more(len(self._messages), self._lengths)._replace(
            pending=totals.pending + len(self._messages),
            pending_bytes=totals.pending_bytes + sum([len(head) + len(body) for head, body in self._messages]),
            next_row=next_row,
        )
        put_totals(self._txn, self._tables, totals)
        if totals.pending >= FLUSH_MESSAGES or totals.pending_bytes >= FLUSH_BYTES:
            # Noted, not done: the other chats of this transaction go into the same segment.
            self._tables.caches.is_segment_due = True
        self._messages, self._lengths = [], [0, 0, 0]


def settle(txn: Transaction, tables: Tables) -> None:
    """Make a segment of the messages that wait where they are enough: one of all that a transaction wrote, of however many chats."""
    totals = totals_of(txn, tables)
    tables.caches.is_segment_due = False
    if totals.pending >= FLUSH_MESSAGES or totals.pending_bytes >= FLUSH_BYTES:
        # NumPy takes a tenth of a second to import: only for those who write much.
        from .pending import flush

        put_totals(txn, tables, flush(txn, tables, totals))


def put_landmarks(txn: Transaction, tables: Tables, key: bytes, landmarks: Sequence[int]) -> None:
    """Keep where the terms of a long text are in it; see `landmarks_of`."""
    txn.put(key, array("I", landmarks).tobytes(), db=tables.search)


def landmarks_of_text(
    txn: Transaction, tables: Tables, chat_no: int, ordinal: int, field: SearchField
) -> Sequence[int]:
    """Return the landmarks that are kept of one field of a message; none of a short one."""
    return array("I", txn.get(landmarks_key(chat_no, ordinal, field), b"", db=tables.search))


def signed(field: SearchField, term: str) -> str:
    """A term of a text as the index has it in that field; that of an identifier with its parts."""
    sign = SIGNS[field]
    return sign + term.replace(PART, PART + sign) if sign else term


def signed_all(field: SearchField, terms: Sequence[str]) -> str:
    """
    The terms of a field as one text, each signed behind a NUL.

    With one more NUL at the end each stands between two, so that a term can be looked for. To sign them one by one takes longer than
    to find them.
    """
    text = "\0" + "\0".join(terms)
    sign = SIGNS[field]
    return text.replace("\0", f"\0{sign}").replace(PART, PART + sign) if sign else text


def _all_terms(message: Message) -> Iterator[bytes]:
    """The terms that segments have of a message, maybe more than once."""
    for field, text in search_texts(message.form, message.data, message.name).items():
        for term in terms_of(text):
            yield from signed(field, term).encode().split(PART.encode())


def forget_messages(txn: Transaction, tables: Tables, chat_no: int, messages: Iterable[Message] | None) -> None:
    """Remove a chat, or another stream, with all of its messages from the search index; see `deletion`."""
    if messages is not None and is_current(txn, tables):
        forget_chat(txn, tables, chat_no, chain.from_iterable(map(_all_terms, messages)))
    else:
        _drop(txn, tables)  # it cannot be read, and nothing of the messages may stay in it


def forget_texts(txn: Transaction, tables: Tables, chat_no: int, messages: Sequence[tuple[int, Message]]) -> None:
    """Remove what messages of a chat say from the search index, by their numbers in log order; that they are there stays."""
    if not is_current(txn, tables):
        _drop(txn, tables)
        return
    terms: set[bytes] = set()
    for ordinal, message in messages:
        terms.update(_all_terms(message))
        for field in FIELDS:
            txn.delete(landmarks_key(chat_no, ordinal, field), db=tables.search)
    forget_terms(txn, tables, chat_no, sorted(ordinal for ordinal, _ in messages), sorted(terms))


def is_complete(env: Environment, tables: Tables) -> bool:
    """Whether the search index is of this version, and of all messages."""
    with env.reading() as txn:
        return is_current(txn, tables) and not is_behind(txn, tables)
