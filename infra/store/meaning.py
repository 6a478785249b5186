"""Search by meaning in a store: the embedding that it was opened with, the thread that embeds, and erasing vectors."""

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chatledger.domain.errors import (
    ChatledgerError,
    ConfigurationError,
    CorruptStateError,
    LedgerClosedError,
)
from chatledger.domain.search.embedding import Embedding
from chatledger.projections.generations import Erasure
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.page_check import PageError

from .vector_folders import VectorFolders, read, update

if TYPE_CHECKING:
    from chatledger.projections.index import Index
    from chatledger.projections.meaning.vector_index import VectorIndex

    from .embedder import Embedder

_GATHER_S: Final = 0.02
"""Messages that are written one soon after the other are embedded together."""
_WAIT_S: Final = 1.0
_LEAST_PAUSE_S: Final = 0.05
_MOST_PAUSE_S: Final = 60.0
_JOIN_S: Final = 1.0
_logger = logging.getLogger(__name__)


class Meaning:
    """
    The vectors of the messages of one index. Its methods are safe for threads.

    Args:
        index: It has the messages.
        closing: Set when the store is being closed.
    """

    def __init__(self, index: "Index", closing: threading.Event) -> None:
        self._index, self._closing = index, closing
        self._folders = VectorFolders(index.folder, index.identity)
        self._worker: EmbeddingWorker | None = None
        self._lock = threading.Lock()

    @property
    def embedding(self) -> Embedding | None:
        return None if self._worker is None else self._worker.embedding

    @property
    def error(self) -> ChatledgerError | None:
        """The error of the last attempt to embed; None when it succeeded."""
        return None if self._worker is None else self._worker.error

    def attach(self, embedding: Embedding | None) -> None:
        """
        Begin to embed messages in a thread, those that there are and those that come.

        Raises:
            ConfigurationError: The store was opened with another embedding in this process.
        """
        if embedding is None:
            return
        with self._lock:
            attached = self.embedding
            if attached is None:
                self._folders.get(embedding)
                self._worker = EmbeddingWorker(self._index, self._folders, embedding, self._closing)
                self._worker.start()
            elif attached.key != embedding.key:
                msg = (
                    f"the ledger is open in this process with embedding {attached.name!r} of {attached.dimensions} dimensions, not "
                    f"{embedding.name!r} of {embedding.dimensions}; close it first"
                )
                raise ConfigurationError(msg)

    def find(self, embedding: Embedding) -> "VectorIndex | None":
        """Return the vectors of an embedding; None when no process has begun with it."""
        return self._folders.find(embedding)

    def await_position(self, position: int, timeout_s: float) -> bool:
        """
        Wait until all messages up to a position of the log were taken in; False when the time is over.

        Raises:
            ConfigurationError: The store was opened without an embedding.
            LedgerClosedError: The store was closed meanwhile.
        """
        worker = self._worker
        if worker is None:
            raise ConfigurationError(NO_EMBEDDING)
        return worker.await_position(position, timeout_s)

    # Erasing

    def forget(self, erasures: Sequence[Erasure]) -> None:
        """Remove the vectors of deleted chats and redacted messages, whichever process embedded them; `scrub` removes them from the files."""
        if not erasures:
            return
        chat_nos = [erasure.first_position for erasure in erasures if not erasure.targets]
        messages = {(erasure.first_position, number) for erasure in erasures for _, number in erasure.messages}
        for vectors in self._folders.all():
            try:
                about = read(vectors, vectors.about)
                assert about is not None, "it was described when it was opened"
                dimensions = about.dimensions

                def change(txn: Transaction, vectors: "VectorIndex" = vectors, dimensions: int = dimensions) -> bool:
                    has_any = vectors.forget_messages(txn, messages, dimensions) if messages else False
                    return vectors.forget_chats(txn, chat_nos, dimensions) or has_any

                update(vectors, change)
            except CorruptStateError as error:
                self._discard(vectors, error)

    def reconcile(self) -> None:
        """Remove the vectors of chats that were deleted while nobody looked, as a rebuilt index does not name them."""
        for vectors in self._folders.all():
            from .embedder import reconcile

            try:
                about = read(vectors, vectors.about)
                assert about is not None, "it was described when it was opened"
                reconcile(self._index, vectors, about.dimensions)
            except CorruptStateError as error:
                self._discard(vectors, error)

    @property
    def is_scrub_due(self) -> bool:
        """Whether the files may still have vectors of what was deleted."""
        return any(read(vectors, vectors.scrub_due) is not None for vectors in self._folders.all())

    def scrub(self) -> bool:
        """Remove what was deleted from the files. Returns whether it is gone; if not, something still uses it: try again later."""
        is_clean = True
        for vectors in self._folders.all():
            from chatledger.projections.lmdb.scrub import scrub_rows

            try:
                is_clean &= scrub_rows(vectors)
            except PageError as error:
                self._discard(vectors, error)
        return is_clean

    def _discard(self, vectors: "VectorIndex", error: Exception) -> None:
        """Drop vectors that nothing can be erased from; they are computed anew."""
        _logger.warning("vectors are dropped, as deleted ones cannot be erased from them: %s", error)
        self._folders.discard(vectors.path.name)

    def close(self) -> None:
        """Stop embedding and close the files. A call of the function that is under way is not waited for."""
        worker = self._worker
        deadline_s = time.monotonic() + _JOIN_S
        while worker is not None and worker.is_alive() and time.monotonic() < deadline_s:
            self._index.wake()
            worker.join(_GATHER_S)
        self._folders.close()


