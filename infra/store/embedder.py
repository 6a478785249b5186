"""Giving messages their vectors: which ones lack them, calls of the function, and taking in what it returned."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from chatledger.domain.errors import EmbeddingError
from chatledger.domain.search.embedding import Embedding, piece_digest
from chatledger.projections.chat.chains import Chains
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.log.entries import streams_between
from chatledger.projections.meaning.texts import EmbeddedText, text_at, texts_from
from chatledger.projections.meaning.vector_index import EmbeddedPiece, RefusedMessage, Taken, VectorIndex
from chatledger.projections.meaning.vectors import Codes, embed_texts

from .vector_folders import read, update

if TYPE_CHECKING:
    from chatledger.projections.snapshot import Snapshot

_READ: Final = 1_024
"""So many messages of a chat are read at once."""
_FAR: Final = 100_000
"""Behind by more events than this, all chats are asked whether they lack vectors."""
_TRIES: Final = 2
"""So often a batch is tried as a whole; then each message alone, to find the one that the function refuses."""
_RETRY_S: Final = 600.0
_logger = logging.getLogger(__name__)


class Embedder:
    """
    Gives the messages of an index their vectors.

    No transaction is open while the function runs: appends neither wait for it nor fail with it.

    Args:
        index: It has the messages.
        vectors: What to add to.
        embedding: The function.
        is_over: Whether to stop.
    """

    def __init__(
        self, index: Index, vectors: VectorIndex, embedding: Embedding, *, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._index, self.vectors, self._embedding, self._is_over = index, vectors, embedding, is_over
        self._tries = 0
        self._retried_s: float | None = None

    def catch_up(self) -> int:
        """
        Embed all messages that the index has now; returns the position up to which they have vectors.

        Raises:
            EmbeddingError: The function failed. What it returned before is taken in, and the next call goes on there.
        """
        reconcile(self._index, self.vectors, self._embedding.dimensions)
        before = read(self.vectors, self.vectors.taken_in).position
        with self._index.snapshot() as snapshot:
            end = snapshot.state.position
            chats = _changed(snapshot, before, end) if before < end else []
        for batch in self._batches(chats):
            # One batch a write: what the function returned is there when the next call fails, or the process ends.
            self._take_in(batch)
            if self._is_over():
                return before
        if before < end:
            update(self.vectors, lambda txn: self.vectors.note(txn, position=end))
        self._retry_failed()
        return end

    def _batches(self, chat_nos: Sequence[int]) -> Iterator[list[EmbeddedText]]:
        """Yield messages without vectors, so many as have about as many pieces as one call takes."""
        batch: list[EmbeddedText] = []
        size = 0
        for text in self._lacking(chat_nos):
            batch.append(text)
            size += max(len(text.pieces), 1)
            if size >= self._embedding.batch:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _lacking(self, chat_nos: Sequence[int]) -> Iterator[EmbeddedText]:
        """Yield the messages of chats that have no vectors, each chat in the order of its log."""
        counts = read(self.vectors, lambda txn: self.vectors.counts(txn, chat_nos))
        for chat_no in chat_nos:
            first = counts[chat_no]
            while True:
                with self._index.snapshot() as snapshot:
                    texts = texts_from(snapshot.txn, snapshot.tables, chat_no, first, _READ, self._embedding.pieces)
                if not texts:
                    break
                yield from texts
                first += len(texts)

    def _take_in(self, batch: Sequence[EmbeddedText]) -> None:
        taken = self._taken(batch)
        chat_nos = {message.chat_no for message in taken}

        def change(txn: Transaction) -> int:
            # Asked for inside the write: a deletion erases vectors in a later one, so nothing of the chat comes back.
            with self._index.snapshot() as snapshot:
                living = {no for no in chat_nos if _message_count(snapshot, no) is not None}
                current = [_as_it_is(snapshot, message) for message in taken if message.chat_no in living]
            return self.vectors.take_in(txn, current, self._embedding.dimensions)

        update(self.vectors, change)

    def _taken(self, batch: Sequence[EmbeddedText]) -> list[Taken]:
        """Return messages with their vectors; without, where the function refuses some of them but not all."""
        try:
            pieces = self._vectors_of([text.pieces for text in batch])
        except EmbeddingError:
            self._tries += 1
            if self._tries < _TRIES or len(batch) == 1:
                raise
            # A text that the function never takes would hold back its batch, and with it all that follows.
            pieces = self._one_by_one(batch)
        self._tries = 0
        return [Taken(*text[:-1], vectors) for text, vectors in zip(batch, pieces, strict=True)]

    def _one_by_one(self, batch: Sequence[EmbeddedText]) -> list[list[EmbeddedPiece] | None]:
        """Return the vectors of each message, None where the function fails. Raises `EmbeddingError` when it fails for all."""
        vectors: list[list[EmbeddedPiece] | None] = []
        failed: EmbeddingError | None = None
        for text in batch:
            try:
                vectors += self._vectors_of([text.pieces])
            except EmbeddingError as error:
                failed = error
                vectors.append(None)
        if failed is not None:
            if not any(vectors):
                raise failed
            count = sum(pieces is None for pieces in vectors)
            _logger.warning("%d messages have no vectors: %s; they are tried again later", count, failed)
        return vectors

    def _vectors_of(self, pieces: Sequence[Sequence[str]]) -> list[list[EmbeddedPiece] | None]:
        """Return the vectors of the pieces of each text: those of known pieces as they are, the others from the function."""
        # By their text: a fork of a chat has the same messages again, and each call of the function costs time or money.
        named = {piece_digest(piece): piece for of_text in pieces for piece in of_text}
        vectors = read(self.vectors, lambda txn: self.vectors.known(txn, named))
        missing = [digest for digest in named if digest not in vectors]
        if missing:
            codes = Codes.of(embed_texts(self._embedding, [named[digest] for digest in missing]))
            vectors |= {piece.digest: piece for piece in EmbeddedPiece.of(missing, codes)}
        return [[vectors[piece_digest(piece)] for piece in of_text] for of_text in pieces]

    def _retry_failed(self) -> None:
        """Try messages again that the function refused, now and then."""
        now_s = time.monotonic()
        if self._retried_s is not None and now_s - self._retried_s < _RETRY_S:
            return
        self._retried_s = now_s
        for failure in read(self.vectors, self.vectors.failed):
            if self._is_over():
                return
            self._retry(failure)

    def _retry(self, failure: RefusedMessage) -> None:
        with self._index.snapshot() as snapshot:
            place = failure.segment, failure.offset
            text = text_at(
                snapshot.txn, snapshot.tables, failure.chat_no, failure.ordinal, place, self._embedding.pieces
            )
        if text is None:
            return
        try:
            (vectors,) = self._vectors_of([text.pieces])
        except EmbeddingError:
            vectors = None
        taken = Taken(*text[:-1], vectors)

        def change(txn: Transaction) -> None:
            with self._index.snapshot() as snapshot:
                is_living = _message_count(snapshot, failure.chat_no) is not None
                retaken = _as_it_is(snapshot, taken) if is_living else taken
            if is_living:
                self.vectors.retake(txn, retaken, failure, self._embedding.dimensions)

        update(self.vectors, change)


def reconcile(index: Index, vectors: VectorIndex, dimensions: int) -> None:
    """Remove vectors of chats that an index does not have, once for each of its generations: a deletion may have been missed."""
    generation = index.generation_no
    state = read(vectors, vectors.taken_in)
    if state.generation == generation:
        return
    chat_nos = read(vectors, vectors.chat_nos)
    counts = read(vectors, lambda txn: vectors.counts(txn, chat_nos))
    with index.snapshot() as snapshot:
        end = snapshot.state.position
        gone = [no for no in chat_nos if (_message_count(snapshot, no) or 0) < counts[no]]

    def change(txn: Transaction) -> None:
        vectors.forget_chats(txn, gone, dimensions)
        # Chats that are forgotten may be there, with fewer messages than there were: they are asked again.
        position = 0 if gone else min(vectors.taken_in(txn).position, end)
        vectors.note(txn, generation=generation, position=position)

    update(vectors, change)


def _changed(snapshot: "Snapshot", after: int, until: int) -> list[int]:
    """Return the chats that may lack vectors, the last changed first."""
    # To list the streams of many events takes longer than to ask each chat how many vectors it has.
    if not after or until - after > _FAR:
        return snapshot.chat_nos()
    return sorted(streams_between(snapshot.txn, snapshot.tables, after, until), reverse=True)


def _message_count(snapshot: "Snapshot", chat_no: int) -> int | None:
    """The number of messages of a chat; None when it was deleted."""
    record = IndexedChat(snapshot.tables, snapshot.txn, "", chat_no).record
    return None if record is None else record.message_count


def _as_it_is(snapshot: "Snapshot", message: Taken) -> Taken:
    """Return a message without vectors where it was redacted since it was read."""
    if not message.pieces:
        return message
    chains = Chains(snapshot.txn, snapshot.tables.rows, message.chat_no, "")
    is_redacted = chains.message((message.segment, message.offset)).redacted is not None
    return message._replace(pieces=()) if is_redacted else message
