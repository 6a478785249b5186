"""A ledger on a directory at rest: reads are answered by the index alone, and anything else opens the directory."""

import contextlib
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from chatledger.domain.errors import LedgerClosedError
from chatledger.projections.snapshot import IndexReader, Snapshot

from ..log.live import LiveStreams
from ..store.redactor import Redactor
from ..store.task_writes import TaskWriteBuffer
from .ledger import Ledger
from .port import HeldStore, LedgerLog, WholeStore, passed_on

if TYPE_CHECKING:
    from ..store.meaning import Meaning
    from ..store.temp_folders import Scratch

__all__ = ["HeldStore", "StoreAtRest", "open_to_read"]


def open_to_read(location: str | os.PathLike[str], open_whole: Callable[[], HeldStore]) -> Ledger:
    """
    Open a ledger for reads that its index may answer alone: no server is started for them where a directory is at rest.

    Args:
        location: As of `chatledger.open`; without encryption, and with the index in its default place.
        open_whole: Opens the store at that location: now if it is no directory at rest, else when something is asked that the
            index does not know.

    Returns:
        A ledger for one thread, to be closed. What the index alone answers is as of this call or later.

    Raises:
        ChatledgerError: What `open_whole` raises, in a later call too.
    """
    text = os.fspath(location)
    if "://" in text or text == "memory:":
        return Ledger(open_whole())
    from ..log.nats_server.directory import DataDirectory
    from ..store.opening.at_rest import open_at_rest

    index = open_at_rest(DataDirectory(text))
    return Ledger(open_whole() if index is None else StoreAtRest(text, index, open_whole))


class StoreAtRest:
    """The `WholeStore` of a directory at rest: its index, until something else is needed. For one thread, and the ledger that holds it."""

    def __init__(self, location: str, index: IndexReader, open_whole: Callable[[], HeldStore]) -> None:
        self.location = location
        self._index, self._open_whole = index, open_whole
        self._whole: HeldStore | None = None
        self._readers = 0
        self._is_closed = False
        self.user_id = None
        self.task_writes = TaskWriteBuffer()

    @property
    def store(self) -> WholeStore:
        return self if self._whole is None else self._whole.store

    def release(self) -> None:
        self._is_closed = True
        self._index.close()
        if self._whole is not None:
            self._whole.release()

    def _opened(self) -> WholeStore:
        """The store with its log. One process opens an index only once, so what was read from it so far has to end before."""
        self.check_open()
        if self._whole is None:
            assert not self._readers, "the log is not asked inside a snapshot"
            self._index.close()
            self._whole = self._open_whole()
        return self._whole.store

    def check_open(self) -> None:
        """Raise `LedgerClosedError` after it was closed."""
        if self._is_closed:
            msg = "the ledger is closed; open it again"
            raise LedgerClosedError(msg)

    @contextlib.contextmanager
    def snapshot(self, _chats: object = None, /) -> Generator[Snapshot]:
        """The index as it is now, whichever chats are read."""
        self.check_open()
        with (self._index if self._whole is None else self._whole.store).snapshot() as snapshot:
            self._readers += 1
            try:
                yield snapshot
            finally:
                self._readers -= 1

    @property
    def log(self) -> LedgerLog:
        return self._opened().log

    @property
    def live(self) -> LiveStreams:
        return self._opened().live

    @property
    def meaning(self) -> "Meaning":
        return self._opened().meaning

    @property
    def redactor(self) -> Redactor | None:
        return self._opened().redactor

    @property
    def scratch(self) -> "Scratch":
        return self._opened().scratch

    execute = passed_on(WholeStore.execute, _opened)
    adopt = passed_on(WholeStore.adopt, _opened)
    begin = passed_on(WholeStore.begin, _opened)
    submit = passed_on(WholeStore.submit, _opened)
    erase_deleted = passed_on(WholeStore.erase_deleted, _opened)
    finish_erasures = passed_on(WholeStore.finish_erasures, _opened)
    sweep_large = passed_on(WholeStore.sweep_large, _opened)
    search_later = passed_on(WholeStore.search_later, _opened)
    catch_up = passed_on(WholeStore.catch_up, _opened)
    page = passed_on(WholeStore.page, _opened)
    events = passed_on(WholeStore.events, _opened)
    bytes_at = passed_on(WholeStore.bytes_at, _opened)
    whole = passed_on(WholeStore.whole, _opened)