NO_EMBEDDING: Final = "search by meaning needs an embedding, and neither the ledger was opened with one nor the search was given one (embed)"


class EmbeddingWorker(threading.Thread):
    """
    Embeds the messages of an index as they come, in one process at a time.

    Args:
        index, folders: The messages, and where their vectors go.
        embedding: The function.
        closing: Set when it is to stop.
    """

    def __init__(self, index: "Index", folders: VectorFolders, embedding: Embedding, closing: threading.Event) -> None:
        super().__init__(name="chatledger-embedder", daemon=True)
        self.embedding = embedding
        self.error: ChatledgerError | None = None
        self._index, self._folders, self._closing = index, folders, closing
        self._advanced = threading.Condition()
        self._descriptor: int | None = None
        self._embedder: Embedder | None = None
        self._has_dropped = False

    def run(self) -> None:
        """Embed until the store is closed."""
        pause_s = _LEAST_PAUSE_S
        try:
            while not self._closing.is_set():
                try:
                    embedder = self._ready()
                    if embedder is None:
                        self._closing.wait(_WAIT_S)
                        continue
                    reached = self._catch_up(embedder)
                    if reached is None:
                        self._closing.wait(pause_s)
                        pause_s = min(2 * pause_s, _MOST_PAUSE_S)
                        continue
                    pause_s = _LEAST_PAUSE_S
                    self._index.await_change(reached, _WAIT_S)
                    self._closing.wait(_GATHER_S)
                except LedgerClosedError:  # also vectors that were dropped: they begin anew
                    self._closing.wait(_GATHER_S)
        finally:
            self._release()

    def _ready(self) -> "Embedder | None":
        """Return what embeds; None while another process does it."""
        from .embedder import Embedder

        try:
            vectors = self._folders.get(self.embedding)
            if self._embedder is None or self._embedder.vectors is not vectors:
                self._release()
                self._descriptor = self._folders.worker_lock(self.embedding)
                if self._descriptor is None:
                    return None
                self._embedder = Embedder(self._index, vectors, self.embedding, is_over=self._closing.is_set)
        except (OSError, LedgerClosedError):
            return None
        except ChatledgerError as error:
            self._note_error(error)
            return None
        return self._embedder

    def _release(self) -> None:
        """Let another process embed."""
        descriptor, self._descriptor, self._embedder = self._descriptor, None, None
        if descriptor is not None:
            os.close(descriptor)

    def _catch_up(self, embedder: "Embedder") -> int | None:
        try:
            reached = embedder.catch_up()
        except LedgerClosedError:
            raise
        except ChatledgerError as error:
            if self._closing.is_set():
                raise LedgerClosedError(str(error)) from error
            self._note_error(error)
            return None
        self.error = None
        if not self._has_dropped:
            self._has_dropped = True
            self._folders.drop_others(self.embedding)
        with self._advanced:
            self._advanced.notify_all()
        return reached

    def _note_error(self, error: ChatledgerError) -> None:
        if self.error is None:
            _logger.warning("messages wait for their vectors, and are found by words meanwhile: %s", error)
        self.error = error

    def await_position(self, position: int, timeout_s: float) -> bool:
        """Wait until all messages up to a position were taken in, by whichever process; False when the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            vectors = self._folders.get(self.embedding)
            if read(vectors, vectors.taken_in).position >= position:
                return True
            rest_s = deadline_s - time.monotonic()
            if rest_s <= 0:
                return False
            if self._closing.is_set():
                msg = "the ledger is closed; open it again"
                raise LedgerClosedError(msg)
            with self._advanced:
                self._advanced.wait(min(rest_s, _LEAST_PAUSE_S))
