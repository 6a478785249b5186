"""A ledger on a directory at rest: reads are answered by the index alone, and anything else opens the directory."""

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import LedgerClosedError
from chatledger.projections.log.kinds import Decision, R, StreamKind
from chatledger.projections.snapshot import IndexReader, Snapshot

from ..log.live import LiveStreams
from ..store.commands import RETRY_S, Command, Decide, EventKind, OnStream, S
from ..store.task_writes import TaskWriteBuffer
from .ledger import Ledger
from .port import AdminTask, HeldStore, LedgerLog, WholeStore

if TYPE_CHECKING:
    from ..store.meaning import Meaning
    from ..store.store import Store
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
    """
    The `WholeStore` of a directory at rest: its index, until something else is needed. For one thread, and one ledger, which holds it.

    Args:
        location: Of the directory.
        index: It is open.
        open_whole: Opens the directory.
    """

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
        """Implement `HeldStore.store`."""
        return self if self._whole is None else self._whole.store

    def release(self) -> None:
        """Implement `HeldStore.release`."""
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
        """Implement `StorePort.log`."""
        return self._opened().log

    @property
    def live(self) -> LiveStreams:
        """Implement `StorePort.live`."""
        return self._opened().live

    @property
    def meaning(self) -> "Meaning":
        """Implement `StorePort.meaning`."""
        return self._opened().meaning

    @property
    def scratch(self) -> "Scratch":
        """Implement `StorePort.scratch`."""
        return self._opened().scratch

    def execute(
        self,
        streams: StreamKind[R],
        key: str,
        decide: Decision[R],
        *,
        kind: EventKind | None = None,
        timeout_s: float = RETRY_S,
    ) -> list[Recorded]:
        """Implement `StorePort.execute`."""
        return self._opened().execute(streams, key, decide, kind=kind, timeout_s=timeout_s)

    def execute_on_stream(
        self, decision: OnStream[S], *, kind: EventKind | None, timeout_s: float = RETRY_S
    ) -> list[Recorded]:
        """Implement `WholeStore.execute_on_stream`."""
        return self._opened().execute_on_stream(decision, kind=kind, timeout_s=timeout_s)

    def begin(
        self, streams: StreamKind[R], decisions: Sequence[tuple[str, Decision[R]]]
    ) -> list[Callable[[], list[Recorded]]]:
        """Implement `StorePort.begin`."""
        return self._opened().begin(streams, decisions)

    def begin_on_streams(self, decisions: Sequence[OnStream[S]]) -> list[Callable[[], list[Recorded]]]:
        """Implement `WholeStore.begin_on_streams`."""
        return self._opened().begin_on_streams(decisions)

    def submit(self, chat_id: str, decide: Decide, kind: EventKind, on_end: Callable[[], object]) -> Command:
        """Implement `StorePort.submit`."""
        return self._opened().submit(chat_id, decide, kind, on_end)

    def erase_deleted(self) -> None:
        """Implement `StorePort.erase_deleted`."""
        self._opened().erase_deleted()

    def finish_erasures(self) -> None:
        """Implement `StorePort.finish_erasures`."""
        self._opened().finish_erasures()

    def sweep_large(self) -> int:
        """Implement `StorePort.sweep_large`."""
        return self._opened().sweep_large()

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Implement `StorePort.catch_up`."""
        return self._opened().catch_up(position, timeout_s)

    def page(
        self, after: int, *, stream_id: str | None = None, limit: int | None = None, is_woken: bool = False
    ) -> Sequence[Recorded]:
        """Implement `StorePort.page`."""
        store = self._opened()
        if limit is None:
            return store.page(after, stream_id=stream_id, is_woken=is_woken)
        return store.page(after, stream_id=stream_id, limit=limit, is_woken=is_woken)

    def events(
        self, after: int, *, stream_id: str | None = None, is_closed: Callable[[], bool] = lambda: False
    ) -> Iterator[Recorded]:
        """Implement `StorePort.events`."""
        return self._opened().events(after, stream_id=stream_id, is_closed=is_closed)

    def event_bytes(self, position: int) -> bytes | None:
        """Implement `StorePort.event_bytes`."""
        return self._opened().event_bytes(position)

    def whole(self, task: AdminTask) -> "Store":
        """Implement `StorePort.whole`."""
        return self._opened().whole(task)
