"""The folders of vectors beside an index: one for each embedding, opened when it is needed, dropped when another replaces it."""

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import lmdb

from chatledger.domain.errors import ChatledgerError, CorruptStateError, LedgerClosedError
from chatledger.domain.search.embedding import Embedding
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.system_errors import explained, unusable
from chatledger.projections.operating_system import OPEN_FLAGS, lock_file

if TYPE_CHECKING:
    from chatledger.projections.meaning.vector_index import VectorIndex

T = TypeVar("T")
FOLDER: Final = "vectors"
_TRIES: Final = 3
_logger = logging.getLogger(__name__)


class VectorFolders:
    """
    The vector indexes beside an index. Its methods are safe for threads.

    Args:
        root: The folder of the index.
        identity: Of what the index is built from; vectors of something else are dropped.
    """

    def __init__(self, root: Path, identity: str) -> None:
        self._root, self._identity = root / FOLDER, identity
        self._open: dict[str, VectorIndex] = {}
        self._lock = threading.RLock()
        self._is_closed = False

    def get(self, embedding: Embedding) -> "VectorIndex":
        """Return the vectors of an embedding, which may be none yet."""
        vectors = self._opened(embedding.key)
        if vectors is None:
            vectors = self._create(embedding)
        return vectors

    def find(self, embedding: Embedding) -> "VectorIndex | None":
        return self._opened(embedding.key)

    def all(self) -> "list[VectorIndex]":
        """Return those of all embeddings that there are, also of those that this process was not opened with."""
        try:
            keys = sorted(entry.name for entry in os.scandir(self._root) if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            refusal = explained(error, f"the folder of vectors {self._root} cannot be read")
            if refusal is None:
                raise
            raise refusal from error
        return [found for key in keys if (found := self._opened(key)) is not None]

    def worker_lock(self, embedding: Embedding) -> int | None:
        """
        Return a descriptor that holds the lock of the process that embeds; None while another one has it.

        The kernel frees the lock of a killed process.
        """
        folder = self._root / embedding.key
        descriptor = os.open(folder / "embedding", os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
        try:
            lock_file(descriptor)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def _opened(self, key: str) -> "VectorIndex | None":
        with self._lock:
            vectors = self._open.get(key)
            if vectors is not None or self._is_closed or not (self._root / key / "data.mdb").exists():
                return vectors
            try:
                vectors = _open_folder(self._root / key)
            except CorruptStateError as error:
                # They can be computed anew, so damage costs time, and never keeps a ledger from opening.
                _logger.warning("vectors are dropped, and computed anew: %s", error)
                shutil.rmtree(self._root / key, ignore_errors=True)
                return None
            with vectors.reading() as txn:
                about = vectors.about(txn)
            # Chats go by numbers here: those of another log, in whose place this one stands, would be taken for chats of this one.
            if about is None or about.identity != self._identity:
                vectors.close()
                shutil.rmtree(self._root / key, ignore_errors=True)
                return None
            self._open[key] = vectors
            return vectors

    def _create(self, embedding: Embedding) -> "VectorIndex":
        with self._lock:
            if self._is_closed:
                msg = "the ledger is closed; open it again"
                raise LedgerClosedError(msg)
            vectors = _open_patiently(self._root / embedding.key)

            def describe(txn: Transaction) -> None:
                if vectors.about(txn) is None:
                    vectors.describe(
                        txn,
                        identity=self._identity,
                        name=embedding.name,
                        dimensions=embedding.dimensions,
                        piece_chars=embedding.piece_chars,
                    )

            vectors.update(describe)
            self._open[embedding.key] = vectors
            return vectors

    def drop_others(self, embedding: Embedding) -> None:
        """Remove the vectors of all other embeddings, but for those that another process has open."""
        with self._lock:
            try:
                keys = {entry.name for entry in os.scandir(self._root) if entry.is_dir()} - {embedding.key}
            except FileNotFoundError:
                return
            for key in keys:
                self.discard(key)

    def discard(self, key: str) -> bool:
        """Remove the vectors of an embedding, unless another process has them open; returns whether they are gone."""
        with self._lock:
            opened = self._open.pop(key, None)
            if opened is not None:
                opened.close()
            folder = self._root / key
            try:
                with _exclusively(folder / "in-use") as is_free:
                    if is_free:
                        shutil.rmtree(folder, ignore_errors=True)
            except FileNotFoundError:  # what is left of one that was being removed
                shutil.rmtree(folder, ignore_errors=True)
            return not folder.exists()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            opened, self._open = list(self._open.values()), {}
        for vectors in opened:
            vectors.close()


def _open_folder(path: Path) -> "VectorIndex":
    # NumPy takes a tenth of a second to import: only for those who have vectors.
    from chatledger.projections.meaning.vector_index import VectorIndex

    return VectorIndex(path)


@contextlib.contextmanager
def _exclusively(path: Path) -> Generator[bool]:
    """Whether nobody else has an environment open, and keep others waiting."""
    descriptor = os.open(path, os.O_RDWR | OPEN_FLAGS)
    try:
        lock_file(descriptor)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def sound(vectors: "VectorIndex") -> Generator[None]:
    """Raise damage that is met inside as `CorruptStateError`."""
    from chatledger.projections.meaning.vector_index import DAMAGE

    try:
        yield
    except DAMAGE as error:
        if isinstance(error, ChatledgerError):
            raise
        vectors.is_suspect = isinstance(error, lmdb.Error)
        msg = f"the vectors at {vectors.path} are damaged; delete that folder, and they are computed anew"
        raise unusable(error, msg, vectors.file) from error


def read(vectors: "VectorIndex", ask: "Callable[[Transaction], T]") -> T:
    """Read in a transaction of the vectors. Raises `CorruptStateError` for damage."""
    with sound(vectors), vectors.reading() as txn:
        return ask(txn)


def update(vectors: "VectorIndex", change: "Callable[[Transaction], T]") -> T:
    """Write in a transaction of the vectors. Nobody may hold a snapshot of the index here; `change` may take one."""
    with sound(vectors):
        return vectors.update(change)


def _open_patiently(folder: Path) -> "VectorIndex":
    """Open the vectors of a folder, again where somebody drops it at this moment."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(CorruptStateError, FileNotFoundError):
            return _open_folder(folder)
    return _open_folder(folder)
